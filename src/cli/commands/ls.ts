import { Option, type Command } from "commander";
import { next, type TaskStatus } from "../../protocol/status.ts";
import type { Context, Run } from "../context.ts";
import { openDatabase } from "../database.ts";
import { exits, usage } from "../exit.ts";
import { type CommonOptions, count, examples, withTarget } from "../options.ts";
import { type Remembered, idOf, rememberedAs } from "../remembered.ts";
import { startedFrom } from "../state.ts";
import { namedAddress } from "../target.ts";
import { elapsed, oneLine, shortIds, table } from "../text.ts";

interface ListOptions extends CommonOptions {
  readonly status?: TaskStatus;
  readonly limit: number;
}

/** `mcp-tasks ls`. */
export function addLs(program: Command, run: Run): void {
  const command = program
    .command("ls")
    .description("List the tasks started from here, of one server or of all; with --db, a server's own tasks")
    .addOption(new Option("--status <status>", "with --db: only these").choices(Object.keys(next)))
    .addOption(new Option("--limit <number>", "with --db: the newest so many").default(50).argParser(count));
  examples(withTarget(command, { remote: true, db: true }), [
    "mcp-tasks ls",
    "mcp-tasks ls --url http://127.0.0.1:3000/mcp",
    "mcp-tasks ls --status input_required --db tasks.db",
  ]);
  command.action((options: ListOptions) =>
    run(options, async (context) => {
      if (options.db === undefined && options.status !== undefined) throw usage("--status goes with --db.");
      const rows: (Remembered | Stored)[] =
        options.db === undefined ? await ours(context, options) : await stored(context, options);
      context.out.document({ tasks: rows });
      const idIn = (row: Remembered | Stored) => ("call" in row ? idOf(row) : row.taskId);
      const short = shortIds(rows.map(idIn));
      const age = (at: string) => elapsed(Date.now() - Date.parse(at));
      const lines = rows.map((row) => {
        const { tool, status, startedAt } = row;
        const id = oneLine(short.get(idIn(row)) ?? "-");
        return [id, status, oneLine(tool ?? "-"), age(startedAt), oneLine("owner" in row ? row.owner : row.server)];
      });
      if (lines.length === 0) context.out.say("No tasks.");
      else
        context.out.print(
          table([["ID", "STATUS", "TOOL", "AGE", options.db === undefined ? "SERVER" : "OWNER"], ...lines]),
        );
      return exits.done;
    }),
  );
}

interface Stored {
  readonly taskId: string;
  readonly status: string;
  readonly tool: string;
  readonly startedAt: string;
  readonly owner: string;
}

async function ours({ out }: Context, options: ListOptions): Promise<Remembered[]> {
  const entries = await startedFrom(options.state, namedAddress(options), ({ message }) => out.say(message));
  return entries.map(rememberedAs);
}

async function stored(context: Context, { status, limit }: ListOptions): Promise<Stored[]> {
  await using database = await openDatabase(context, { mustExist: true });
  const tasks = await database.store.list({ limit, ...(status === undefined ? {} : { status }) });
  return tasks.map(({ id, status, tool, createdAt, owner }) => {
    return { taskId: id, status, tool, startedAt: new Date(createdAt).toISOString(), owner };
  });
}

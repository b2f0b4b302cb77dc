import { statSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import type { Command } from "commander";
import { tasksExtension, tasksProtocol } from "../../protocol/capabilities.ts";
import type { Context, Run } from "../context.ts";
import { openDatabase } from "../database.ts";
import { type Exit, exits } from "../exit.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { openRemote } from "../remote.ts";
import { isPostgres } from "../store.ts";
import { databaseFile } from "../target.ts";
import { oneLine } from "../text.ts";

/** `mcp-tasks doctor`. */
export function addDoctor(program: Command, run: Run): void {
  const command = program
    .command("doctor")
    .description("Say whether calls to a server can become tasks, and why; or check a server's own database");
  examples(withTarget(command, { remote: true, db: true }), [
    "mcp-tasks doctor --url http://127.0.0.1:3000/mcp",
    "mcp-tasks doctor --stdio node server.js",
    "mcp-tasks doctor --db tasks.db",
  ]);
  command.action((options: CommonOptions) =>
    run(options, (context) => (options.db === undefined ? checkServer(context) : checkDatabase(context))),
  );
}

async function checkServer(context: Context): Promise<Exit> {
  const { out } = context;
  await using remote = await openRemote(context, { listen: false, asks: false });
  const { client } = remote.tasks;
  const capabilities = client.getServerCapabilities() ?? {};
  const { name = "", version = "" } = client.getServerVersion() ?? {};
  const protocol = client.getNegotiatedProtocolVersion() ?? "";
  const modern = client.getProtocolEra() === "modern";
  const offered = capabilities.extensions?.[tasksExtension] !== undefined;
  const generation =
    modern && offered ? tasksProtocol : !modern && capabilities.tasks !== undefined ? "2025-11-25" : "none";
  const { tools } = capabilities.tools === undefined ? { tools: [] } : await client.listTools();
  const reasons = why(modern, offered, generation);
  out.document({ server: { name, version }, protocol, tasks: generation, tools: tools.length, reasons });
  out.print(`server    ${oneLine(`${name} ${version}`)}, ${tools.length} ${tools.length === 1 ? "tool" : "tools"}`);
  out.print(`protocol  ${oneLine(protocol)}`);
  out.print(`tasks     ${generation === "none" ? "none" : `of ${generation}`}`);
  for (const reason of reasons) out.print(`- ${reason}`);
  return exits.done;
}

/** Why a host would get a task from this server, or would not. */
function why(modern: boolean, offered: boolean, generation: string): string[] {
  if (modern && offered)
    return [
      `The server offers ${tasksExtension}, and this client declares it on every request: a call may become a task.`,
      "A host that doesn't declare it gets the result in the answer itself, or an error from a tool that needs a task.",
      "Whether a call becomes a task is for the server to decide, each time.",
    ];
  if (modern)
    return [`The server speaks ${tasksProtocol} but doesn't offer ${tasksExtension}: every call is answered at once.`];
  if (generation === "none")
    return [`The server speaks a protocol before ${tasksProtocol} and has no tasks: every call is answered at once.`];
  return [
    `The server has the tasks of 2025-11-25, not ${tasksExtension}.`,
    `Only a host that knows that generation gets a task; one that knows ${tasksProtocol} alone is answered at once.`,
  ];
}

async function checkDatabase(context: Context): Promise<Exit> {
  const { out, options } = context;
  const file = isPostgres(options) ? null : databaseFile(options, true);
  const problems = file === null ? [] : damage(file);
  const counts: Record<string, number> = {};
  if (problems.length === 0) {
    await using database = await openDatabase(context, { mustExist: true });
    for (let before: string | undefined, more = true; more;) {
      const tasks = await database.store.list({ limit: 500, ...(before === undefined ? {} : { before }) });
      for (const { status } of tasks) counts[status] = (counts[status] ?? 0) + 1;
      before = tasks.at(-1)?.id;
      more = tasks.length === 500;
    }
  }
  if (file !== null && (statSync(file).mode & 0o077) !== 0)
    problems.push("Others than its owner can read the file: chmod 600 it.");
  out.document({ tasks: counts, problems });
  out.print(
    `tasks     ${
      Object.entries(counts)
        .map(([status, n]) => `${n} ${status}`)
        .join(", ") || "none"
    }`,
  );
  out.print(
    problems.length === 0
      ? `${file === null ? "database" : "file    "}  sound`
      : problems.map((problem) => `problem   ${problem}`).join("\n"),
  );
  return problems.length === 0 ? exits.done : exits.unexpected;
}

/** What SQLite itself finds wrong with the file. Changes nothing in it. */
function damage(file: string): string[] {
  const db = new DatabaseSync(file, { readOnly: true });
  try {
    const found = db.prepare("PRAGMA integrity_check").all() as { integrity_check: string }[];
    return found.map((row) => oneLine(row.integrity_check)).filter((text) => text !== "ok");
  } catch {
    return ["The file is no SQLite database, or too damaged to be read as one. Restore a backup."];
  } finally {
    db.close();
  }
}

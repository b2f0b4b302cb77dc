import type { Command } from "commander";
import type { Run } from "../context.ts";
import { openDatabase } from "../database.ts";
import { exits, usage } from "../exit.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";

/** `mcp-tasks purge`. */
export function addPurge(program: Command, run: Run): void {
  const command = program
    .command("purge")
    .description(
      "Delete finished tasks that were kept for as long as their tool says, and end those whose time is over",
    );
  examples(withTarget(command, { db: true }), ["mcp-tasks purge --db tasks.db"]);
  command.action((options: CommonOptions) =>
    run(options, async (context) => {
      if (options.db === undefined) throw usage("Give the database by --db.", context.line("purge", "--db", "FILE"));
      await using database = await openDatabase(context, { mustExist: true });
      const total = { purged: 0, timedOut: 0, cancelled: 0 };
      for (let more = true; more;) {
        const swept = await database.store.sweep();
        total.purged += swept.purged.length;
        total.timedOut += swept.timedOut;
        total.cancelled += swept.cancelled;
        ({ more } = swept);
      }
      context.out.document(total);
      const ended = total.timedOut + total.cancelled;
      context.out.print(`${total.purged} deleted${ended === 0 ? "" : `, ${ended} ended`}`);
      return exits.done;
    }),
  );
}

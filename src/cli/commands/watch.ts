import type { Command } from "commander";
import type { Run } from "../context.ts";
import { exits } from "../exit.ts";
import { follow } from "../follow.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { openRemote } from "../remote.ts";
import { resumed } from "./result.ts";

/** `mcp-tasks watch ID…`. */
export function addWatch(program: Command, run: Run): void {
  const command = program.command("watch <id...>").description("Show each change of some tasks until they end");
  examples(withTarget(command, { remote: true }), [
    "mcp-tasks watch 3fa9c1d2 --url http://127.0.0.1:3000/mcp",
    "mcp-tasks watch 3fa9c1d2 77b0e4aa --json --server deployer   # one document a change",
  ]);
  command.action((texts: string[], options: CommonOptions) =>
    run(options, async (context) => {
      await using remote = await openRemote(context, { listen: true, asks: true });
      const ids = await Promise.all(texts.map((text) => remote.identify(text)));
      const jobs = await Promise.all([...new Set(ids)].map((id) => resumed(remote, id)));
      const how = { eachChange: true, stopsAtInput: false };
      const ends = await Promise.all(jobs.map((job) => follow(context, remote, job, how)));
      return ends.find((exit) => exit !== exits.done) ?? exits.done;
    }),
  );
}

import type { Tool } from "@modelcontextprotocol/client";
import type { Command } from "commander";
import type { Run } from "../context.ts";
import { exits } from "../exit.ts";
import { type CommonOptions, examples, withTarget } from "../options.ts";
import { openRemote } from "../remote.ts";
import { oneLine } from "../text.ts";

/** `mcp-tasks tools`. */
export function addTools(program: Command, run: Run): void {
  const command = program.command("tools").description("List a server's tools and their arguments");
  examples(withTarget(command, { remote: true }), [
    "mcp-tasks tools --url http://127.0.0.1:3000/mcp",
    "mcp-tasks tools --json --stdio node server.js",
  ]);
  command.action((options: CommonOptions) =>
    run(options, async (context) => {
      await using remote = await openRemote(context, { listen: false, asks: false });
      const { tools } = await remote.tasks.client.listTools();
      context.out.document({ tools });
      for (const tool of tools) {
        context.out.print(`${oneLine(tool.name)}  ${oneLine(tool.description ?? tool.title ?? "")}`.trimEnd());
        for (const text of argumentLines(tool)) context.out.print(text);
      }
      if (tools.length === 0) context.out.say("The server has no tools.");
      return exits.done;
    }),
  );
}

function argumentLines({ inputSchema }: Tool): string[] {
  const fields = Object.entries((inputSchema.properties ?? {}) as Record<string, Record<string, unknown>>);
  return fields.map(([name, { type, description, default: preset }]) => {
    const notes = [
      typeof type === "string" ? type : "JSON",
      inputSchema.required?.includes(name) === true ? "required" : "",
      preset === undefined ? "" : `default ${JSON.stringify(preset)}`,
      typeof description === "string" ? description : "",
    ];
    return oneLine(`--arg ${name}=…  ${notes.filter((note) => note !== "").join("; ")}`).replace(/^/, "    ");
  });
}

import { createInterface } from "node:readline/promises";
import type { InputHandlers } from "mcp-tasks/client";

type Elicit = NonNullable<InputHandlers["elicit"]>;
type Form = Parameters<Elicit>[0];

/** Asks one question at a time, however many tasks have one, or answers from `prepared` without asking. */
export function askInTurn(prepared?: Readonly<Record<string, string | number>>): Elicit {
  let turn: Promise<unknown> = Promise.resolve();
  return (form, { signal }) => {
    const answer = turn.then(async () => {
      signal.throwIfAborted();
      console.log(`Question: ${form.message}`);
      if (prepared === undefined) return await fillIn(form, signal);
      const fields = Object.keys(form.requestedSchema.properties);
      const content = Object.fromEntries(fields.flatMap((field) => [[field, prepared[field] ?? ""]]));
      return { action: "accept" as const, content };
    });
    turn = answer.catch(() => {});
    return answer;
  };
}

/** Asks for each field until it fits. An empty line leaves the question open, for another time. */
async function fillIn(form: Form, signal: AbortSignal) {
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    const content: Record<string, string | number> = {};
    for (const [field, schema] of Object.entries(form.requestedSchema.properties)) {
      const choices = "enum" in schema && Array.isArray(schema.enum) ? ` (${schema.enum.join(", ")})` : "";
      for (;;) {
        const line = (
          await terminal.question(`  ${schema.title ?? field}${choices}, or nothing for later: `, { signal })
        ).trim();
        if (line === "") return undefined;
        const value = schema.type === "integer" || schema.type === "number" ? Number(line) : line;
        const { minimum = -Infinity, maximum = Infinity } = schema as { minimum?: number; maximum?: number };
        const inRange = typeof value === "string" || (value >= minimum && value <= maximum);
        const fits = choices === "" ? inRange : choices.includes(line);
        if (!fits) continue;
        content[field] = value;
        break;
      }
    }
    return { action: "accept" as const, content };
  } finally {
    terminal.close();
  }
}

import { readFileSync } from "node:fs";
import path from "node:path";
import { parseArgs } from "node:util";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, TaskError, type TaskRun, fileLog } from "mcp-tasks/client";
import { Plan } from "./plan.ts";
import { askInTurn } from "./terminal.ts";

/** A small host: runs three tasks at once, asks on the terminal, and when it is started again it goes on. */

const { values } = parseArgs({
  options: {
    url: { type: "string", default: "http://127.0.0.1:3100/mcp" },
    state: { type: "string", default: ".agent-loop/host" },
    /** A file of answers by field, instead of asking. */
    answers: { type: "string" },
  },
});
const prepared = values.answers === undefined ? undefined : JSON.parse(readFileSync(values.answers, "utf8"));

const plan = new Plan(path.join(values.state, "plan.json"), ["book_flight", "book_hotel", "rent_car"]);
const tasks = await new TaskClient(new Client({ name: "agent-loop", version: "1.0.0" }), {
  log: fileLog(path.join(values.state, "tasks")),
  input: { elicit: askInTurn(prepared) },
  onError: (error) => console.error(`In passing: ${String(error)}`),
}).connect(values.url);

/** Follows one step of the plan to its end, and writes down what came of it before anything else happens. */
async function finish(run: TaskRun): Promise<void> {
  const tool = run.tool ?? "";
  try {
    for await (const { status, statusMessage } of run) console.log(`${tool}: ${statusMessage ?? status}`);
    const { content } = await run.result();
    plan.done(tool, content.map((part) => (part.type === "text" ? part.text : "")).join("\n"));
  } catch (error) {
    if (!(error instanceof TaskError)) throw error;
    // The task goes on: the next start resumes it.
    if (error.code === "INPUT_FAILED") return console.error(`${tool}: ${error.message}`);
    // MAY_HAVE_STARTED is here as well: whether to book again is for a person to say.
    plan.done(tool, `${error.code}: ${error.message}`);
  }
  console.log(`Done with ${plan.resultOf(tool)}`);
}

const left = await tasks.resumeAll();
for (const { tool } of left) console.log(`Going on with ${tool}`);
const resumed = new Set(left.map(({ tool }) => tool));
const started = plan.open
  .filter((tool) => !resumed.has(tool))
  .map(async (name) => finish(await tasks.start({ name, arguments: { city: "Lisbon" } })));
await Promise.all([...left.map(finish), ...started]);

console.log(`All done: ${plan.open.length} steps left`);
await tasks.close();

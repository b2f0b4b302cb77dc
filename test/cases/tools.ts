import { ProtocolError } from "@modelcontextprotocol/server";
import { z } from "zod";
import { taskTool } from "../../src/tool.ts";
import type { Fields, Wire } from "../wire/client.ts";
import { text } from "./bench.ts";

/** Tools for the cases of the server's protocol; what their handlers did stands in `seen`. */

export const seen: string[] = [];
export const count = (entry: string) => seen.filter((other) => other === entry).length;
export const label = z.object({ label: z.string() });
export const value = z.object({ value: z.string() });

export const askOne = taskTool({
  name: "ask_one",
  inputSchema: label,
  async run({ label }, task) {
    const answer = await task.elicit("name", { message: "Which?", schema: value });
    seen.push(`${label} got ${answer.value}`);
    return text(answer.value);
  },
});
export const askTwo = taskTool({
  name: "ask_two",
  inputSchema: label,
  async run({ label }, task) {
    await task.step("before", () => void seen.push(`${label} before`));
    const first = await task.elicit("name", { message: "First?", schema: value });
    await task.step("mid", () => void seen.push(`${label} mid`));
    const second = await task.elicit("name", { message: "Second?", schema: value });
    await task.step("after", () => void seen.push(`${label} after`));
    return text(`${first.value} ${second.value}`);
  },
});
export const widen = taskTool({
  name: "widen",
  task: { recovery: "fail" },
  async run(_args, task) {
    const [a, b] = await Promise.all([
      task.elicit("a", { message: "A?", schema: value }),
      task.event("more").then(() => task.elicit("b", { message: "B?", schema: value })),
    ]);
    return text(`${a.value} ${b.value}`);
  },
});
export const remove = taskTool({
  name: "remove",
  inputSchema: label,
  async run({ label }, task) {
    await task.approve("remove", "Really?");
    seen.push(`${label} removed`);
    return text("removed");
  },
});
export const quick = taskTool({
  name: "quick",
  inputSchema: label,
  run({ label }) {
    seen.push(`${label} ran`);
    return text(label);
  },
});
export const long = taskTool({
  name: "long",
  inputSchema: label,
  async run({ label }, task) {
    await task.report("under way", { progress: 1, total: 3 });
    await task.event("go");
    await task.report("nearly there", { progress: 2, total: 3 });
    await task.event("end");
    return text(label);
  },
});
export const broken = taskTool({
  name: "broken",
  run() {
    throw new ProtocolError(-32050, "no such shop", { shop: 3 });
  },
});
export const before = taskTool({
  name: "before",
  before: { who: { message: "Who?", schema: value } },
  run: (_args, task) => text(`for ${(task.answers.who as { value: string }).value}`),
});

export const asked = async (wire: Wire, id: string) => (await wire.until(id, "input_required")).inputRequests ?? {};
export const take = (given: string) => ({ action: "accept", content: { value: given } });
export const said = (task: Fields | undefined) => task?.content?.[0]?.text;

import { z } from "zod";
import { taskTool } from "../src/tool.ts";
import { embedded, reopened } from "./embedded.ts";

/** Parks so many tasks through a real worker, then says what that did to this process. */
const parked = Number(process.argv[2]);
const tool = taskTool({
  name: "ask",
  async run(_args, task) {
    const { v } = await task.elicit("q", { message: "What now?", schema: z.object({ v: z.string() }) });
    return { content: [{ type: "text", text: v }] };
  },
});

await using bench = await embedded([tool]);

async function park(count: number): Promise<string[]> {
  const ids: string[] = [];
  while (ids.length < count) {
    const batch = await Promise.all(Array.from({ length: Math.min(500, count - ids.length) }, () => bench.start(tool)));
    await Promise.all(batch.map((id) => bench.engine.settled(id, "", AbortSignal.timeout(600_000))));
    ids.push(...batch);
  }
  return ids;
}

function resident(): number {
  globalThis.gc?.();
  return process.memoryUsage.rss();
}

// What a process takes for having worked at all is not the price of waiting.
for (const id of await park(10_000)) await bench.engine.cancel(id, "");
const before = resident();
const ids = await park(Math.max(1, parked));
const sample = ids.filter((_, n) => n % Math.ceil(ids.length / 1000) === 0);
const [one = ""] = ids;
// The ids are this program's own and not the engine's.
ids.length = 0;
const grownBytes = resident() - before;

const getMs: number[] = [];
for (let n = 0; n < 5_000; n++) {
  const start = performance.now();
  await bench.engine.read(sample[n % sample.length] ?? one, "");
  getMs.push(performance.now() - start);
}
const restartMs = await reopened(bench.file, tool);
console.log(JSON.stringify({ parked, grownBytes, getMs, restartMs }));

import { z } from "zod";
import { taskTool } from "../src/tool.ts";
import { embedded, reopened } from "./engine.ts";

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
const one = await bench.start(tool);
const ids: string[] = [];
while (ids.length < parked) {
  const batch = await Promise.all(Array.from({ length: Math.min(500, parked - ids.length) }, () => bench.start(tool)));
  await Promise.all(batch.map((id) => bench.engine.settled(id, "", AbortSignal.timeout(600_000))));
  ids.push(...batch);
}
await bench.engine.settled(one, "", AbortSignal.timeout(60_000));
// The ids are this program's own and not the engine's; of the rest, what is garbage is no cost.
const sample = [one, ...ids.filter((_, n) => n % Math.ceil(parked / 1000) === 0)];
ids.length = 0;
globalThis.gc?.();
const residentBytes = process.memoryUsage.rss();

const getMs: number[] = [];
for (let n = 0; n < 5_000; n++) {
  const start = performance.now();
  await bench.engine.read(sample[n % sample.length] ?? one, "");
  getMs.push(performance.now() - start);
}
const restartMs = await reopened(bench.file, tool);
console.log(JSON.stringify({ parked, residentBytes, getMs, restartMs }));

import { create, owner } from "../src/store/contract/kit.ts";
import { postgres } from "../src/store/postgres/index.ts";
import { median, timed } from "./benchmark.ts";
import { each, width } from "./contender.ts";

const rounds = 5;
const count = 10_000;

/** Reads of one process, and those for each second that a core spent in it. */
export async function measureReads(url: string) {
  await using store = postgres(url, { schema: "reads", connections: width });
  const ids = await Promise.all(Array.from({ length: 100 }, async () => (await create(store)).id));
  const read = () => each(count, (n) => store.get(ids[n % 100]!, owner));
  await read();
  const rates: number[] = [];
  const perCore: number[] = [];
  for (let n = 0; n < rounds; n++) {
    const before = process.cpuUsage();
    const ms = await timed(read);
    const { user, system } = process.cpuUsage(before);
    rates.push((count * 1000) / ms);
    perCore.push((count * 1e6) / (user + system));
  }
  const core = Math.round(median(perCore));
  return {
    perCore: core,
    rows: [{ name: "mcp-tasks, reads of one process", "get/s": Math.round(median(rates)), "get/s and core": core }],
  };
}

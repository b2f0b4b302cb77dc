import { expect, test } from "vitest";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";
import { taskTool } from "../../src/tool.ts";
import { signals, text, workbench } from "./workbench.ts";

/** A store that stores no end before it is told to, and counts what was claimed. */
function holdingEnds() {
  const store = sqlite(":memory:");
  const open = Promise.withResolvers<void>();
  let claimed = 0;
  const held: TaskStore = {
    ...store,
    async claim(request) {
      const claims = await store.claim(request);
      claimed += claims.length;
      return claims;
    },
    async finish(attempt, outcome) {
      await open.promise;
      return store.finish(attempt, outcome);
    },
  };
  return { store: held, claimed: () => claimed, open: () => open.resolve() };
}

/** A tool that tells when so many handlers have begun. */
function counted(count: number) {
  const reached = Promise.withResolvers<void>();
  let runs = 0;
  const tool = taskTool({
    name: "count",
    run() {
      runs += 1;
      if (runs === count) reached.resolve();
      return text("done");
    },
  });
  return { tool, reached: reached.promise };
}

test("a handler that has ended makes room for the next one, before its end is stored", async () => {
  const { tool, reached } = counted(2);
  const { store, open } = holdingEnds();
  await using bench = workbench([tool], { store });
  const ids = [await bench.start(tool), await bench.start(tool)];
  bench.worker({ concurrency: 1 });
  await reached;
  open();
  for (const id of ids) expect((await bench.settled(id)).status).toBe("completed");
});

test("while no end can be stored, no more are waited for than there are places, twice over", async () => {
  const { tool, reached } = counted(4);
  const { store, claimed, open } = holdingEnds();
  await using bench = workbench([tool], { store });
  const ids: string[] = [];
  for (let n = 0; n < 10; n++) ids.push(await bench.start(tool));
  bench.worker({ concurrency: 2 });
  await reached;
  // Told to whoever has a free place.
  ids.push(await bench.start(tool), await bench.start(tool));
  expect(claimed()).toBe(4);
  open();
  for (const id of ids) expect((await bench.settled(id)).status).toBe("completed");
});

test("who got fewer tasks than there are places asks again when there is news, and not before", async () => {
  const store = sqlite(":memory:");
  const asked: number[] = [];
  const looked = Promise.withResolvers<void>();
  const counting: TaskStore = {
    ...store,
    async claim(request) {
      const claims = await store.claim(request);
      asked.push(claims.length);
      return claims;
    },
    async nextDue() {
      looked.resolve();
      return store.nextDue();
    },
  };
  const begun = signals();
  const end = Promise.withResolvers<void>();
  const tool = taskTool({
    name: "wait",
    async run() {
      begun.next();
      await end.promise;
      return text("done");
    },
  });
  await using bench = workbench([tool], { store: counting });
  bench.worker({ concurrency: 10 });
  await looked.promise;
  for (let n = 0; n < 3; n++) {
    await bench.start(tool);
    await begun.reached();
    // Whatever was asked for by now is in one of these transactions.
    await store.sweep();
    await store.sweep();
  }
  expect(asked).toEqual([0, 1, 1, 1]);
  end.resolve();
});

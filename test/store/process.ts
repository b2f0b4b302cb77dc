/** Another process on the same file, or schema: `node process.ts <what> <file or URL> <schema>`. It prints a line for each thing it achieved. */
import { once } from "node:events";
import { createInterface } from "node:readline";
import { setTimeout as pause } from "node:timers/promises";
import { asTaskError } from "../../src/errors.ts";
import { asks, claim, create, owner } from "../../src/store/contract/kit.ts";
import { postgres } from "../../src/store/postgres/index.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import type { TaskStore } from "../../src/store/store.ts";

const [, , what = "", file = "", schema = ""] = process.argv;
const open = () => (schema === "" ? sqlite(file) : postgres(file, { schema }));
const say = (line: string) => process.stdout.write(`${line}\n`);
const accept = { action: "accept" };

const parts: Record<string, () => Promise<void>> = {
  /** Waits for the word, then opens the file together with others. */
  async open() {
    say("ready");
    await once(createInterface(process.stdin), "line");
    await using store = open();
    say((await create(store)).id);
    process.stdin.destroy();
  },

  /** Runs tasks until it is told to stop. */
  async work() {
    let going = true;
    process.stdin.once("end", () => (going = false)).resume();
    await using store = open();
    say("ready");
    while (going) {
      const claims = await claim(store, { worker: `worker-${process.pid}`, count: 5 });
      await Promise.all(
        claims.map(async (claimed) => {
          say(claimed.taskId);
          await store.recordStep(claimed, "step", { state: "done", value: "1" });
          if (!(await store.finish(claimed, { status: "completed", result: "{}" }))) say("lost");
        }),
      );
      if (claims.length === 0) await pause(2);
    }
  },

  /** Takes tasks through their whole life, for as long as it may live, and says what was acknowledged. */
  async write() {
    await using store = open();
    await Promise.all(
      [1, 2, 3].map(async () => {
        for (;;) await live(store);
      }),
    );
  },

  async hold() {
    const store = open();
    const [claimed] = await claim(store, { worker: "holder", leaseMs: 3_600_000 });
    say(claimed?.taskId ?? "nothing");
    await pause(60_000);
  },

  /** Writes until the disk is full. */
  async fill() {
    await using store = open();
    const args = JSON.stringify("x".repeat(20_000));
    for (;;) {
      const error = await create(store, { args }).then(({ id }) => say(id), asTaskError);
      if (error instanceof Error) return void say(`${error.code} ${(await store.list({ limit: 1 })).length}`);
    }
  },

  async refuse() {
    try {
      open();
    } catch (thrown) {
      say(asTaskError(thrown).code);
    }
  },

  /** Leaves without closing: nothing may keep the process. */
  async leave() {
    const store = open();
    store.watch(() => {});
    say((await create(store)).id);
  },
};

async function live(store: TaskStore): Promise<void> {
  const { id } = await create(store, { priority: 1 });
  say(`working ${id}`);
  const parked = async (done: (id: string) => Promise<unknown>) => {
    for (const claimed of await claim(store, { worker: `worker-${process.pid}`, count: 3 })) {
      if (Object.keys(claimed.journal.inputs).length === 0) {
        await store.park(claimed, asks("a"), false);
        await done(claimed.taskId);
      } else if (await store.finish(claimed, { status: "completed", result: "{}" })) say(`completed ${claimed.taskId}`);
    }
  };
  await parked((id) => store.answer(id, owner, { a: accept }, null));
  await parked((id) => store.answer(id, owner, { a: accept }, null));
}

await parts[what]?.();

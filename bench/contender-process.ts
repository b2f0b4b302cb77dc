import { each, type Contender, type Producer } from "./contender.ts";

/**
 * One side of a contender, or both, in a process of its own: `FILE EXPORT PLACE SIDE…`. Its parent asks by messages, one
 * after the other, and gets one back for each.
 */
const [file = "", name = "", place = "", ...sides] = process.argv.slice(2);

type Request =
  | { readonly ask: "setUp" | "open" | "close" | "createOne" | "startMs" | "cpu" }
  | { readonly ask: "create" | "endedAll" | "endToEnd"; readonly count: number };

const contender = ((await import(file)) as Readonly<Record<string, Contender>>)[name];
if (contender === undefined) throw new Error(`There is no ${name} in ${file}.`);
let producer: Producer | null = null;
let worker: AsyncDisposable | null = null;
let ids: string[] = [];
let ended = 0;
let enough = { count: 0, reached: () => {} };
let started = Promise.withResolvers<number>();

const now = () => process.hrtime.bigint().toString();
const told = {
  started: (begun: string) => started.resolve(Number(process.hrtime.bigint() - BigInt(begun)) / 1e6),
  ended() {
    ended += 1;
    if (ended === enough.count) enough.reached();
  },
};

async function answer(request: Request): Promise<number | null> {
  switch (request.ask) {
    case "setUp":
      await contender?.setUp(place);
      return null;
    case "open":
      if (sides.includes("producer")) producer = (await contender?.producer(place)) ?? null;
      if (sides.includes("worker")) worker = (await contender?.worker(place, told)) ?? null;
      return null;
    case "create":
      await createAll(request.count);
      return null;
    case "createOne":
      await producer?.create(now());
      return null;
    // From create to the handler, for a task that is made after this was asked last.
    case "startMs": {
      const ms = await started.promise;
      started = Promise.withResolvers();
      return ms;
    }
    // The producer's side reads each task until it has ended; the worker's counts.
    case "endedAll":
      if (worker !== null) await countAll(request.count);
      if (producer !== null) await readAll(producer);
      return null;
    case "endToEnd":
      await Promise.all([createAll(request.count), countAll(request.count)]);
      if (producer !== null) await readAll(producer);
      return null;
    case "cpu":
      return Object.values(process.cpuUsage()).reduce((sum, part) => sum + part, 0) / 1e6;
    case "close":
      await worker?.[Symbol.asyncDispose]();
      await producer?.[Symbol.asyncDispose]();
      process.disconnect();
      process.exit(0);
  }
}

async function createAll(count: number): Promise<void> {
  ids = [];
  await each(count, async () => ids.push((await producer?.create(now())) ?? ""));
}

async function countAll(count: number): Promise<void> {
  if (ended < count) await new Promise<void>((resolve) => (enough = { count, reached: resolve }));
  ended -= count;
}

async function readAll({ hasEnded }: Producer): Promise<void> {
  if (hasEnded === null) return;
  await each(ids.length, async (n) => {
    while (!(await hasEnded(ids[n] ?? ""))) await new Promise((resolve) => setTimeout(resolve, 2));
  });
}

process.on("message", (request: Request) => {
  answer(request).then(
    (value) => process.send?.({ value }),
    (thrown: unknown) => process.send?.({ error: thrown instanceof Error ? thrown.message : String(thrown) }),
  );
});
process.send?.({ value: null });

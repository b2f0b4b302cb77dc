/** An engine as the benchmarks see it: one side makes tasks, the other runs an empty handler for each. */
export interface Contender {
  /** Makes what both sides need, once, in a place of its own. */
  setUp(place: string): Promise<void>;
  producer(place: string): Promise<Producer>;
  worker(place: string, told: Told): Promise<AsyncDisposable>;
}

export interface Producer extends AsyncDisposable {
  /** Makes a task, durably, that brings `begun` to its handler; gives its id. */
  create(begun: string): Promise<string>;
  /** Reads a task: true when it has ended well. Null: nothing is kept that could be read. */
  readonly hasEnded: ((id: string) => Promise<boolean>) | null;
}

/** What a worker tells. */
export interface Told {
  /** A handler starts, with what its task brought. */
  started(begun: string): void;
  /** A task's end is stored; or, where the engine doesn't say so, its handler returned. */
  ended(): void;
}

/** Handlers at once of each worker. */
export const concurrency = 10;

/** Tasks that a producer makes at once, and connections of each process to its database. */
export const width = 16;

/** Runs `work` for 0 to n-1, so many at a time. */
export async function each(n: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const run = async () => {
    while (next < n) await work(next++);
  };
  await Promise.all(Array.from({ length: width }, run));
}

import { Queue, Worker } from "bullmq";
import { concurrency, type Contender } from "../contender.ts";

const name = "empty";
const connection = (place: string) => ({ url: place, maxRetriesPerRequest: null });

export const bullmq: Contender = {
  async setUp() {},
  async producer(place) {
    const queue = new Queue(name, { connection: connection(place) });
    return {
      create: async (begun) => (await queue.add(name, { begun })).id ?? "",
      hasEnded: async (id) => (await queue.getJob(id))?.finishedOn !== undefined,
      [Symbol.asyncDispose]: () => queue.close(),
    };
  },
  async worker(place, told) {
    const handler = async (job: { data: { begun: string } }) => told.started(job.data.begun);
    const worker = new Worker(name, handler, { connection: connection(place), concurrency });
    worker.on("completed", () => told.ended());
    worker.on("error", (error) => console.error(error));
    await worker.waitUntilReady();
    return { [Symbol.asyncDispose]: () => worker.close() };
  },
};

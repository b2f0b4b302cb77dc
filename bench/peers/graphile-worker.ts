import { EventEmitter } from "node:events";
import { Logger, makeWorkerUtils, run, type WorkerEvents } from "graphile-worker";
import { concurrency, width, type Contender } from "../contender.ts";

const logger = new Logger(() => () => {});

export const graphileWorker: Contender = {
  async setUp(place) {
    const utils = await makeWorkerUtils({ connectionString: place, logger });
    await utils.migrate();
    await utils.release();
  },
  async producer(place) {
    const utils = await makeWorkerUtils({ connectionString: place, maxPoolSize: width, logger });
    return {
      create: async (begun) => (await utils.addJob("empty", { begun })).id,
      // A job that has ended is deleted.
      hasEnded: null,
      [Symbol.asyncDispose]: async () => await utils.release(),
    };
  },
  async worker(place, told) {
    const events: WorkerEvents = new EventEmitter();
    events.on("job:complete", () => told.ended());
    const runner = await run({
      ...{ connectionString: place, maxPoolSize: width, noHandleSignals: true, logger, events },
      ...{ concurrency, noPreparedStatements: false },
      taskList: { empty: (payload) => told.started((payload as { begun: string }).begun) },
    });
    return { [Symbol.asyncDispose]: () => runner.stop() };
  },
};

import { DBOS, DBOSClient } from "@dbos-inc/dbos-sdk";
import { concurrency, width, type Contender, type Told } from "../contender.ts";

const queue = "empty";
/** Its default is a second. Each poll starts as many as there is room for. */
const pollMs = 5;
const silent = { info() {}, debug() {}, warn() {}, error: console.error };
const options = (place: string) => ({
  ...{ name: "bench", systemDatabaseUrl: place, systemDatabasePoolSize: width, logger: silent },
  ...{ runAdminServer: false, applicationVersion: "1" },
});

async function launch(place: string, told: Told | null) {
  DBOS.setConfig({ ...options(place), executorID: told === null ? "set-up" : "worker" });
  const workflow = DBOS.registerWorkflow(
    async (begun: string) => {
      told?.started(begun);
      told?.ended();
    },
    { name: "empty" },
  );
  await DBOS.launch();
  return workflow;
}

/** By a queue, which another process polls. */
export const queued: Contender = {
  async setUp(place) {
    await launch(place, null);
    await DBOS.registerQueue(queue, { workerConcurrency: concurrency, minPollingIntervalMs: pollMs });
    await DBOS.shutdown();
  },
  async producer(place) {
    const client = await DBOSClient.create(options(place));
    return {
      async create(begun) {
        const handle = await client.enqueue({ workflowName: "empty", queueName: queue, appVersion: "1" }, begun);
        return handle.workflowID;
      },
      hasEnded: async (id) => (await client.getWorkflow(id))?.status === "SUCCESS",
      [Symbol.asyncDispose]: () => client.destroy(),
    };
  },
  async worker(place, told) {
    await launch(place, told);
    await DBOS.registerQueue(queue, { workerConcurrency: concurrency, minPollingIntervalMs: pollMs });
    return { [Symbol.asyncDispose]: () => DBOS.shutdown() };
  },
};

/** Whom the handlers tell that run in the process that starts them. */
let toldHere: Told | null = null;

/** In the process that starts it, without a queue. */
export const direct: Contender = {
  async setUp(place) {
    await launch(place, null);
    await DBOS.shutdown();
  },
  // Whoever starts a workflow here runs it.
  async producer(place) {
    const workflow = await launch(place, {
      started: (begun) => toldHere?.started(begun),
      ended: () => toldHere?.ended(),
    });
    return {
      async create(begun) {
        const handle = await DBOS.startWorkflow(workflow)(begun);
        return handle.workflowID;
      },
      hasEnded: async (id) => (await DBOS.getWorkflowStatus(id))?.status === "SUCCESS",
      [Symbol.asyncDispose]: () => DBOS.shutdown(),
    };
  },
  async worker(_place, told) {
    toldHere = told;
    return { async [Symbol.asyncDispose]() {} };
  },
};

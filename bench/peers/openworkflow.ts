import { join } from "node:path";
import { OpenWorkflow } from "openworkflow";
import { BackendPostgres } from "openworkflow/postgres";
import { BackendSqlite } from "openworkflow/sqlite";
import { concurrency, type Contender } from "../contender.ts";

type Backend = ConstructorParameters<typeof OpenWorkflow>[0]["backend"];

function contender(open: (place: string) => Promise<Backend>): Contender {
  return {
    async setUp(place) {
      await (await open(place)).stop();
    },
    async producer(place) {
      const backend = await open(place);
      const client = new OpenWorkflow({ backend });
      return {
        async create(begun) {
          return (await client.runWorkflow({ name: "empty" }, { begun })).workflowRun.id;
        },
        async hasEnded(id) {
          return (await backend.getWorkflowRun({ workflowRunId: id }))?.status === "completed";
        },
        [Symbol.asyncDispose]: () => backend.stop(),
      };
    },
    async worker(place, told) {
      const backend = await open(place);
      const client = new OpenWorkflow({ backend });
      client.defineWorkflow({ name: "empty" }, async ({ input }: { input: { begun: string } }) => {
        told.started(input.begun);
        told.ended();
      });
      const worker = client.newWorker({ concurrency });
      await worker.start();
      return {
        async [Symbol.asyncDispose]() {
          await worker.stop();
          await backend.stop();
        },
      };
    },
  };
}

export const onPostgres = contender((place) => BackendPostgres.connect(place));
export const onSqlite = contender(async (place) => BackendSqlite.connect(join(place, "openworkflow.db")));

/** A stdio server over a store that the test shares: `stdio-server.ts FILE`. It prints where it shouldn't. */
import { systemClock } from "../../src/clock.ts";
import { createEngine } from "../../src/engine/engine.ts";
import { limitsFor } from "../../src/server/hosts.ts";
import { createSeal, newSecret } from "../../src/server/seal.ts";
import { serveStdio } from "../../src/server/stdio.ts";
import { sqlite } from "../../src/store/sqlite/index.ts";
import { factory, tools } from "./harness.ts";

const store = sqlite(process.argv[2] ?? ":memory:");
const engine = createEngine({ store });
const parts = {
  engine,
  clock: systemClock,
  seal: createSeal(systemClock, () => store.secret("state", newSecret())),
  limits: limitsFor({ grace: 0 }),
  tools,
  owner: () => "",
  blobs: null,
  companions: false,
  answerAt: String,
  keepAuth: () => null,
  onError: (error: Error) => console.error(error.message),
};
const handle = serveStdio(parts, () => {
  console.log("a stray line");
  process.stdout.write("and another");
  return factory();
});
process.once("SIGTERM", () => void handle.close());
await handle.closed;
await engine[Symbol.asyncDispose]();
await store[Symbol.asyncDispose]();
console.error("closed");

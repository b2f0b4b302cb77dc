import { clientCases } from "./contract/clients.ts";
import type { ContractCase } from "./contract/kit.ts";
import { reuseCases } from "./contract/reuse.ts";
import { timeCases } from "./contract/time.ts";
import { timeoutCases } from "./contract/timeouts.ts";
import { workerCases } from "./contract/workers.ts";

export type { ContractCase, OpenStore } from "./contract/kit.ts";

/**
 * What every store does, as cases by name: `test.each(storeContract)("%s", (_, run) => run(open))` proves one. `open`
 * makes a fresh, empty store that takes its time from the clock it is given.
 */
export const storeContract: readonly ContractCase[] = [
  ...clientCases,
  ...reuseCases,
  ...workerCases,
  ...timeCases,
  ...timeoutCases,
];

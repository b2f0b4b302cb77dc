/** What helps to test: a clock to move by hand, and the cases that every task store passes. */
export { manualClock, type ManualClock } from "./store/contract/manual-clock.ts";
export { storeContract, type OpenStore } from "./store/contract.ts";
export { replayEverywhere, type Answers, type ReplayReport } from "./testing/replay-everywhere.ts";

/** A process that writes to a log: `hold` takes its lock and keeps it, `write N` adds N entries and says which. */
import { mkdirSync } from "node:fs";
import { takeLock } from "../../src/client/lock.ts";
import { fileLog } from "../../src/client/index.ts";
import { entry } from "./entry.ts";

const [folder = "", action = "", count = "0"] = process.argv.slice(2);
const say = (line: string) => process.stdout.write(`${line}\n`);

if (action === "hold") {
  mkdirSync(folder, { recursive: true });
  const giveBack = takeLock(folder);
  say(giveBack === undefined ? "busy" : "held");
  process.stdin.once("data", () => {
    giveBack?.();
    process.exit();
  });
} else {
  const log = fileLog(folder);
  for (let at = 0; at < Number(count); at += 1) {
    const call = `${process.pid}-${at}`;
    await log.put(entry({ call }));
    say(call);
    if (at % 3 === 0) await log.remove(call);
    if (at % 3 === 0) say(`-${call}`);
  }
}

/**
 * A host that is killed: `host.ts URL LOG HOME call PATH` calls a tool that asks twice, `… resume` goes on with what was
 * left. It begins at a line on standard input, and notes in HOME/journal what it asks, what was answered, and results.
 */
import { appendFileSync, existsSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient, type TaskRun, fileLog } from "../../../src/client/index.ts";

const [url = "", log = "", home = "", mode = "", journal = ""] = process.argv.slice(2);
const note = (line: string) => appendFileSync(path.join(home, "journal"), `${line}\n`);

/** A person who thinks for a moment, and a host that remembers what they said from the moment they said it. */
async function person(key: string): Promise<string> {
  const file = path.join(home, key);
  if (existsSync(file)) {
    note(`remembered ${key}`);
    return readFileSync(file, "utf8");
  }
  note(`asked ${key}`);
  await delay(Math.random() * 20);
  const value = crypto.randomUUID();
  writeFileSync(`${file}.new`, value);
  renameSync(`${file}.new`, file);
  note(`answered ${key}`);
  return value;
}

const tasks = await new TaskClient(new Client({ name: "host", version: "1" }), {
  log: fileLog(log),
  input: { elicit: async (_, { key }) => ({ action: "accept", content: { value: await person(key) } }) },
}).connect(url);

async function finish(run: TaskRun): Promise<void> {
  try {
    const { content } = await run.result();
    note(`result ${(content[0] as { text: string }).text}`);
  } catch (error) {
    note(`error ${(error as { code: string }).code}`);
  }
}

process.stdout.write("ready\n");
process.stdin.once("data", async () => {
  if (mode === "call") await finish(await tasks.start({ name: "ask_twice", arguments: { path: journal } }));
  else await Promise.all((await tasks.resumeAll()).map(finish));
  await tasks.close();
  process.stdout.write("done\n");
  process.exit();
});

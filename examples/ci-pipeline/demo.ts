/** Runs the pipeline, kills its server half-way, starts it again, and checks that nothing was lost or done twice. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient } from "mcp-tasks/client";
import { createScreen } from "./screen.ts";

/** The stage in whose midst the server dies. */
const fatalStage = "lint";
const serverFile = fileURLToPath(new URL("server.ts", import.meta.url));

const data = await mkdtemp(path.join(tmpdir(), "ci-pipeline-"));
const screen = createScreen(process.stdout);
/** How often each stage ran, over both lives of the server. */
const runs = new Map<string, number>();
let server: ChildProcess | undefined;

/** Starts the server and resolves with its URL. It tells on standard output which stages it runs. */
async function startServer(port: string): Promise<string> {
  const args = ["--port", port, "--data", data, ...process.argv.slice(2)];
  const child = spawn(process.execPath, [...process.execArgv, serverFile, ...args], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  server = child;
  const url = Promise.withResolvers<string>();
  child.once("exit", () => url.reject(new Error("The server did not start")));
  createInterface(child.stdout).on("line", (line) => {
    const [, stage] = /^running (.+)$/.exec(line) ?? [];
    if (stage !== undefined) ran(stage);
    const [, address] = /^Listening on (.+)$/.exec(line) ?? [];
    if (address !== undefined) url.resolve(address);
  });
  return url.promise;
}

function ran(stage: string): void {
  runs.set(stage, (runs.get(stage) ?? 0) + 1);
  if (stage === fatalStage && runs.get(stage) === 1) setTimeout(() => server?.kill("SIGKILL"), 300);
}

async function demo(): Promise<void> {
  const url = await startServer("0");
  screen.say(`The server runs at ${url}`);
  const crashed = once(server!, "exit").then(async () => {
    screen.say(`  ✗ the server was killed while it ran ${fatalStage}; starting it again`);
    await startServer(new URL(url).port);
  });

  const client = new TaskClient(new Client({ name: "ci-demo", version: "1.0.0" }), {
    input: {
      elicit({ message }) {
        screen.say(`  ? ${message}  yes`);
        return { action: "accept", content: {} };
      },
    },
  });
  await client.connect(url);
  const result = await client.callTool(
    { name: "run_pipeline" },
    { onUpdate: ({ statusMessage }) => statusMessage && screen.stage(statusMessage), deadline: "55s" },
  );
  await client.close();
  screen.close();

  assert.notEqual(result.isError, true, JSON.stringify(result.content));
  await crashed;
  const { file, size, sha256, durations } = result.structuredContent as {
    file: string;
    size: number;
    sha256: string;
    durations: Record<string, number>;
  };
  const bytes = await readFile(file);
  assert.equal(bytes.length, size, "the tarball has another size than the result says");
  assert.equal(createHash("sha256").update(bytes).digest("hex"), sha256, "the tarball's checksum is wrong");
  for (const stage of Object.keys(durations))
    assert.equal(runs.get(stage), stage === fatalStage ? 2 : 1, `${stage} ran ${runs.get(stage)} times`);
  const counts = [...runs].map(([stage, count]) => `${stage} ${count}×`).join(", ");
  console.log(`Published ${file}\n  ${size} bytes, sha256 ${sha256}\n  stages that ran: ${counts}`);
}

process.once("SIGINT", () => process.exit(130));
process.once("exit", () => server?.kill("SIGKILL"));
try {
  await demo();
} catch (error) {
  console.error(`The demo failed: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  screen.close();
  if (server?.exitCode === null && server.kill("SIGTERM")) await once(server, "exit");
  await rm(data, { recursive: true, force: true });
}

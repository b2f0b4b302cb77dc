/** Runs the pipeline, kills its server half-way, starts it again, and checks that nothing was lost or done twice. */
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client } from "@modelcontextprotocol/client";
import { TaskClient } from "mcp-tasks/client";
import type { Released } from "./pipeline.ts";
import { createScreen } from "./screen.ts";
import { startServer, type ServerProcess } from "./start.ts";

/** The stage in whose midst the server dies. */
const fatalStage = "lint";

const data = mkdtempSync(path.join(tmpdir(), "ci-pipeline-"));
process.once("exit", () => rmSync(data, { recursive: true, force: true }));
const args = ["--data", data, ...process.argv.slice(2)];
const screen = createScreen(process.stdout);
/** How often each stage ran, over both lives of the server. */
const runs = new Map<string, number>();
let server: ServerProcess;
let restarted: Promise<void> | undefined;

/** Called by the server's word that it runs a stage. */
function ran(stage: string): void {
  runs.set(stage, (runs.get(stage) ?? 0) + 1);
  if (stage === fatalStage) restarted ??= crash();
}

async function crash(): Promise<void> {
  await pause(300);
  await server.stop("SIGKILL");
  screen.say(`  ✗ the server was killed while it ran ${fatalStage}; starting it again`);
  server = await startServer(["--port", new URL(server.url).port, ...args], ran);
}

async function demo(): Promise<Released> {
  const client = new TaskClient(new Client({ name: "ci-demo", version: "1.0.0" }), {
    input: {
      elicit({ message }) {
        screen.say(`  ? ${message}  yes`);
        return { action: "accept", content: {} };
      },
    },
  });
  await client.connect(server.url);
  const result = await client.callTool(
    { name: "run_pipeline" },
    { onUpdate: ({ statusMessage }) => statusMessage && screen.stage(statusMessage), deadline: "3m" },
  );
  await client.close();
  if (result.isError === true) throw new Error(result.content.map((part) => ("text" in part ? part.text : "")).join());
  return result.structuredContent as Released;
}

async function check({ file, size, sha256, durations }: Released): Promise<void> {
  assert.ok(restarted, "the server was never killed");
  await restarted;
  const bytes = await readFile(file);
  assert.equal(bytes.length, size, "the tarball has another size than the result says");
  assert.equal(createHash("sha256").update(bytes).digest("hex"), sha256, "the tarball's checksum is wrong");
  for (const stage of Object.keys(durations))
    assert.equal(runs.get(stage), stage === fatalStage ? 2 : 1, `${stage} ran ${runs.get(stage)} times`);
}

for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => process.exit(1));
server = await startServer(["--port", "0", ...args], ran);
try {
  screen.say(`The server runs at ${server.url}`);
  const released = await demo();
  screen.close("✓");
  await check(released);
  console.log(`Published ${released.file}\n  ${released.size} bytes, sha256 ${released.sha256}`);
  console.log(`Stages that ran: ${[...runs].map(([stage, count]) => `${stage} ${count}×`).join(", ")}`);
} catch (error) {
  screen.close("✗");
  console.error(`The demo failed: ${(error as Error).message}`);
  process.exitCode = 1;
} finally {
  await server.stop("SIGTERM");
}

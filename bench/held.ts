import { execFile, spawn, type ChildProcess, type StdioOptions } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { request, type ClientRequest, type IncomingMessage } from "node:http";
import { stripTypeScriptTypes } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { promisify } from "node:util";
import { capabilitiesKey, tasksProtocol } from "../src/protocol/capabilities.ts";
import { below, median, quantile, round, type Benchmark } from "./benchmark.ts";
import type { HeldState } from "./held-server.ts";
import { exchange, latencies, type Target } from "./load.ts";
import { inText, sized } from "./request.ts";

const calls = 2_000;
/** Clients come one after the other, not in one instant: so many a second. */
const arrivals = 400;
const rounds = 8;
const roundMs = 1_000;
const legacyProtocol = "2025-11-25";
const root = join(import.meta.dirname, "..");

/** How Node is started. */
interface Setting {
  readonly name: string;
  readonly flags: readonly string[];
}

/** By default V8 takes up to 128 MB for what is young, and collects what is old when it has doubled. */
const usual: Setting = { name: "as it is", flags: [] };
/**
 * As where memory is short. V8 learns from calls that are held that what they are made of lives long, and would make the
 * same for polls among what is old, where it stays as garbage.
 */
const small: Setting = {
  name: "small",
  flags: ["--max-semi-space-size=4", "--max-old-space-size=96", "--no-allocation-site-pretenuring"],
};

/** Calls of clients without tasks, held in one process and told of progress: what they cost it, and who polls beside. */
export const held: Benchmark = async () => {
  await promisify(execFile)("npm", ["run", "-s", "build"], { cwd: root });
  const found = [];
  for (const setting of [usual, small])
    for (const protocol of [tasksProtocol, legacyProtocol]) found.push(await measure(protocol, setting));
  return { rows: found.flatMap(({ rows }) => rows), aims: found.flatMap(({ aims }) => aims) };
};

/** Two servers, one of which holds calls. Polls go to both in turn: the machine is not the same for long. */
async function measure(protocol: string, setting: Setting) {
  const folder = await mkdtemp(join(tmpdir(), "mcp-tasks-bench-"));
  const servers: ChildProcess[] = [];
  const held: Held[] = [];
  try {
    const [loaded, calm] = await Promise.all(
      ["loaded", "calm"].map((name) => start(join(folder, name), setting, servers)),
    );
    if (loaded === undefined || calm === undefined) throw new Error("no servers");
    const before = await state(loaded.child);
    const session = protocol === legacyProtocol ? await introduced(loaded.url) : null;
    const opened = performance.now();
    for (let n = 0; n < calls; n++) {
      held.push(call(loaded.url, protocol, session));
      // The kernel resets what it can't queue: a server that comes late, on a machine with others, is waited for.
      while (n % 50 === 0 && (await state(loaded.child)).tasks < n - 100) await pause(10);
      await pause(Math.max(0, opened + ((n + 1) * 1_000) / arrivals - performance.now()));
    }
    await Promise.all(held.map(({ reported }) => reported));

    const targets = { loaded: await pollOf(loaded.url), calm: await pollOf(calm.url) };
    const samples = { loaded: [] as number[][], calm: [] as number[][] };
    const told = reports(held);
    const began = performance.now();
    for (let n = 0; n <= rounds; n++) {
      for (const name of n % 2 === 0 ? (["loaded", "calm"] as const) : (["calm", "loaded"] as const)) {
        const answers = await latencies(targets[name], roundMs);
        // The first round warms up.
        if (n > 0) samples[name].push(answers);
      }
    }
    const perSecond = ((reports(held) - told) * 1_000) / (performance.now() - began);
    const after = await state(loaded.child);
    const ratios = samples.loaded.map((answers, n) => quantile(answers, 0.99) / quantile(samples.calm[n] ?? [], 0.99));
    const polls = (name: "loaded" | "calm", held: number, { rss }: HeldState) => ({
      ...{ node: setting.name, protocol, held, "resident MB": round(rss / 1e6, 0) },
      "progress/s": name === "loaded" ? round(perSecond, 0) : 0,
      "tasks/get p50 ms": round(median(samples[name].map(median)), 3),
      "p99 ms, median of rounds": round(median(samples[name].map((answers) => quantile(answers, 0.99))), 3),
    });
    return {
      rows: [polls("calm", 0, before), polls("loaded", calls, after)],
      aims: [
        ...(setting === small
          ? [below(`${protocol}, ${setting.name}: resident memory with ${calls} held calls, MB`, 200, after.rss / 1e6)]
          : []),
        below(`${protocol}, ${setting.name}: tasks/get p99 beside them, of that without`, 1.5, median(ratios)),
      ],
    };
  } finally {
    for (const { sent } of held) sent.destroy();
    for (const child of servers) {
      child.disconnect();
      await once(child, "exit");
    }
    await rm(folder, { recursive: true });
  }
}

/** The package as its users have it: built, and by its name. */
async function start(file: string, { flags }: Setting, servers: ChildProcess[]) {
  const code = stripTypeScriptTypes(await readFile(join(import.meta.dirname, "held-server.ts"), "utf8"));
  const args = [...flags, "--input-type=module", "--eval", code, `${file}.db`];
  const stdio: StdioOptions = ["ignore", "inherit", "inherit", "ipc"];
  const child = spawn(process.execPath, args, { cwd: root, stdio });
  servers.push(child);
  const [{ url }] = (await once(child, "message")) as [{ url: string }];
  return { child, url };
}

async function state(child: ChildProcess): Promise<HeldState> {
  child.send({});
  return ((await once(child, "message")) as [HeldState])[0];
}

/** The same question, again and again, about a task that a client with tasks has started. */
async function pollOf(url: string): Promise<Target> {
  const params = { name: "work", arguments: {} };
  const asked = inText({ url, method: "tools/call", name: "work", params });
  const { body } = await exchange(asked.port, asked.request);
  const { taskId } = (JSON.parse(body) as { result: { taskId: string } }).result;
  const poll = inText({ url, method: "tasks/get", name: taskId, params: { taskId } });
  // The first answer is the SDK's.
  await exchange(poll.port, poll.request);
  return await sized(poll);
}

/** The session of a client of the older protocol. */
async function introduced(url: string): Promise<string | null> {
  const clientInfo = { name: "bench", version: "1.0.0" };
  const params = { protocolVersion: legacyProtocol, capabilities: { elicitation: {} }, clientInfo };
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 0, method: "initialize", params }),
  });
  await response.text();
  return response.headers.get("mcp-session-id");
}

interface Held {
  readonly sent: ClientRequest;
  /** When the first report of progress has come. */
  readonly reported: Promise<void>;
  readonly reports: () => number;
}

const reports = (held: readonly Held[]) => held.reduce((sum, { reports }) => sum + reports(), 0);

let lastToken = 0;

function call(url: string, protocol: string, session: string | null): Held {
  const progressToken = ++lastToken;
  const modern = {
    "io.modelcontextprotocol/protocolVersion": protocol,
    "io.modelcontextprotocol/clientInfo": { name: "bench", version: "1.0.0" },
    [capabilitiesKey]: { elicitation: {} },
  };
  const params = { name: "work", arguments: {}, _meta: { progressToken, ...(session === null ? modern : {}) } };
  const sent = request(url, {
    method: "POST",
    agent: false,
    headers: {
      ...{ "content-type": "application/json", accept: "application/json, text/event-stream" },
      "mcp-protocol-version": protocol,
      ...(session === null ? { "mcp-method": "tools/call", "mcp-name": "work" } : { "mcp-session-id": session }),
    },
  });
  let count = 0;
  const { promise: reported, resolve, reject } = Promise.withResolvers<void>();
  // Whoever waits hears of it; at the end, nobody does.
  reported.catch(() => {});
  sent.on("error", reject);
  sent.on("response", (response: IncomingMessage) => {
    response.on("error", () => {});
    response.setEncoding("utf8").on("data", (text: string) => {
      count += text.match(/"notifications\/progress"/g)?.length ?? 0;
      if (count > 0) resolve();
    });
    response.on("end", () => reject(new Error("a held call was answered")));
  });
  sent.end(JSON.stringify({ jsonrpc: "2.0", id: progressToken, method: "tools/call", params }));
  return { sent, reported, reports: () => count };
}

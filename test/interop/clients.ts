import { execFile } from "node:child_process";
import path from "node:path";
import { setTimeout as pause } from "node:timers/promises";
import { Client, StreamableHTTPClientTransport, type Transport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { createApplicationInputHandler, createTaskSessionFromClient } from "@modelcontextprotocol/ext-tasks/client";
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport as OldStdio } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport as OldHttp } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { CallToolResultSchema, ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";
import { TaskClient } from "mcp-tasks/client";
import { sqlite } from "mcp-tasks/sqlite";
import { withoutTasks, wire } from "../wire/client.ts";
import { stdioWire } from "../wire/stdio.ts";
import { root } from "./channels.ts";
import { filledIn } from "./forms.ts";
import { rawDispatch } from "./raw-dispatch.ts";

/**
 * Where a server is: at a URL, or a program to start with these words. What belongs to it is in this folder: its tasks,
 * in `tasks.db`, and whatever a client keeps.
 */
export type Place = { readonly folder: string } & ({ readonly url: string } | { readonly args: readonly string[] });

/** What a tool answered. */
type Result = Readonly<Record<string, unknown>>;
type Args = Readonly<Record<string, string | number>>;
type CallTool = (name: string, args: Args) => Promise<Result>;

/** A client as somebody uses it who wants one tool's result, and says "Ada" to what they are asked. */
export type UseOf = (place: Place, tool: string, args: Args) => Promise<Result>;

const info = { name: "any-client", version: "1.0.0" };
const capabilities = { elicitation: { form: {} } };
const withTasks = { ...capabilities, extensions: { "io.modelcontextprotocol/tasks": {} } };
const modern = { mode: { pin: "2026-07-28" } } as const;
const legacy = { mode: "legacy" } as const;

function program(args: readonly string[]) {
  return { command: process.execPath, args: [...args], cwd: root, stderr: "inherit" as const };
}

function transportTo(place: Place): Transport {
  return "url" in place
    ? new StreamableHTTPClientTransport(new URL(place.url))
    : new StdioClientTransport(program(place.args));
}

/** Goes on with a handle as a model would that has the tools named in it. */
async function asModel(call: CallTool, first: Result): Promise<Result> {
  let result = first;
  for (;;) {
    const { taskId, questions = [] } = (result.structuredContent ?? {}) as Handle;
    if (taskId === undefined) return result;
    const [asked] = questions;
    if (asked === undefined) result = await call("task_wait", { taskId });
    else result = await call("task_respond", { taskId, key: asked.key, answer: filledIn(asked).content } as never);
  }
}

interface Handle {
  readonly taskId?: string;
  readonly questions?: readonly { readonly key: string; readonly requestedSchema?: object }[];
}

function current(versionNegotiation: typeof modern | typeof legacy): UseOf {
  return async (place, name, args) => {
    const client = new Client(info, { capabilities, versionNegotiation });
    client.setRequestHandler("elicitation/create", ({ params }) => filledIn(params));
    await client.connect(transportTo(place));
    const call: CallTool = (name, args) => client.callTool({ name, arguments: args });
    return await asModel(call, await call(name, args)).finally(() => client.close());
  };
}

/** The stock client declares the extension, and the official client of the extension follows the task. */
const declaring: UseOf = async (place, name, args) => {
  const transport = transportTo(place);
  const client = new Client(info, { capabilities: withTasks, versionNegotiation: modern });
  await client.connect(transport);
  const session = createTaskSessionFromClient<null>(client, {
    endpointId: "any",
    rawDispatch: rawDispatch(transport),
    v2RequestFraming: { protocolVersion: "2026-07-28", clientInfo: info, clientCapabilities: withTasks },
    onInputRequest: createApplicationInputHandler<null>({
      elicitation: ({ params }) => filledIn(params),
      sampling: () => Promise.reject(new Error("people only")),
      roots: () => Promise.reject(new Error("people only")),
    }),
  });
  const outcome = await (await session.callTool(name, args, { applicationContext: null })).result();
  await session.close();
  await client.close();
  if (outcome.status !== "completed") throw new Error(`the task ended as ${outcome.status}`);
  return outcome.result;
};

function old(asTask: boolean): UseOf {
  return async (place, name, args) => {
    const client = new OldClient(info, { capabilities });
    client.setRequestHandler(ElicitRequestSchema, ({ params }) => filledIn(params));
    await client.connect("url" in place ? new OldHttp(new URL(place.url)) : new OldStdio(program(place.args)));
    await client.listTools();
    const call: CallTool = async (name, args) => await client.callTool({ name, arguments: args });
    try {
      if (!asTask) return await asModel(call, await call(name, args));
      const stream = client.experimental.tasks.callToolStream({ name, arguments: args }, CallToolResultSchema);
      for await (const message of stream) {
        if (message.type === "error") throw message.error;
        if (message.type === "result") return message.result;
      }
      throw new Error("the stream ended without a result");
    } finally {
      await client.close();
    }
  };
}

function ours(versionNegotiation: typeof modern | typeof legacy): UseOf {
  return async (place, name, args) => {
    const tasks = await new TaskClient(new Client(info), {
      ...(versionNegotiation === legacy ? { versionNegotiation } : {}),
      input: { elicit: (form) => filledIn(form) },
    }).connect(transportTo(place));
    return await tasks.callTool({ name, arguments: args }).finally(() => tasks.close());
  };
}

/** Requests as the protocol has them: rounds, each with the state of the one before. */
const raw: UseOf = async (place, name, args) => {
  const options = { capabilities: withoutTasks };
  const stdio = "args" in place ? stdioWire(place.args, options) : undefined;
  const client = stdio ?? wire((place as { url: string }).url, options);
  const call: CallTool = async (name, args) => {
    let next: object = {};
    for (;;) {
      const { body } = await client.request("tools/call", { name, arguments: args, ...next });
      if (body.result === undefined) throw new Error(JSON.stringify(body.error));
      const { resultType, inputRequests = {}, requestState } = body.result;
      if (resultType !== "input_required") return { ...body.result };
      const answers = Object.entries(inputRequests).map(([key, { params }]) => [key, filledIn(params)] as const);
      next = { requestState, ...(answers.length === 0 ? {} : { inputResponses: Object.fromEntries(answers) }) };
    }
  };
  const result = await asModel(call, await call(name, args));
  await stdio?.close();
  return result;
};

interface Ran {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(words: readonly string[], { folder }: Place): Promise<Ran> {
  const env = { PATH: process.env.PATH, HOME: folder, XDG_STATE_HOME: folder };
  return new Promise((resolve) => {
    const child = execFile(process.execPath, words, { cwd: root, env }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code ?? -1), stdout, stderr });
    });
    child.stdin?.end();
  });
}

const launcher = path.join(root, "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js");

/** The Inspector can't be asked. Where it gets a handle, its next calls are those that a model would make. */
function inspector(era: "modern" | "legacy"): UseOf {
  return async (place, name, args) => {
    const target =
      "url" in place ? [place.url, "--transport", "http"] : [process.execPath, ...place.args, "--transport", "stdio"];
    const call: CallTool = async (name, args) => {
      const how = ["--method", "tools/call", "--tool-name", name, "--tool-args-json", JSON.stringify(args)];
      const ran = await run([launcher, "--cli", ...target, "--protocol-era", era, ...how], place);
      if (ran.code !== 0) throw new Error(`The Inspector ended with ${ran.code}: ${ran.stderr}`);
      return JSON.parse(ran.stdout) as Result;
    };
    // In the modern era it follows the task to its end, and somebody else has to answer.
    const [result] = await Promise.all([call(name, args), ...(era === "modern" ? [operator(place)] : [])]);
    return await asModel(call, result);
  };
}

/** Answers the first question that there is, at the server's own database. */
async function operator(place: Place): Promise<void> {
  const db = path.join(place.folder, "tasks.db");
  await using store = sqlite(db);
  for (;;) {
    const [task] = await store.list({ limit: 1 });
    if (task?.status !== "input_required") await pause(200);
    else return void (await mcpTasks(place, "answer", task.id, "--set", "value=Ada", "--db", db));
  }
}

async function mcpTasks(place: Place, ...words: string[]): Promise<Result> {
  const ran = await run(
    ["--conditions=mcp-tasks-dev", "src/cli/main.ts", words[0] ?? "", "--json", ...words.slice(1)],
    place,
  );
  // A call that waits for an answer ends with 6: there is no terminal to ask on.
  if (ran.code !== (words[0] === "call" ? 6 : 0)) throw new Error(`${words[0]} ended with ${ran.code}: ${ran.stderr}`);
  return JSON.parse(ran.stdout) as Result;
}

/** `mcp-tasks call` without a terminal, then `answer` and `result`. */
const commandLine: UseOf = async (place, name, args) => {
  const target = "url" in place ? ["--url", place.url] : ["--stdio", process.execPath, ...place.args];
  const { taskId } = await mcpTasks(place, "call", name, "--args-json", JSON.stringify(args), ...target);
  await mcpTasks(place, "answer", String(taskId), "--set", "value=Ada", ...target);
  return (await mcpTasks(place, "result", String(taskId), ...target)).result as Result;
};

/** The clients of other people, in each of their ways, and our own. */
export const clients: Readonly<Record<string, UseOf>> = {
  "the SDK's client, 2026-07-28 without the extension": current(modern),
  "the SDK's client that declares the extension, with the official Tasks client": declaring,
  "the SDK's client in 2025-11-25": current(legacy),
  "the SDK's client of the v1 line": old(false),
  "the SDK's client of the v1 line, by a task": old(true),
  "our client": ours(modern),
  "our client in 2025-11-25": ours(legacy),
  "plain requests of 2026-07-28": raw,
  "the Inspector's cli in the modern era": inspector("modern"),
  "the Inspector's cli in the legacy era": inspector("legacy"),
  "the command line": commandLine,
};

import type { AuthInfo, JSONRPCMessage, McpRequestContext, McpServer } from "@modelcontextprotocol/server";
import { TaskError, type RpcError } from "../errors.ts";
import type { TaskTool } from "../tool.ts";
import { askAll, createAsker } from "./asker.ts";
import type { OpenCalls } from "./calls.ts";
import type { HostInfo, Limits } from "./hosts.ts";
import { incomingOf, type Incoming } from "./incoming.ts";
import {
  cancelLegacyTask,
  getLegacyTask,
  getResult,
  listTasks,
  type ResultParts,
  type Waiting,
} from "./legacy-methods.ts";
import { setMethod, type Params } from "./methods.ts";
import { helloOfOlder, isOlder, refusalOfOlder, toolsOfOlder } from "./older.ts";
import { progressTo } from "./progress.ts";
import type { Terms } from "./reply.ts";
import { introducedBy, nobody, readSession, sessionHeader, type Session } from "./session.ts";
import type { Amend, Answer, Door, Exchanges } from "./swap.ts";
import { leastKeptMs } from "./waiting.ts";

/** What all servers of older protocols in a process share. */
export interface LegacyParts extends ResultParts {
  readonly owner: (auth: AuthInfo | undefined) => string;
  readonly onError: (error: TaskError) => void;
  readonly calls: OpenCalls;
  readonly tools: readonly TaskTool[];
  readonly limits: (host: HostInfo | undefined) => Limits;
  /** Whatever waits for a task ends with this. */
  readonly stop: AbortSignal;
  /** Stopping waits for these to be answered. */
  track<T>(answer: Promise<T>): Promise<T>;
  /** The request that these came with is acknowledged when they are settled. */
  keeping(request: Request, kept: Promise<void>): void;
}

/** One server of an older protocol. */
export interface LegacySide {
  readonly door: Door;
  /** Takes out what the client's protocol doesn't know. */
  readonly amend: Amend;
  /** Throws for a parameter `task` that makes no sense. What it returns keeps nothing of the server. */
  terms(tool: TaskTool, incoming: Incoming): Terms;
  addMethods(exchanges: Exchanges): void;
}

/** Speaks protocol 2025-11-25, whose core has tasks, and the ones before it, which have none. */
export function legacySide(parts: LegacyParts, mcp: McpServer, context: McpRequestContext): LegacySide {
  const { requestInfo } = context;
  const session = requestInfo?.headers.get(sessionHeader) ?? null;
  const names = new Set(parts.tools.map(({ name }) => name));

  /** Over HTTP each request has a server of its own: who its client is, the id of the session says. */
  function introduced(): Session {
    const known = session === null ? null : readSession(session);
    if (known !== null) return known;
    if (requestInfo !== undefined) return nobody(requestInfo.headers.get("mcp-protocol-version"));
    const { server } = mcp;
    return introducedBy({
      capabilities: server.getClientCapabilities(),
      clientInfo: server.getClientVersion(),
      protocolVersion: server.getNegotiatedProtocolVersion(),
    });
  }

  return {
    door(message, auth) {
      const kept = parts.pushes.take(message, auth);
      if (kept !== undefined) {
        void parts.track(kept);
        // Over stdio nobody can be told that it failed, but the question is asked again.
        if (requestInfo !== undefined) parts.keeping(requestInfo, kept);
        return "taken";
      }
      if (session !== null) parts.calls.hear({ session, owner: parts.owner(auth) }, message);
      return introduced().older ? refusalOfOlder(message) : refusal(message, names);
    },

    amend(method, _params, result) {
      if (method === "initialize") return isOlder(result.protocolVersion) ? helloOfOlder(result) : result;
      return method === "tools/list" && introduced().older ? toolsOfOlder(result) : result;
    },

    terms: (tool, incoming) => legacyTerms(parts, { session, ...introduced() }, tool, incoming),

    addMethods(exchanges) {
      const { engine } = parts;
      // Whose tasks they are is unknown without: nobody may see them all (2025-11-25, "Task Isolation").
      const lists = parts.owner(context.authInfo) !== "";
      const requests = { tools: { call: {} } };
      mcp.server.registerCapabilities({ tasks: { ...(lists ? { list: {} } : {}), cancel: {}, requests } });
      const methods: Record<string, (request: Waiting, params: Params) => Promise<Answer>> = {
        "tasks/get": async (request, params) => ({ result: await getLegacyTask(engine, request, params) }),
        "tasks/result": (request, params) => getResult(parts, request, params),
        "tasks/cancel": async (request, params) => ({ result: await cancelLegacyTask(engine, request, params) }),
      };
      if (lists)
        methods["tasks/list"] = async (request, params) => ({ result: await listTasks(engine, request, params) });
      for (const [name, method] of Object.entries(methods))
        setMethod(mcp, name, parts.onError, async (ctx) => {
          const incoming = incomingOf(exchanges, ctx);
          const { leave, ...request } = open(parts, { session, ...introduced() }, incoming);
          const answer = method(request, incoming.params);
          exchanges.answer(incoming.id, await parts.track(answer).finally(leave));
          return {};
        });
    },
  };
}

/** Who sends a request, and in which session, if any is named. */
interface Sender extends Session {
  readonly session: string | null;
}

/** A request that may wait, until it is left. */
function open(
  { owner, calls, stop }: LegacyParts,
  { session, client }: Sender,
  incoming: Incoming,
): Waiting & { leave(): void } {
  const { id, params, auth, send, signal } = incoming;
  const who = owner(auth);
  const call = session === null ? null : calls.enter({ session, owner: who }, id, signal);
  return {
    owner: who,
    client,
    send,
    progress: progressTo(send, params, typeof params.taskId === "string" ? params.taskId : null),
    signal: call?.signal ?? signal,
    stop,
    leave: () => call?.leave(),
  };
}

/** The terms of a call in an older protocol. They keep nothing of the server: it may be gone while the call is held. */
function legacyTerms(parts: LegacyParts, sender: Sender, tool: TaskTool, incoming: Incoming): Terms {
  const { task } = incoming.params as { readonly task?: { readonly ttl?: number | null } };
  const wish = sender.older ? undefined : task;
  const keepMs = wish === undefined ? tool.keepMs : keepFor(tool, wish.ttl ?? null);
  const { owner, client, send, signal, stop, leave } = open(parts, sender, incoming);
  return {
    owner,
    client: { ...client, tasks: wish !== undefined },
    tool: keepMs === tool.keepMs ? tool : { ...tool, keepMs },
    generation: wish === undefined ? "legacy" : "augmented",
    limits: parts.limits(sender.host),
    push: {
      async ask(requests) {
        const release = parts.streams.take(owner);
        return askAll(parts.pushes, requests, { send, owner, signal, stop }).finally(release);
      },
      asker: () => createAsker(parts.pushes, { send, client, known: false }),
    },
    signal,
    leave,
  };
}

/** What the SDK would run in line, though it was called as a task (2025-11-25, "Tool-Level Negotiation"). */
function refusal(message: JSONRPCMessage, names: ReadonlySet<string>): RpcError | undefined {
  if (!("method" in message) || message.method !== "tools/call") return undefined;
  const { name, task } = message.params ?? {};
  return task === undefined || names.has(String(name)) ? undefined : new TaskError("TASK_UNSUPPORTED").toRpc();
}

/** The wish says how long the task is kept once it has ended: until then it stays for whoever waits. */
function keepFor({ keepMs }: TaskTool, ttl: number | null): number {
  if (ttl === null) return keepMs;
  if (!(ttl >= 0)) throw new TaskError("INVALID_PARAMS", { detail: "task.ttl is a number of milliseconds." });
  return Math.min(Math.max(Math.ceil(ttl), leastKeptMs), keepMs);
}

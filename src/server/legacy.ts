import type { JSONRPCMessage, McpRequestContext, McpServer, ServerContext } from "@modelcontextprotocol/server";
import { TaskError, type RpcError } from "../errors.ts";
import { readCapabilities } from "../protocol/capabilities.ts";
import type { TaskTool } from "../tool.ts";
import { askAll, createAsker } from "./asker.ts";
import type { OpenCalls } from "./calls.ts";
import type { HostInfo, Limits } from "./hosts.ts";
import {
  cancelLegacyTask,
  getLegacyTask,
  getResult,
  listTasks,
  type ResultParts,
  type Waiting,
} from "./legacy-methods.ts";
import { setMethod, type Params } from "./methods.ts";
import { progressTo } from "./progress.ts";
import { leastKeptMs, type Terms } from "./reply.ts";
import { readSession, sessionHeader, type Session } from "./session.ts";
import type { Answer, Door, Exchanges } from "./swap.ts";

/** What all servers of older protocols in a process share. */
export interface LegacyParts extends ResultParts {
  readonly calls: OpenCalls;
  readonly tools: readonly TaskTool[];
  readonly limits: (host: HostInfo | undefined) => Limits;
  /** Whatever waits for a task ends with this. */
  readonly stop: AbortSignal;
  /** Stopping waits for these to be answered. */
  track<T>(answer: Promise<T>): Promise<T>;
}

/** One server of an older protocol. */
export interface LegacySide {
  readonly door: Door;
  /** Throws for a parameter `task` that makes no sense. */
  terms(exchanges: Exchanges, tool: TaskTool, ctx: ServerContext): Terms;
  addMethods(exchanges: Exchanges): void;
}

/** Speaks protocol 2025-11-25, whose core has tasks, and the ones before it, which have none. */
export function legacySide(parts: LegacyParts, mcp: McpServer, context: McpRequestContext): LegacySide {
  const session = context.requestInfo?.headers.get(sessionHeader) ?? null;
  const names = new Set(parts.tools.map(({ name }) => name));

  /** Over HTTP each request has a server of its own: who its client is, the id of the session says. */
  function introduced(): Session {
    const client = { ...readCapabilities(mcp.server.getClientCapabilities()), tasks: false };
    return (session === null ? null : readSession(session)) ?? { client, host: mcp.server.getClientVersion() };
  }

  function open(exchanges: Exchanges, ctx: ServerContext): Waiting & { leave(): void } {
    const { id, signal } = ctx.mcpReq;
    const owner = parts.owner(ctx.http?.authInfo);
    const call = session === null ? null : parts.calls.enter({ session, owner }, id);
    return {
      owner,
      client: introduced().client,
      send: (message) => exchanges.send(message, id),
      progress: progressTo(ctx),
      signal: call === null ? signal : AbortSignal.any([signal, call.signal]),
      leave: () => call?.leave(),
    };
  }

  return {
    door(message, auth) {
      if (parts.pushes.take(message, auth)) return "taken";
      if (session !== null) parts.calls.hear({ session, owner: parts.owner(auth) }, message);
      return refusal(message, names);
    },

    terms(exchanges, tool, ctx) {
      const { task: wish } = exchanges.params(ctx.mcpReq.id) as { readonly task?: { readonly ttl?: number | null } };
      const keepMs = wish === undefined ? tool.keepMs : keepFor(tool, wish.ttl ?? null);
      const { owner, client, send, signal, leave } = open(exchanges, ctx);
      return {
        owner,
        client: { ...client, tasks: wish !== undefined },
        tool: keepMs === tool.keepMs ? tool : { ...tool, keepMs },
        generation: wish === undefined ? "legacy" : "augmented",
        limits: parts.limits(introduced().host),
        push: {
          ask: (requests) =>
            askAll(parts.pushes, requests, { send, owner, signal: AbortSignal.any([signal, parts.stop]) }),
          asker: () => createAsker(parts, parts.pushes, { send, client, known: false }),
        },
        signal,
        leave,
      };
    },

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
          const request = open(exchanges, ctx);
          const signal = AbortSignal.any([request.signal, parts.stop]);
          const answer = method({ ...request, signal }, exchanges.params(ctx.mcpReq.id));
          const given = await parts.track(answer).finally(() => request.leave());
          exchanges.answer(ctx.mcpReq.id, given);
          return {};
        });
    },
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

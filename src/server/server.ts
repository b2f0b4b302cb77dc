import { setImmediate } from "node:timers/promises";
import {
  CLIENT_INFO_META_KEY,
  inputRequired,
  McpServer,
  type AuthInfo,
  type CallToolResult,
  type InputRequiredResult,
  type McpRequestContext,
  type McpServerFactory,
  type ServerContext,
} from "@modelcontextprotocol/server";
import type { Blobs } from "../blobs.ts";
import type { Clock } from "../clock.ts";
import type { Engine } from "../engine/engine.ts";
import { TaskError } from "../errors.ts";
import { capabilitiesKey, readCapabilities, tasksExtension } from "../protocol/capabilities.ts";
import { legacyTask } from "../protocol/legacy.ts";
import { readTrace } from "../protocol/trace.ts";
import { idempotencyExtension, idempotentTools, readIdempotencyKey } from "../protocol/idempotency.ts";
import { newTaskId } from "../protocol/ids.ts";
import type { TaskTool } from "../tool.ts";
import { questionsOf } from "./before.ts";
import { createOpenCalls } from "./calls.ts";
import { addCompanions, checkNames, withoutCompanions, type CompanionParts } from "./companions.ts";
import { readHost, type HostInfo, type Limits } from "./hosts.ts";
import { legacySide } from "./legacy.ts";
import type { StreamLimits } from "./listen.ts";
import { answerTo, cancelTask, getTask, setMethod, updateTask, type Caller, type Params } from "./methods.ts";
import { progressTo } from "./progress.ts";
import { createPushes } from "./push.ts";
import { reply, type Reply, type Terms } from "./reply.ts";
import { addResults } from "./results.ts";
import { convertedOnce } from "./schemas.ts";
import type { Seal } from "./seal.ts";
import { intercept, type Amend, type Answer, type Exchanges } from "./swap.ts";

/** What a server is made of. */
export interface ServerParts extends CompanionParts {
  readonly engine: Engine;
  readonly clock: Clock;
  /** Seals what clients carry from one round of a call to the next. */
  readonly seal: Seal;
  /** How long the calls of a client may wait. */
  readonly limits: (host: HostInfo | undefined) => Limits;
  /** Of several versions of a tool, the last one is offered. */
  readonly tools: readonly TaskTool[];
  /** Names who a request is from; `""` where nobody is authenticated. */
  readonly owner: (auth: AuthInfo | undefined) => string;
  /** What a handler may see of the caller's auth: JSON. */
  readonly keepAuth: (auth: AuthInfo | undefined) => unknown;
  /** Where results are that are too large for the store, or null. */
  readonly blobs: Blobs | null;
  readonly onError: (error: TaskError) => void;
}

/** A factory whose servers know tasks, and what it takes to stop serving without losing anything. */
export interface TaskServers {
  readonly factory: McpServerFactory;
  /** Resolves when the answers that came with a request are kept; rejects with what kept one from it. */
  kept(request: Request): Promise<unknown>;
  /** Makes a server for one call in protocol 2026-07-28: of our tools and methods, it has this tool only. */
  callee(tool: TaskTool, context: McpRequestContext): Promise<McpServer>;
  /** Answers the calls that wait for a task as if their time was up. Resolves when no call is left. */
  stop(): Promise<void>;
}

type Methods = Readonly<Record<string, (engine: Engine, caller: Caller, params: Params) => Promise<object>>>;

const methods: Methods = { "tasks/get": getTask, "tasks/update": updateTask, "tasks/cancel": cancelTask };

/** Stands in a tool's place until the real answer takes its own; as an error it needs no structured content. */
const placeholder: CallToolResult = { content: [], isError: true };

/**
 * Adds tasks to each server that a factory makes. `streams` bounds what waits without a task of its own. Throws `MISUSE`
 * for a question before a task that no form can ask.
 */
export function taskServers(parts: ServerParts, factory: McpServerFactory, streams: StreamLimits): TaskServers {
  const tools = [...new Map(parts.tools.map((tool) => [tool.name, tool])).values()];
  for (const tool of tools) questionsOf(tool);
  // What only runs as a task is never called without the extension.
  const hasCompanions = parts.companions && tools.some(({ support }) => support === "optional");
  if (hasCompanions) checkNames(tools);
  const calls = new Set<Promise<unknown>>();
  const stopping = new AbortController();
  const stop = stopping.signal;
  const connection = newTaskId();
  const keepings = new WeakMap<Request, Promise<void>[]>();
  const pushes = createPushes(parts);
  const legacyParts = { ...parts, tools, pushes, calls: createOpenCalls(), streams, stop, track, keeping };

  function track<T>(call: Promise<T>): Promise<T> {
    const settled = call.catch(() => {}).finally(() => calls.delete(settled));
    calls.add(settled);
    return call;
  }

  function keeping(request: Request, kept: Promise<void>): void {
    keepings.set(request, [...(keepings.get(request) ?? []), kept]);
  }

  /** The author's server, with us between it and its transport. */
  async function made(context: McpRequestContext) {
    const mcp = await factory(context);
    if (!(mcp instanceof McpServer)) throw new TaskError("MISUSE", { detail: "The factory makes an McpServer." });
    const old = context.era === "legacy" ? legacySide(legacyParts, mcp, context) : null;
    const amend: Amend = (method, params, given) => {
      const result = method === "tools/list" ? shownTo(isDeclared(params), hasCompanions, tools, given) : given;
      return old === null ? result : old.amend(method, params, result);
    };
    return { mcp, old, exchanges: intercept(mcp, amend, old?.door) };
  }

  function offer({ mcp, old, exchanges }: Awaited<ReturnType<typeof made>>, tool: TaskTool): void {
    const terms = (ctx: ServerContext) =>
      old === null ? currentTerms(parts, tool, ctx) : old.terms(exchanges, tool, ctx);
    const registered = addTool(mcp, tool, (ctx) =>
      track(answerCall({ parts, exchanges, terms, connection, stop }, ctx)),
    );
    if (old !== null) registered.execution = { taskSupport: tool.support };
  }

  /** Reports what a factory throws: the SDK keeps it to itself. */
  function telling<C extends readonly unknown[]>(make: (...args: C) => Promise<McpServer>) {
    return (...args: C) =>
      make(...args).catch((thrown: unknown) => {
        answerTo(thrown, parts.onError);
        throw thrown;
      });
  }

  return {
    factory: telling(async (context: McpRequestContext) => {
      const server = await made(context);
      const { mcp, old, exchanges } = server;
      if (old === null) addMethods(mcp, parts, exchanges);
      else old.addMethods(exchanges);
      if (parts.blobs !== null) addResults(mcp, parts, parts.blobs);
      for (const tool of tools) offer(server, tool);
      const host = { caller: (ctx: ServerContext) => callerOf(parts, ctx), stop, track };
      if (hasCompanions) addCompanions(mcp, parts, host);
      return mcp;
    }),
    callee: telling(async (tool: TaskTool, context: McpRequestContext) => {
      const server = await made(context);
      offer(server, tool);
      return server.mcp;
    }),
    kept: (request) => Promise.all(keepings.get(request) ?? []),
    async stop() {
      stopping.abort(new TaskError("SHUTTING_DOWN"));
      while (calls.size > 0) await Promise.all(calls);
      // The SDK still has to write the answers, which takes it no longer than a turn.
      await setImmediate();
    },
  };
}

/** The extension exists in protocol 2026-07-28 only: a server of an older one neither shows nor serves it. */
function addMethods(mcp: McpServer, parts: ServerParts, exchanges: Exchanges): void {
  const extensions = { [tasksExtension]: {}, [idempotencyExtension]: idempotentTools(parts.tools) };
  mcp.server.registerCapabilities({ extensions });
  for (const [name, method] of Object.entries(methods)) {
    setMethod(mcp, name, parts.onError, (ctx) =>
      method(parts.engine, callerOf(parts, ctx), exchanges.params(ctx.mcpReq.id)),
    );
  }
}

function callerOf(parts: ServerParts, ctx: ServerContext): Caller {
  return {
    owner: parts.owner(ctx.http?.authInfo),
    client: readCapabilities((ctx.mcpReq.envelope as Params | undefined)?.[capabilitiesKey]),
  };
}

/** Whether a request of 2026-07-28 declares the extension; one of an older protocol never does. */
function isDeclared(params: Params): boolean {
  return readCapabilities((params._meta as Params | undefined)?.[capabilitiesKey]).tasks;
}

/**
 * The tools that a client is shown: no companions of ours to one that declared the extension, and it needs none. To any other, a
 * tool that may be answered with a handle promises no form of its results: a handle would break the promise.
 */
function shownTo(hasTasks: boolean, hasCompanions: boolean, ours: readonly TaskTool[], result: Params): Params {
  // Without companions, tools by their names are the author's.
  if (hasTasks) return hasCompanions ? withoutCompanions(result) : result;
  const held = new Set(ours.filter(({ support }) => support === "optional").map(({ name }) => name));
  const listed = (result.tools ?? []) as readonly { readonly name: string; readonly outputSchema?: unknown }[];
  return {
    ...result,
    tools: listed.map((tool) => {
      const { outputSchema: _outputSchema, ...rest } = tool;
      return held.has(tool.name) ? rest : tool;
    }),
  };
}

/** The owner is who sends, wherever from; nobody in particular is told from others by a connection of their own. */
const senderOf = (owner: string, connection: string | null) => (owner === "" ? connection : "");

type ToolAnswer = CallToolResult | InputRequiredResult;

function addTool(mcp: McpServer, tool: TaskTool, answer: (ctx: ServerContext) => Promise<ToolAnswer>) {
  const { title, description, inputSchema, outputSchema, annotations, icons } = tool;
  const config = {
    ...(title === undefined ? {} : { title }),
    ...(description === undefined ? {} : { description }),
    ...(outputSchema === undefined ? {} : { outputSchema: convertedOnce(outputSchema) }),
    ...(annotations === undefined ? {} : { annotations }),
    ...(icons === undefined ? {} : { icons }),
  };
  if (inputSchema === undefined) return mcp.registerTool(tool.name, config, (ctx) => answer(ctx));
  const withInput = { ...config, inputSchema: convertedOnce(inputSchema) };
  return mcp.registerTool(tool.name, withInput, (_args, ctx) => answer(ctx));
}

/** The terms of a call in protocol 2026-07-28. */
function currentTerms(parts: ServerParts, tool: TaskTool, ctx: ServerContext): Terms {
  const { owner, client } = callerOf(parts, ctx);
  const { signal, envelope } = ctx.mcpReq;
  const host = readHost((envelope as Params | undefined)?.[CLIENT_INFO_META_KEY]);
  const generation = client.tasks ? "declared" : "rounds";
  return { owner, client, tool, generation, limits: parts.limits(host), push: null, signal, leave() {} };
}

interface CallParts {
  readonly parts: ServerParts;
  readonly exchanges: Exchanges;
  readonly terms: (ctx: ServerContext) => Terms;
  /** Names the connection, where that is one client's. */
  readonly connection: string;
  readonly stop: AbortSignal;
}

async function answerCall({ parts, exchanges, terms: termsOf, connection, stop }: CallParts, ctx: ServerContext) {
  const { id, signal, inputResponses = {} } = ctx.mcpReq;
  let terms: Terms | undefined;
  try {
    terms = termsOf(ctx);
    const { leave: _leave, ...circumstances } = terms;
    const answer = await reply(parts, {
      ...circumstances,
      args: exchanges.params(id).arguments,
      idempotencyKey: readIdempotencyKey(exchanges.params(id)._meta),
      sender: senderOf(terms.owner, ctx.http === undefined ? connection : null),
      auth: ctx.http?.authInfo,
      trace: readTrace(exchanges.params(id)._meta),
      inputResponses,
      requestState: terms.push === null ? ctx.mcpReq.requestState() : undefined,
      progress: progressTo(ctx),
      stop,
    });
    return deliver(answer, terms, (instead) => exchanges.answer(id, instead));
  } catch (thrown) {
    // Who has left gets no answer, and their leaving is no fault of ours.
    if (signal.aborted && thrown === signal.reason) return placeholder;
    // A call that was taken back by another request is still answered: that ends its stream.
    const taken = terms?.signal.aborted === true && thrown === terms.signal.reason;
    const error = taken ? new TaskError("CANCELLED").toRpc() : answerTo(thrown, parts.onError);
    exchanges.answer(id, { error });
    return placeholder;
  } finally {
    terms?.leave();
  }
}

/** An answer as the SDK takes it; what it doesn't take goes out in its place. */
function deliver(reply: Reply, { generation }: Terms, answer: (answer: Answer) => void): ToolAnswer {
  switch (reply.kind) {
    case "result":
      return reply.result;
    case "round":
      return inputRequired({
        ...(Object.keys(reply.requests).length === 0 ? {} : { inputRequests: reply.requests as never }),
        requestState: reply.state,
      });
    case "handle":
      answer({ result: { ...(generation === "legacy" ? {} : { resultType: "complete" }), ...reply.result } });
      return placeholder;
    case "task":
      answer({
        result: generation === "augmented" ? { task: legacyTask(reply.task) } : { resultType: "task", ...reply.task },
      });
      return placeholder;
    case "error":
      answer({ error: reply.error });
      return placeholder;
  }
}

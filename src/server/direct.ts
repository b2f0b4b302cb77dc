import {
  createMcpHandler,
  type AuthInfo,
  type CreateMcpHandlerOptions,
  type McpRequestContext,
  type McpServer,
  type Transport,
} from "@modelcontextprotocol/server";
import type { TaskTool } from "../tool.ts";
import type { FastAnswer } from "./fast.ts";
import type { PlainCall } from "./plain.ts";
import type { TaskServers } from "./server.ts";

/** Answers plain calls of task tools by the SDK, but for a web-standard response where one result is all there is. */
export interface DirectCalls {
  /** A `Response` is whatever else the SDK answers: a stream or a refusal. Undefined: it takes no more. */
  answer(call: PlainCall, request: Request, auth: AuthInfo | undefined): Promise<FastAnswer | Response | undefined>;
  /** Leaves the calls that are still open without an answer. */
  close(): Promise<void>;
}

/** A call under way: which tool it is of, and who takes its result. */
interface OpenCall {
  readonly tool: TaskTool;
  readonly answered: (result: object) => void;
}

export function directCalls(servers: TaskServers, options: CreateMcpHandlerOptions): DirectCalls {
  const open = new WeakMap<Request, OpenCall>();

  async function factory(context: McpRequestContext) {
    const call = context.requestInfo === undefined ? undefined : open.get(context.requestInfo);
    if (call === undefined || context.era === "legacy") return await servers.factory(context);
    const mcp = await servers.callee(call.tool, context);
    tap(mcp, call.answered);
    return mcp;
  }
  const entry = createMcpHandler(factory, options);

  return {
    async answer({ tool, message }, request, auth) {
      const { promise, resolve } = Promise.withResolvers<FastAnswer>();
      open.set(request, { tool, answered: (result) => resolve({ status: 200, text: JSON.stringify(result) }) });
      const asked = { parsedBody: message, ...(auth === undefined ? {} : { authInfo: auth }) };
      try {
        return await Promise.race([promise, entry.fetch(request, asked)]);
      } catch {
        return undefined;
      }
    },
    close: () => entry.close(),
  };
}

/** Takes the result of a server's one exchange before its transport makes a response of it. Streams stay as they are. */
function tap(mcp: McpServer, answered: (result: object) => void): void {
  const connect = mcp.connect.bind(mcp);
  mcp.connect = (transport: Transport) => {
    const send = transport.send.bind(transport);
    let streams = false;
    transport.send = async (message, options) => {
      streams ||= "method" in message;
      if (streams || !("result" in message)) return await send(message, options);
      answered(message);
      queueMicrotask(() => void transport.close());
    };
    return connect(transport);
  };
}

import {
  classifyInboundRequest,
  isJsonContentType,
  PROTOCOL_VERSION_META_KEY,
  SUPPORTED_PROTOCOL_VERSIONS,
  type RequestId,
} from "@modelcontextprotocol/server";
import { capabilitiesKey, readCapabilities, tasksProtocol, type ClientCapabilities } from "../protocol/capabilities.ts";
import { isTaskId } from "../protocol/ids.ts";
import { isObject } from "../protocol/json.ts";
import type { TaskTool } from "../tool.ts";
import type { Params } from "./methods.ts";
import { Recent } from "./recent.ts";
import { readSession } from "./session.ts";

/** A request that says the same thing in header and body, in the plainest of the forms that are allowed. */
export type PlainRequest = PlainTaskRequest | PlainCall;

/** A request about one task that the SDK would hand to our method as it is. */
export interface PlainTaskRequest {
  readonly kind: "task";
  readonly id: RequestId;
  readonly method: PlainMethod;
  readonly params: Params;
  readonly client: ClientCapabilities;
}

/** A call of a tool of ours. Whether it is a good one is for the SDK to say. */
export interface PlainCall {
  readonly kind: "call";
  readonly tool: TaskTool;
  readonly message: object;
}

export type PlainMethod = "tasks/get" | "tasks/update" | "tasks/cancel";

/** Gives a header's value. One that came more than once has none, or one that no rule fits. */
export type HeaderValue = (name: PlainHeader) => string | null | undefined;

export type PlainHeader =
  | "content-type"
  | "content-length"
  | "mcp-protocol-version"
  | "mcp-method"
  | "mcp-name"
  | "mcp-session-id";

/** A plain request is short; what is longer takes the other way before it is read. */
const longestBody = 64 * 1024;

/** An envelope that is longer than this is looked at each time. */
const longestEnvelope = 4 * 1024;

const methods: ReadonlySet<unknown> = new Set<PlainMethod>(["tasks/get", "tasks/update", "tasks/cancel"]);

const olderProtocols: ReadonlySet<unknown> = new Set(
  SUPPORTED_PROTOCOL_VERSIONS.filter((known) => known < tasksProtocol),
);

/** What names no method and no tool: those headers came later, and are looked at by others. */
function isOlder(header: HeaderValue): boolean {
  const named = header("mcp-method") ?? header("mcp-name") ?? null;
  return named === null && olderProtocols.has(header("mcp-protocol-version"));
}

/** Recognises plain requests. What it doesn't know is for the SDK, which refuses what has to be refused. */
export interface PlainReader {
  /** How many bytes a plain request with these headers has, or undefined if they are none of a plain request. */
  length(header: HeaderValue): number | undefined;
  read(header: HeaderValue, message: unknown): PlainRequest | undefined;
}

export function plainReader(tools: readonly TaskTool[], maxBodyBytes: number): PlainReader {
  // Of several versions, the last one is offered.
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  // A client sends the same envelope with each request, and checking one takes longer than reading a task.
  const valid = new Recent<string, boolean>(256);
  const longest = Math.min(longestBody, maxBodyBytes);

  /** Before it is read, a request of an older protocol shows no more than its version. */
  function mayBePlain(header: HeaderValue): boolean {
    if (isOlder(header)) return true;
    const method = header("mcp-method");
    return (
      header("mcp-protocol-version") === tasksProtocol &&
      (method === "tools/call" ? byName.has(header("mcp-name") ?? "") : methods.has(method))
    );
  }

  function length(header: HeaderValue): number | undefined {
    if (!mayBePlain(header)) return undefined;
    if (!isJsonContentType(header("content-type") ?? null)) return undefined;
    const told = header("content-length") ?? "";
    return /^\d{1,6}$/.test(told) && Number(told) <= longest ? Number(told) : undefined;
  }

  /** By the SDK's own judgement, which depends on nothing else once all the rest is plain. */
  function isValid(header: HeaderValue, message: object, envelope: object): boolean {
    const key = written(envelope);
    if (key === undefined) return false;
    const known = valid.get(key);
    if (known !== undefined) return known;
    const { kind } = classifyInboundRequest({
      httpMethod: "POST",
      protocolVersionHeader: tasksProtocol,
      mcpMethodHeader: header("mcp-method") ?? "",
      mcpNameHeader: header("mcp-name") ?? "",
      body: message,
    });
    if (key.length <= longestEnvelope) valid.set(key, kind === "modern");
    return kind === "modern";
  }

  /** A call in an older protocol. Of another server's session, it is refused elsewhere. */
  function olderCall(header: HeaderValue, message: Record<string, unknown>): PlainCall | undefined {
    const { method, params } = message;
    const session = header("mcp-session-id");
    if (typeof session === "string" && readSession(session) === null) return undefined;
    const tool = method === "tools/call" && isObject(params) ? byName.get(params.name as string) : undefined;
    return tool === undefined ? undefined : { kind: "call", tool, message };
  }

  return {
    length,
    read(header, message) {
      if (length(header) === undefined || !isObject(message)) return undefined;
      if (isOlder(header)) return olderCall(header, message);
      const { jsonrpc, id, method, params } = message;
      const subject = header("mcp-name");
      if (method !== header("mcp-method") || !isObject(params)) return undefined;
      if (method === "tools/call") {
        const tool = params.name === subject ? byName.get(params.name as string) : undefined;
        return tool === undefined ? undefined : { kind: "call", tool, message };
      }
      if (jsonrpc !== "2.0" || !isRequestId(id) || Object.keys(message).length !== 4) return undefined;
      const { taskId, _meta: envelope } = params;
      if (!isTaskId(taskId) || taskId !== subject || !isObject(envelope)) return undefined;
      if (envelope[PROTOCOL_VERSION_META_KEY] !== tasksProtocol || !isValid(header, message, envelope))
        return undefined;
      const client = readCapabilities(envelope[capabilitiesKey]);
      return { kind: "task", id, method: method as PlainMethod, params, client };
    },
  };
}

/** As text, unless it is nested deeper than can be written: reading knows no depth. */
export function written(json: unknown): string | undefined {
  try {
    return JSON.stringify(json);
  } catch {
    return undefined;
  }
}

function isRequestId(value: unknown): value is RequestId {
  return typeof value === "string" || Number.isSafeInteger(value);
}

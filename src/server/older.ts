import { SUPPORTED_PROTOCOL_VERSIONS, type JSONRPCMessage } from "@modelcontextprotocol/server";
import type { RpcError } from "../errors.ts";
import { legacyProtocol } from "../protocol/legacy.ts";
import type { Params } from "./methods.ts";

const methodNotFound = -32601;

const olderProtocols = SUPPORTED_PROTOCOL_VERSIONS.filter((version) => version < legacyProtocol);

/** Whether a protocol that was asked for or agreed on is one before 2025-11-25. One that nobody knows is not. */
export function isOlder(protocol: unknown): boolean {
  return olderProtocols.includes(String(protocol));
}

/** Before 2025-11-25 no method is about tasks; the parameter `task` is one that nobody knows. */
export function refusalOfOlder(message: JSONRPCMessage): RpcError | undefined {
  if (!("method" in message) || !message.method.startsWith("tasks/")) return undefined;
  return { code: methodNotFound, message: "Method not found" };
}

/** The result of an `initialize` that agreed on such a protocol. */
export function helloOfOlder(result: Params): Params {
  const { tasks: _tasks, ...capabilities } = result.capabilities as Params;
  return { ...result, capabilities };
}

/** The result of a `tools/list`, whose tools say nothing of tasks. */
export function toolsOfOlder(result: Params): Params {
  const tools = result.tools as readonly Params[];
  return { ...result, tools: tools.map(({ execution: _execution, ...tool }) => tool) };
}

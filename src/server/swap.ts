import type { AuthInfo, JSONRPCMessage, McpServer, RequestId } from "@modelcontextprotocol/server";
import type { RpcError } from "../errors.ts";
import type { Params } from "./methods.ts";

const invalidRequest = -32600;

/** What goes out in place of the SDK's answer. */
export type Answer = { readonly result: object } | { readonly error: RpcError };

/** What becomes of a message before the SDK sees it: it is taken, or refused if it is a request. Others go on. */
export type Door = (message: JSONRPCMessage, auth: AuthInfo | undefined) => "taken" | RpcError | undefined;

/** The requests of one connection between their arrival and their answer. */
export interface Exchanges {
  /** The params of an open request as they came, before the SDK parsed them or took parts out. */
  params(id: RequestId): Params;
  /** Replaces the answer that the SDK is about to give. What its `_meta` says is kept. Null: nobody waits for it. */
  answer(id: RequestId, answer: Answer | null): void;
  /** Sends a message on the stream of an open request. */
  send(message: JSONRPCMessage, id: RequestId): Promise<void>;
}

/** Changes a result that the SDK gives by itself. */
export type Amend = (method: string, params: Params, result: Params) => Params;

/**
 * Sits between a server and its transport. The SDK knows no tool result that is a task, and turns whatever a tool
 * throws into a tool error: a tool returns a placeholder instead, and what it means is put in its place here.
 */
export function intercept(mcp: McpServer, amend: Amend, door: Door = () => undefined): Exchanges {
  let sendRaw = (_message: JSONRPCMessage, _id: RequestId): Promise<void> => Promise.reject(new Error("Not connected"));
  const open = new Map<RequestId, { readonly method: string; readonly params: Params; answer?: Answer }>();
  const connect = mcp.connect.bind(mcp);

  mcp.connect = async (transport) => {
    const send = transport.send.bind(transport);
    transport.send = (message, options) => send(outgoing(message), options);
    sendRaw = (message, relatedRequestId) => send(message, { relatedRequestId });
    await connect(transport);
    const deliver = transport.onmessage;
    transport.onmessage = (message, extra) => {
      const decided = door(message, extra?.authInfo);
      if (decided === "taken") return;
      const refused = incoming(message, decided);
      if (refused === undefined) deliver?.(message, extra);
      else send(refused).catch((thrown: unknown) => transport.onerror?.(thrown as Error));
    };
  };

  /** Two open requests of one id would get each other's params and answers: the second is refused, unread. */
  function incoming(message: JSONRPCMessage, refusal?: RpcError): JSONRPCMessage | undefined {
    if (!("method" in message)) return undefined;
    if ("id" in message) {
      const { id } = message;
      if (refusal !== undefined) return { jsonrpc: "2.0", id, error: refusal };
      const error = { code: invalidRequest, message: "A request with this id is still open. Give each its own." };
      if (open.has(id)) return { jsonrpc: "2.0", id, error };
      open.set(id, { method: message.method, params: message.params ?? {} });
    } else if (message.method === "notifications/cancelled") open.delete(message.params?.requestId as RequestId);
    return undefined;
  }

  function outgoing(message: JSONRPCMessage): JSONRPCMessage {
    if ("method" in message || message.id === undefined) return message;
    const { id } = message;
    const exchange = open.get(id);
    open.delete(id);
    if (exchange === undefined) return message;
    const { method, params, answer } = exchange;
    if (answer === undefined)
      return "result" in message ? { ...message, result: amend(method, params, message.result) } : message;
    return answered(message, id, answer);
  }

  return {
    params: (id) => open.get(id)?.params ?? {},
    answer(id, answer) {
      const exchange = open.get(id);
      if (exchange !== undefined && answer !== null) exchange.answer = answer;
    },
    send: (message, id) => sendRaw(message, id),
  };
}

/** Our answer in place of the SDK's, with what that says of the server. */
export function answered(message: JSONRPCMessage, id: RequestId, answer: Answer): JSONRPCMessage {
  if ("error" in answer) return { jsonrpc: "2.0", id, error: answer.error };
  const { _meta: ours, ...result } = answer.result as { readonly _meta?: object };
  const stamp = "result" in message ? message.result._meta : undefined;
  const meta = ours === undefined && stamp === undefined ? {} : { _meta: { ...ours, ...stamp } };
  return { jsonrpc: "2.0", id, result: { ...result, ...meta } };
}

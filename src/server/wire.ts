import {
  SERVER_INFO_META_KEY,
  SUBSCRIPTION_ID_META_KEY,
  type JSONRPCMessage,
  type JSONRPCRequest,
  type RequestId,
  type Transport,
} from "@modelcontextprotocol/server";
import type { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import type { RpcError } from "../errors.ts";
import { capabilitiesKey, readCapabilities } from "../protocol/capabilities.ts";
import {
  acknowledgement,
  lastAnswer,
  openFeed,
  streamLimits,
  taskNotification,
  type Acknowledgement,
  type Feed,
} from "./listen.ts";
import { answerTo, wantedTasks, type Params } from "./methods.ts";
import type { ServerParts } from "./server.ts";

/** What bounds the subscriptions of one connection. */
export interface WireOptions {
  readonly maxStreams: number;
  readonly maxTaskIds: number;
  readonly onError: (error: unknown) => void;
}

interface Subscription {
  readonly request: JSONRPCRequest;
  readonly taskIds: unknown;
  feed?: Feed;
  /** Set while the acknowledgement is held back; what the SDK sends for this subscription waits for it. */
  opening?: Promise<void>;
  release: () => void;
}

/**
 * The transport that the SDK's server gets: it takes part in subscriptions to tasks, and passes on the rest. The SDK
 * answers a `subscriptions/listen` first, so that only what is valid comes here.
 */
export function taskWire(parts: ServerParts, transport: StdioServerTransport, options: WireOptions) {
  const { onError } = options;
  const { promise: closed, resolve: resolveClosed } = Promise.withResolvers<void>();
  const limits = streamLimits(options.maxStreams, options.maxStreams);
  const subscriptions = new Map<RequestId, Subscription>();
  const unanswered = new Set<RequestId>();
  let allAnswered = () => {};
  let serverInfo: unknown;

  const wire: Transport = {
    async start() {
      transport.onmessage = incoming;
      transport.onerror = (error) => wire.onerror?.(error);
      transport.onclose = () => {
        for (const id of subscriptions.keys()) forget(id);
        wire.onclose?.();
        resolveClosed();
      };
      await transport.start();
    },
    send: outgoing,
    close: () => transport.close(),
  };

  function incoming(message: JSONRPCMessage): void {
    if ("method" in message && "id" in message) {
      const taskIds = taskIdsOf(message);
      forget(message.id);
      if (taskIds !== undefined) subscriptions.set(message.id, { request: message, taskIds, release() {} });
      if (message.method !== "subscriptions/listen") unanswered.add(message.id);
    } else if ("method" in message && message.method === "notifications/cancelled") {
      const id = message.params?.requestId as RequestId;
      forget(id);
      settle(id);
    }
    wire.onmessage?.(message);
  }

  async function outgoing(message: JSONRPCMessage): Promise<void> {
    if ("method" in message) {
      const id = message.params?._meta?.[SUBSCRIPTION_ID_META_KEY] as RequestId | undefined;
      const subscription = id === undefined ? undefined : subscriptions.get(id);
      if (id === undefined || subscription === undefined) return transport.send(message);
      if (message.method !== "notifications/subscriptions/acknowledged") {
        await subscription.opening;
        return transport.send(message);
      }
      subscription.opening = open(id, subscription, message as Acknowledgement);
      return undefined;
    }
    const { id } = message;
    if ("result" in message) serverInfo = message.result._meta?.[SERVER_INFO_META_KEY] ?? serverInfo;
    if (id === undefined) return transport.send(message);
    const subscribed = subscriptions.has(id);
    forget(id);
    settle(id);
    await transport.send(message);
    if (subscribed && "result" in message) await transport.send(cancelled(id));
    return undefined;
  }

  /** Completes the acknowledgement, or answers with why not. */
  async function open(id: RequestId, subscription: Subscription, ack: Acknowledgement): Promise<void> {
    const { request, taskIds } = subscription;
    try {
      const client = readCapabilities(request.params?._meta?.[capabilitiesKey]);
      const caller = { owner: parts.owner(undefined), client };
      const wanted = wantedTasks(caller, taskIds, options.maxTaskIds);
      subscription.release = limits.take(caller.owner);
      const others = Object.keys(ack.params.notifications).length > 0;
      const feed = await openFeed(parts.engine, caller, wanted, sinkOf(id, others), parts.onError);
      if (subscriptions.get(id) !== subscription) return feed.stop();
      subscription.feed = feed;
      await transport.send(acknowledgement(ack, feed.ids));
      feed.pump();
    } catch (thrown) {
      subscription.release();
      if (!subscriptions.delete(id)) return;
      dropAtSdk(id);
      await refuse(id, answerTo(thrown, parts.onError));
    }
  }

  /** One message of a subscription is on its way at a time: the reader sets the pace. */
  function sinkOf(id: RequestId, others: boolean) {
    let busy = false;
    return {
      room: () => !busy,
      write(task: Parameters<typeof taskNotification>[1]) {
        busy = true;
        void transport
          .send(taskNotification(id, task))
          .catch(onError)
          .finally(() => {
            busy = false;
            subscriptions.get(id)?.feed?.pump();
          });
      },
      done() {
        if (others || !subscriptions.has(id)) return;
        forget(id);
        dropAtSdk(id);
        transport
          .send(lastAnswer(id, serverInfo))
          .then(() => transport.send(cancelled(id)))
          .catch(onError);
      },
    };
  }

  function refuse(id: RequestId, error: RpcError): Promise<void> {
    return transport.send({ jsonrpc: "2.0", id, error }).catch(onError);
  }

  /** The SDK holds every subscription until its client ends it; what ended here must end there, too. */
  function dropAtSdk(id: RequestId): void {
    wire.onmessage?.(cancelled(id));
  }

  function forget(id: RequestId): void {
    const subscription = subscriptions.get(id);
    subscription?.feed?.stop();
    subscription?.release();
    subscriptions.delete(id);
  }

  function settle(id: RequestId): void {
    unanswered.delete(id);
    if (unanswered.size === 0) allAnswered();
  }

  return {
    transport: wire,
    closed,
    /** Resolves when every request is answered, or after so many milliseconds. */
    answered(withinMs: number): Promise<void> {
      return new Promise((resolve) => {
        const timer = setTimeout(resolve, withinMs);
        allAnswered = () => {
          clearTimeout(timer);
          resolve();
        };
        if (unanswered.size === 0) allAnswered();
      });
    },
  };
}

/** A client may wait for either ending of a subscription, so it gets both (core specification, "Cancellation"). */
function cancelled(id: RequestId) {
  return { jsonrpc: "2.0" as const, method: "notifications/cancelled", params: { requestId: id } };
}

function taskIdsOf({ method, params }: JSONRPCRequest): unknown {
  if (method !== "subscriptions/listen") return undefined;
  return (params?.notifications as Params | null | undefined)?.taskIds;
}

import type { RpcError } from "../../src/errors.ts";

/** Every field that a test looks for in a result or in the params of a notification. */
export interface Fields {
  _meta?: Record<string, unknown>;
  resultType?: string;
  taskId?: string;
  status?: string;
  statusMessage?: string;
  createdAt?: string;
  lastUpdatedAt?: string;
  ttlMs?: number | null;
  pollIntervalMs?: number;
  inputRequests?: Record<string, { method: string; params?: Record<string, unknown> }>;
  requestState?: string;
  result?: Fields;
  error?: RpcError;
  content?: { type: string; text?: string }[];
  structuredContent?: unknown;
  isError?: boolean;
  capabilities?: Record<string, unknown> & { extensions?: Record<string, unknown> };
  notifications?: Record<string, unknown> & { taskIds?: string[] };
}

/** One JSON-RPC message, either way. */
export interface Message {
  jsonrpc: "2.0";
  id?: string | number | null;
  method?: string;
  params?: Fields;
  result?: Fields;
  error?: RpcError;
}

/** What one request brought. `status` and `headers` are those of HTTP; over stdio 200 and none. */
export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly body: Message;
  /** What came on the same stream before the answer. */
  readonly before: readonly Message[];
}

/** The messages of a subscription as they come. Ends with the stream. */
export interface Frames extends AsyncIterable<Message> {
  /** 200, or the HTTP status of a refusal, whose message is then the only one. */
  readonly status: number;
  /** The JSON-RPC id of the listen request. */
  readonly id: string | number;
  /** Everything that came so far. */
  readonly seen: readonly Message[];
  /** The next message that no call of `next` returned yet; undefined at the end of the stream. */
  next(): Promise<Message | undefined>;
  /** Reads on to the first message that fits. Rejects if the stream ends before. */
  find(fits: (message: Message) => boolean): Promise<Message>;
  close(): Promise<void>;
}

/** The data of each event in a stream of server-sent events. Comments are left out. */
export async function* events(body: AsyncIterable<Uint8Array>): AsyncGenerator<Message> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    rest += decoder.decode(chunk, { stream: true });
    const parts = rest.split(/\r?\n\r?\n/);
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const data = part.split(/\r?\n/).filter((line) => line.startsWith("data:"));
      const text = data.map((line) => line.slice(5).trimStart()).join("\n");
      if (text !== "") yield JSON.parse(text) as Message;
    }
  }
}

/** Frames over any source of messages. `stop` makes the source end. */
export function frames(
  source: AsyncIterable<Message>,
  { id, status, stop }: { id: string | number; status: number; stop: () => unknown },
): Frames {
  const seen: Message[] = [];
  const messages = source[Symbol.asyncIterator]();
  const next = async () => {
    const { value, done } = (await messages.next()) as IteratorResult<Message, undefined>;
    if (done === true) return undefined;
    seen.push(value);
    return value;
  };
  return {
    status,
    id,
    seen,
    next,
    async find(fits) {
      for (let message = await next(); message !== undefined; message = await next()) if (fits(message)) return message;
      throw new Error(`the stream ended without the message; it held ${JSON.stringify(seen)}`);
    },
    async close() {
      await stop();
    },
    async *[Symbol.asyncIterator]() {
      for (let message = await next(); message !== undefined; message = await next()) yield message;
    },
  };
}

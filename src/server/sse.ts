import type { JSONRPCMessage, RequestId } from "@modelcontextprotocol/server";
import type { Engine } from "../engine/engine.ts";
import { asTaskError, type TaskError } from "../errors.ts";
import { acknowledgement, openFeed, taskNotification, type Acknowledgement, type Sink } from "./listen.ts";
import type { Caller } from "./methods.ts";
import { comment, frame } from "./outlet.ts";
import type { Alive, Pulse } from "./pulse.ts";

/** The open event streams of a server. */
export interface TaskStreams {
  /** Adds tasks to the stream that the SDK answered a `subscriptions/listen` with. Throws when the store can't be read. */
  open(options: StreamOptions): Promise<Response>;
  /** Ends each stream with its last answer. The SDK's own streams must have ended, or be about to. */
  close(): Promise<void>;
}

/** One subscription. */
export interface StreamOptions {
  readonly id: RequestId;
  readonly caller: Caller;
  readonly taskIds: readonly string[];
  readonly answer: Response;
  readonly signal: AbortSignal;
  /** Called once, at the end of the stream or when it can't be opened. */
  readonly released: () => void;
}

interface OpenStream extends Alive {
  readonly body: ReadableStream<Uint8Array>;
  readonly ended: Promise<void>;
  end(): void;
}

const encoder = new TextEncoder();
const encoded = (message: object) => encoder.encode(frame(message));
const stillHere = encoder.encode(comment);

/** Streams over an engine. */
export function taskStreams(engine: Engine, pulse: Pulse, onError: (error: TaskError) => void): TaskStreams {
  const streams = new Set<OpenStream>();
  let closing = false;

  return {
    async open(options) {
      const frames = readFrames(options.answer);
      let stream: OpenStream;
      try {
        stream = await openStream(engine, options, frames, onError);
      } catch (thrown) {
        frames.cancel();
        options.released();
        throw thrown;
      }
      streams.add(stream);
      pulse.add(stream);
      void stream.ended.then(() => {
        options.released();
        streams.delete(stream);
        pulse.delete(stream);
      });
      if (closing) stream.end();
      return new Response(stream.body, { status: 200, headers: options.answer.headers });
    },
    async close() {
      closing = true;
      const open = [...streams];
      for (const stream of open) stream.end();
      await Promise.all(open.map(({ ended }) => ended));
    },
  };
}

async function openStream(
  engine: Engine,
  { id, caller, taskIds, signal }: StreamOptions,
  frames: Frames,
  onError: (error: TaskError) => void,
): Promise<OpenStream> {
  const { promise: ended, resolve: end } = Promise.withResolvers<void>();
  let controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  let last: JSONRPCMessage | undefined;
  let sdkEnded = false;
  let tasksEnded = false;
  let over = false;

  const sink: Sink = {
    room: () => (controller?.desiredSize ?? 0) > 0,
    write: (task) => controller?.enqueue(encoded(taskNotification(id, task))),
    done() {
      tasksEnded = true;
      finish();
    },
  };
  const ack = (await frames.next()) as Acknowledgement | undefined;
  if (ack === undefined) throw new Error("The SDK's stream ended before its acknowledgement");
  const feed = await openFeed(engine, caller, taskIds, sink, onError);

  function leave(): void {
    over = true;
    feed.stop();
    frames.cancel();
    signal.removeEventListener("abort", abandon);
    end();
  }

  /** Where nothing else was subscribed, the SDK has ended its part at once: its last answer waits for the tasks. */
  function finish(): void {
    if (over || !sdkEnded || !tasksEnded) return;
    if (last !== undefined) controller?.enqueue(encoded(last));
    controller?.close();
    leave();
  }

  function abandon(): void {
    if (over) return;
    controller?.close();
    leave();
  }

  async function forward(): Promise<void> {
    for (let message = await frames.next(); message !== undefined && !over; message = await frames.next()) {
      if ("method" in message) controller?.enqueue(encoded(message));
      else last = message;
    }
    // Without a last answer the stream was cut, not ended: nobody is there for the rest.
    if (last === undefined) abandon();
    sdkEnded = true;
    finish();
  }

  const body = new ReadableStream<Uint8Array>({
    start(ofBody) {
      controller = ofBody;
      ofBody.enqueue(encoded(acknowledgement(ack, feed.ids)));
    },
    pull: () => feed.pump(),
    cancel: () => leave(),
  });
  if (signal.aborted) abandon();
  else signal.addEventListener("abort", abandon);
  feed.pump();
  forward().catch((thrown: unknown) => {
    onError(asTaskError(thrown));
    abandon();
  });

  return {
    body,
    ended,
    beat() {
      if (sink.room()) controller?.enqueue(stillHere);
      feed.pump();
    },
    end() {
      feed.stop();
      tasksEnded = true;
      finish();
    },
  };
}

interface Frames {
  /** The next message, or undefined at the end. */
  next(): Promise<JSONRPCMessage | undefined>;
  cancel(): void;
}

/** The messages of an event stream of the SDK's. */
function readFrames({ body }: Response): Frames {
  const reader = body?.getReader();
  const decoder = new TextDecoder();
  const ready: JSONRPCMessage[] = [];
  let text = "";

  async function next(): Promise<JSONRPCMessage | undefined> {
    while (ready.length === 0) {
      const chunk = await reader?.read();
      if (chunk?.value === undefined) return undefined;
      const parts = (text + decoder.decode(chunk.value as Uint8Array, { stream: true })).split("\n\n");
      text = parts.pop() ?? "";
      for (const part of parts) {
        const line = part.split("\n").find((candidate) => candidate.startsWith("data: "));
        if (line !== undefined) ready.push(JSON.parse(line.slice("data: ".length)) as JSONRPCMessage);
      }
    }
    return ready.shift();
  }

  return { next, cancel: () => void reader?.cancel().catch(() => {}) };
}

import type { ServerResponse } from "node:http";
import type { JSONRPCMessage } from "@modelcontextprotocol/server";
import type { Alive, Pulse } from "./pulse.ts";

/** An answer over HTTP that is no stream. The text is JSON. */
export interface TextAnswer {
  readonly status: number;
  readonly text: string;
  readonly retryAfterSeconds?: number;
}

/** Where the answer to one HTTP request goes: one text if nothing comes before it, and a stream of events otherwise. */
export interface Outlet {
  /** Aborts when whoever asked is gone. What is sent from then on goes nowhere. */
  readonly signal: AbortSignal;
  /** Whether it has become a stream. */
  isStream(): boolean;
  /** Makes a stream of it, whether anything comes before the answer or not. */
  stream(): void;
  /** Sends a message before the answer, on a stream. */
  send(message: JSONRPCMessage): void;
  /** Sends the answer, which is the end. `status`: of an answer that is no stream. */
  end(message: JSONRPCMessage, status: number): void;
}

/** As the SDK has them. */
const streamHeaders = {
  "content-type": "text/event-stream",
  "cache-control": "no-cache, no-transform",
  connection: "keep-alive",
  "x-accel-buffering": "no",
};

/** A message as an event of a stream (core specification, "Streamable HTTP"). */
export const frame = (message: object) => `event: message\ndata: ${JSON.stringify(message)}\n\n`;

/** A line that says no more than that the stream is alive. */
export const comment = ": keepalive\n\n";

/** How a response of some kind is written. */
interface Writer<R> {
  begin(response: R): void;
  write(response: R, text: string): void;
  /** Ends what was begun. */
  finish(response: R): void;
  /** Writes an answer that is no stream. */
  whole(response: R, answer: TextAnswer): void;
}

/** A class, and not closures, because there is one for each call that is held. */
class HttpOutlet<R> implements Outlet, Alive {
  readonly signal: AbortSignal;
  readonly #response: R;
  readonly #writer: Writer<R>;
  readonly #pulse: Pulse;
  #isStream = false;

  constructor(response: R, writer: Writer<R>, signal: AbortSignal, pulse: Pulse) {
    this.signal = signal;
    this.#response = response;
    this.#writer = writer;
    this.#pulse = pulse;
  }

  isStream(): boolean {
    return this.#isStream;
  }

  stream(): void {
    if (this.#isStream || this.signal.aborted) return;
    this.#isStream = true;
    this.#writer.begin(this.#response);
    this.#pulse.add(this);
  }

  send(message: JSONRPCMessage): void {
    this.stream();
    if (!this.signal.aborted) this.#writer.write(this.#response, frame(message));
  }

  end(message: JSONRPCMessage, status: number): void {
    this.#pulse.delete(this);
    if (this.signal.aborted) return;
    if (!this.#isStream) return this.#writer.whole(this.#response, { status, text: JSON.stringify(message) });
    this.#writer.write(this.#response, frame(message));
    this.#writer.finish(this.#response);
  }

  beat(): void {
    if (this.signal.aborted) this.#pulse.delete(this);
    else this.#writer.write(this.#response, comment);
  }
}

const nodeWriter: Writer<ServerResponse> = {
  begin(outgoing) {
    outgoing.writeHead(200, streamHeaders);
    outgoing.flushHeaders();
  },
  write: (outgoing, text) => void outgoing.write(text),
  finish: (outgoing) => void outgoing.end(),
  whole: writeAnswer,
};

/** An outlet for a response of `node:http`. */
export function nodeOutlet(outgoing: ServerResponse, signal: AbortSignal, pulse: Pulse): Outlet {
  return new HttpOutlet(outgoing, nodeWriter, signal, pulse);
}

export function writeAnswer(outgoing: ServerResponse, { status, text, retryAfterSeconds }: TextAnswer): void {
  if (retryAfterSeconds !== undefined) outgoing.setHeader("retry-after", retryAfterSeconds);
  outgoing.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  outgoing.end(text);
}

/** A web-standard response that is still to come. */
interface Coming {
  readonly resolve: (response: Response) => void;
  /** Called when its stream is given up. */
  readonly given: () => void;
  controller?: ReadableStreamDefaultController<Uint8Array>;
}

const encoder = new TextEncoder();

const webWriter: Writer<Coming> = {
  begin(coming) {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => void (coming.controller = controller),
      cancel: coming.given,
    });
    coming.resolve(new Response(body, { headers: streamHeaders }));
  },
  write: ({ controller }, text) => controller?.enqueue(encoder.encode(text)),
  finish: ({ controller }) => controller?.close(),
  whole: ({ resolve }, answer) => resolve(toResponse(answer)),
};

/** An outlet whose response is a web-standard one. It is there with the first that is sent. */
export function webOutlet(
  asked: AbortSignal,
  pulse: Pulse,
): { readonly outlet: Outlet; readonly response: Promise<Response> } {
  const { promise: response, resolve } = Promise.withResolvers<Response>();
  const gone = new AbortController();
  const coming: Coming = { resolve, given: () => gone.abort(new Error("The stream was given up.")) };
  // Nobody reads it, but whoever waits for it need not wait for ever.
  const leave = () => {
    resolve(new Response(null, { status: 499 }));
    if (!gone.signal.aborted) coming.controller?.close();
  };
  if (asked.aborted) leave();
  else asked.addEventListener("abort", leave, { once: true });
  const outlet = new HttpOutlet(coming, webWriter, AbortSignal.any([asked, gone.signal]), pulse);
  return { outlet, response };
}

export function toResponse({ status, text, retryAfterSeconds }: TextAnswer): Response {
  const later = retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) };
  return new Response(text, { status, headers: { "content-type": "application/json", ...later } });
}

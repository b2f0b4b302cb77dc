import type { IncomingMessage, ServerResponse } from "node:http";
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
  /** Whether the reader keeps up. */
  hasRoom(response: R): boolean;
  /** Whether somebody else has answered: a middleware whose time was up, for one. */
  isTaken(response: R, begun: boolean): boolean;
}

/** A class, and not closures, because there is one for each call that is held. */
class HttpOutlet<R> implements Outlet, Alive {
  readonly #response: R;
  readonly #writer: Writer<R>;
  readonly #pulse: Pulse;
  readonly #left = new AbortController();
  #state: "waiting" | "stream" | "over" = "waiting";

  constructor(response: R, writer: Writer<R>, pulse: Pulse) {
    this.#response = response;
    this.#writer = writer;
    this.#pulse = pulse;
  }

  get signal(): AbortSignal {
    return this.#left.signal;
  }

  isStream(): boolean {
    return this.#state === "stream";
  }

  stream(): void {
    if (this.#state !== "waiting" || !this.#isOurs()) return;
    this.#state = "stream";
    this.#writer.begin(this.#response);
    this.#pulse.add(this);
  }

  send(message: JSONRPCMessage): void {
    this.stream();
    if (this.#state !== "stream" || !this.#isOurs()) return;
    // The next report says as much. Whatever else is sent has to arrive.
    const canWait = "method" in message && message.method === "notifications/progress";
    if (!canWait || this.#writer.hasRoom(this.#response)) this.#writer.write(this.#response, frame(message));
  }

  end(message: JSONRPCMessage, status: number): void {
    if (this.#state === "over" || !this.#isOurs()) return;
    const text = this.#state === "stream" ? frame(message) : JSON.stringify(message);
    const isStream = this.#over();
    if (!isStream) return this.#writer.whole(this.#response, { status, text });
    this.#writer.write(this.#response, text);
    this.#writer.finish(this.#response);
  }

  beat(): void {
    if (this.#isOurs() && this.#writer.hasRoom(this.#response)) this.#writer.write(this.#response, comment);
  }

  /**
   * Whoever asked is gone. Not for the reason that their signal gives: only a `notifications/cancelled` says that the work
   * is to stop. False: they had their answer.
   */
  leave(): boolean {
    if (this.#state === "over") return false;
    this.#over();
    this.#left.abort(new Error("The client closed the connection."));
    return true;
  }

  #isOurs(): boolean {
    if (!this.#writer.isTaken(this.#response, this.#state === "stream")) return true;
    this.leave();
    return false;
  }

  #over(): boolean {
    const isStream = this.#state === "stream";
    this.#state = "over";
    if (isStream) this.#pulse.delete(this);
    return isStream;
  }
}

const nodeWriter: Writer<ServerResponse> = {
  begin(outgoing) {
    // Whoever wants the connection to end with the answer gets it so (RFC 9112, section 9.6).
    const { shouldKeepAlive } = outgoing;
    outgoing.writeHead(200, shouldKeepAlive ? streamHeaders : { ...streamHeaders, connection: "close" });
    outgoing.flushHeaders();
  },
  write: (outgoing, text) => void outgoing.write(text),
  finish: (outgoing) => void outgoing.end(),
  whole: writeAnswer,
  hasRoom: (outgoing) => !outgoing.writableNeedDrain,
  isTaken: (outgoing, begun) => outgoing.writableEnded || (outgoing.headersSent && !begun),
};

/** An outlet for a response of `node:http`. */
export function nodeOutlet({ socket }: IncomingMessage, outgoing: ServerResponse, pulse: Pulse): Outlet {
  const outlet = new HttpOutlet(outgoing, nodeWriter, pulse);
  const leave = () => void outlet.leave();
  if (outgoing.destroyed || socket.destroyed) leave();
  else outgoing.on("close", leave);
  if (outgoing.socket === null) {
    // It is behind another one on its connection: of those, Node 22 doesn't say when the connection is gone.
    socket.setMaxListeners(0).once("close", leave);
    outgoing.once("close", () => socket.off("close", leave));
  }
  return outlet;
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
  given(): void;
  controller?: ReadableStreamDefaultController<Uint8Array>;
}

const encoder = new TextEncoder();

/** As much as a socket of Node's has before it asks to wait. */
const room = new ByteLengthQueuingStrategy({ highWaterMark: 64 * 1024 });

const webWriter: Writer<Coming> = {
  begin(coming) {
    const body = new ReadableStream<Uint8Array>(
      { start: (controller) => void (coming.controller = controller), cancel: () => coming.given() },
      room,
    );
    coming.resolve(new Response(body, { headers: streamHeaders }));
  },
  write: ({ controller }, text) => controller?.enqueue(encoder.encode(text)),
  finish: ({ controller }) => controller?.close(),
  whole: ({ resolve }, answer) => resolve(toResponse(answer)),
  hasRoom: ({ controller }) => (controller?.desiredSize ?? 1) > 0,
  isTaken: () => false,
};

/** An outlet whose response is a web-standard one. It is there with the first that is sent. */
export function webOutlet(
  asked: AbortSignal,
  pulse: Pulse,
): { readonly outlet: Outlet; readonly response: Promise<Response> } {
  const { promise: response, resolve } = Promise.withResolvers<Response>();
  const coming: Coming = { resolve, given: () => void outlet.leave() };
  const outlet = new HttpOutlet(coming, webWriter, pulse);
  const leave = () => {
    if (!outlet.leave()) return;
    // Nobody reads it, but whoever waits for it need not wait for ever.
    resolve(new Response(null, { status: 499 }));
    coming.controller?.close();
  };
  if (asked.aborted) leave();
  else asked.addEventListener("abort", leave, { once: true });
  return { outlet, response };
}

export function toResponse({ status, text, retryAfterSeconds }: TextAnswer): Response {
  const later = retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) };
  return new Response(text, { status, headers: { "content-type": "application/json", ...later } });
}

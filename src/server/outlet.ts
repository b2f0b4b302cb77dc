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

/** The headers of a stream, as the SDK has them. */
export const streamHeaders = {
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
export interface Writer<R> {
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
export class HttpOutlet<R> implements Outlet, Alive {
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

import { once } from "node:events";
import { connect, type Socket } from "node:net";

/** What one HTTP server answered, request after request on connections that stay open. */
export interface Load {
  readonly answers: number;
  readonly ms: number;
}

/** A request, as text; every answer to it has the same length. */
export interface Target {
  readonly port: number;
  readonly request: string;
  readonly answerBytes: number;
}

/**
 * Sends a request again and again for so long, on so many connections, each answer before the next request. Sockets are
 * used bare: a client that took longer than the server would measure itself.
 */
export async function load(target: Target, connections: number, forMs: number): Promise<Load> {
  const sockets = await Promise.all(Array.from({ length: connections }, () => open(target.port)));
  const start = performance.now();
  // A load that slept between answers would have the server wake it with each: the faster one wouldn't pay for that.
  let awake = setImmediate(function again() {
    awake = setImmediate(again);
  });
  const counts = await Promise.all(sockets.map((socket) => repeat(socket, target, start + forMs)));
  const ms = performance.now() - start;
  clearImmediate(awake);
  for (const socket of sockets) socket.destroy();
  return { answers: counts.reduce((sum, count) => sum + count, 0), ms };
}

/** Milliseconds of each answer, on one connection and one after the other, for so long. */
export async function latencies(target: Target, forMs: number): Promise<number[]> {
  const socket = await open(target.port);
  const until = performance.now() + forMs;
  const found: number[] = [];
  let last = performance.now();
  await repeat(socket, target, until, () => {
    const now = performance.now();
    found.push(now - last);
    last = now;
  });
  socket.destroy();
  return found;
}

/** One answer, with its head. */
export async function exchange(
  port: number,
  request: string,
): Promise<{ readonly head: string; readonly body: string }> {
  const socket = await open(port);
  socket.write(request);
  let received = Buffer.alloc(0);
  for await (const chunk of socket as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    const end = received.indexOf("\r\n\r\n");
    const head = received.subarray(0, Math.max(0, end)).toString();
    const length = Number(/^content-length: (\d+)$/im.exec(head)?.[1]);
    if (end >= 0 && received.byteLength === end + 4 + length) {
      return { head, body: received.subarray(end + 4).toString() };
    }
  }
  throw new Error(`no whole answer: ${received.toString()}`);
}

async function open(port: number): Promise<Socket> {
  const socket = connect({ port, host: "127.0.0.1", noDelay: true });
  await once(socket, "connect");
  return socket;
}

function repeat(
  socket: Socket,
  { request, answerBytes }: Target,
  until: number,
  answered: () => void = () => {},
): Promise<number> {
  return new Promise((resolve, reject) => {
    let answers = 0;
    let missing = answerBytes;
    socket.on("data", (chunk) => {
      missing -= chunk.byteLength;
      if (missing > 0) return;
      if (missing < 0) return reject(new Error("an answer was longer than the first one"));
      answers += 1;
      answered();
      missing = answerBytes;
      if (performance.now() > until) resolve(answers);
      else socket.write(request);
    });
    socket.on("close", () => reject(new Error("the server closed a connection")));
    socket.write(request);
  });
}

import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import type { AddressInfo } from "node:net";

/** The network between one process and a server: what passes through it can be held up and lost. */
export interface Line extends AsyncDisposable {
  readonly port: number;
  /** Breaks all connections. New ones can be made at once. */
  cut(): void;
  /** Lets requests through and loses their answers; breaks all connections after so many milliseconds. */
  mute(ms: number): void;
  /** Lets nothing through for so many milliseconds, and then all that was said in the meantime, if only by the dead. */
  stall(ms: number): void;
}

/** Opens a port of 127.0.0.1 that leads to the given one. */
export async function openLine(host: string, port: number): Promise<Line> {
  const sockets = new Set<Socket>();
  let muted = false;
  let stalled = false;
  let timer: NodeJS.Timeout | undefined;

  function keep(socket: Socket, gone: () => void): void {
    sockets.add(socket);
    // Why a connection broke is of no interest: that it did shows in its close.
    socket.setNoDelay(true).on("error", () => {});
    socket.on("close", () => {
      sockets.delete(socket);
      gone();
    });
    if (stalled) socket.pause();
  }

  const server = createServer((near) => {
    const far = connect(port, host);
    near.on("data", (data) => far.write(data));
    far.on("data", (data) => muted || near.write(data));
    // What a process had sent before it died arrives all the same.
    near.on("end", () => far.end());
    keep(near, () => far.end());
    keep(far, () => near.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");

  function cut(): void {
    for (const socket of sockets) socket.destroy();
  }

  /** The end of what was going on comes first. */
  function during(ms: number, end: () => void): void {
    clearTimeout(timer);
    timer = setTimeout(end, ms).unref();
  }

  function passAll(): void {
    stalled = false;
    for (const socket of sockets) socket.resume();
  }

  return {
    port: (server.address() as AddressInfo).port,
    cut,
    mute(ms) {
      passAll();
      muted = true;
      during(ms, () => {
        cut();
        muted = false;
      });
    },
    stall(ms) {
      // Answers that were lost can't be made good.
      if (muted) cut();
      muted = false;
      stalled = true;
      for (const socket of sockets) socket.pause();
      during(ms, passAll);
    },
    async [Symbol.asyncDispose]() {
      clearTimeout(timer);
      cut();
      server.close();
      await once(server, "close");
    },
  };
}

import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";

/** A way to a Postgres server on which things go wrong. */
export interface Proxy extends AsyncDisposable {
  readonly url: string;
  /**
   * The next answer to a statement with this text is lost, and its connection with it: the server has committed, and the
   * client doesn't hear of it. Resolves when that has happened. With `gone`, nobody can connect from then on.
   */
  loseAnswer(text: string, options?: { readonly gone?: boolean }): Promise<void>;
  /** So large a share of all answers is lost in the same way, from now on. */
  loseSome(share: number): void;
  /** Whether nothing goes through, in either direction, while connections stay open and new ones are taken. */
  freeze(frozen: boolean): void;
  /** The next connection is ended by the server in the very packet that says that it is ready. */
  endAtBirth(): void;
  /** Takes connections again. */
  comeBack(): Promise<void>;
}

/** "Ready for query", outside of a transaction: what the server says when a statement is committed. */
const ready = Buffer.from([0x5a, 0, 0, 0, 5, 0x49]);

/** What the server says when an administrator ends a connection. */
const fields = ["SFATAL", "VFATAL", "C57P01", "Mterminating connection due to administrator command", ""];
const text = Buffer.from(fields.join("\0") + "\0");
const fatal = Buffer.concat([Buffer.from([0x45, 0, 0, 0, text.length + 4]), text]);

export async function startProxy(target: string): Promise<Proxy> {
  const to = new URL(target);
  const sockets = new Set<Socket>();
  let frozen = false;
  let share = 0;
  let stillborn = false;
  let trap: { readonly text: string; readonly gone: boolean; readonly sprung: () => void } | null = null;

  const server = createServer((client) => {
    const upstream = connect(Number(to.port), to.hostname);
    const both = [client, upstream];
    let sprung: (() => void) | null = null;
    let said = Buffer.alloc(0);
    for (const socket of both) {
      sockets.add(socket);
      const end = () => both.forEach((one) => (sockets.delete(one), one.destroy()));
      socket.on("error", end).on("close", end);
    }
    client.on("data", (data) => {
      if (trap !== null && data.includes(trap.text)) {
        const { gone, sprung: tell } = trap;
        trap = null;
        sprung = () => {
          if (gone) server.close();
          tell();
          if (gone) for (const socket of sockets) socket.destroy();
        };
      }
      if (Math.random() < share) sprung ??= () => {};
      upstream.write(data);
    });
    const dies = stillborn;
    stillborn = false;
    upstream.on("data", (data) => {
      if (dies && data.subarray(-ready.length).equals(ready)) return void client.end(Buffer.concat([data, fatal]));
      if (sprung === null) return void client.write(data);
      said = Buffer.concat([said, data]);
      if (!said.subarray(-ready.length).equals(ready)) return;
      client.destroy();
      sprung();
    });
    if (frozen) for (const socket of both) socket.pause();
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as { port: number };
  const url = new URL(target);
  url.port = String(port);

  return {
    url: url.href,
    async loseAnswer(text, { gone = false } = {}) {
      await new Promise<void>((sprung) => (trap = { text, gone, sprung }));
    },
    loseSome(value) {
      share = value;
    },
    freeze(value) {
      frozen = value;
      for (const socket of sockets) {
        if (frozen) socket.pause();
        else socket.resume();
      }
    },
    endAtBirth() {
      stillborn = true;
    },
    async comeBack() {
      await once(server.listen(port, "127.0.0.1"), "listening");
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((closed) => server.close(closed));
    },
  };
}

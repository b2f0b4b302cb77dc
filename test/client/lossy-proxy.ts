import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo, Socket } from "node:net";

/** Passes everything on, but for the first answer to a call, which nobody gets: `instead` has the connection. */
export async function losesFirstAnswer(target: string, instead: (socket: Socket) => void = () => {}) {
  let lost = 0;
  const server = createServer((incoming, outgoing) => {
    const { host: _, ...headers } = incoming.headers;
    const onward = request(target, { method: incoming.method ?? "GET", headers }, (answer) => {
      if (incoming.headers["mcp-method"] === "tools/call" && lost === 0) {
        lost += 1;
        answer.resume();
        instead(incoming.socket);
        return;
      }
      outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`,
    lost: () => lost,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      server.close();
      await once(server, "close");
    },
  };
}

/**
 * Passes requests on to a server with bodies of untold length, which the server leaves to the SDK, and prints where. It
 * ends with whoever started it: `node untold-proxy.ts URL`.
 */
import { once } from "node:events";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";

const [target = ""] = process.argv.slice(2);

const proxy = createServer((incoming, outgoing) => {
  const { "content-length": _, ...headers } = incoming.headers;
  const framing = incoming.method === "POST" ? { "transfer-encoding": "chunked" } : {};
  const options = { method: incoming.method ?? "GET", headers: { ...headers, ...framing } };
  const onward = request(new URL(incoming.url ?? "/", target), options, (answer) => {
    outgoing.writeHead(answer.statusCode ?? 500, answer.headers);
    outgoing.flushHeaders();
    answer.pipe(outgoing);
  });
  onward.on("error", () => outgoing.destroy());
  outgoing.on("close", () => onward.destroy());
  incoming.pipe(onward);
});
proxy.listen(0, "127.0.0.1");
await once(proxy, "listening");
console.log(JSON.stringify({ url: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}/mcp` }));
process.stdin.on("end", () => process.exit()).resume();

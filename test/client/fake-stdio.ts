/** A scripted server over stdio: its tools are named by what they do. Speaks 2026-07-28 and nothing else. */
import { createInterface } from "node:readline";
import { ack, asking, completed, created, form, text } from "./wire.ts";

const send = (message: object) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const log: string[] = [];
let answer: string | undefined;

const call: Record<string, (id: unknown) => void> = {
  plain: (id) => send({ id, result: { resultType: "complete", ...text("plain") } }),
  task: (id) => send({ id, result: created() }),
  slow: (id) => setTimeout(() => send({ id, result: created({ taskId: "late" }) }), 300),
  log: (id) => send({ id, result: { resultType: "complete", ...text(JSON.stringify(log)) } }),
  silence: () => {},
};

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (method === "server/discover") {
    const capabilities = { tools: {}, extensions: { "io.modelcontextprotocol/tasks": {} } };
    send({
      id,
      result: {
        resultType: "complete",
        supportedVersions: ["2026-07-28"],
        capabilities,
        ttlMs: 0,
        cacheScope: "private",
      },
    });
    return;
  }
  log.push(method === "tools/call" ? `${method} ${params.name}` : `${method} ${params.taskId ?? ""}`.trim());
  if (method === "tools/call") call[params.name]?.(id);
  else if (method === "tasks/get")
    send({ id, result: answer === undefined ? asking({ who: form("Who?") }) : completed(answer) });
  else if (method === "tasks/update") {
    answer = params.inputResponses.who.content.name;
    send({ id, result: ack });
  } else if (method === "tasks/cancel") send({ id, result: ack });
});

import { request } from "node:http";

/** One request, down to its headers, and how its body's length is told. */
export interface Sent {
  readonly path?: string;
  readonly method?: string;
  /** Pairs, so that one can come twice. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  readonly body: string;
}

/** What came back, less what is another on each answer. */
export interface Came {
  readonly status: number | undefined;
  readonly headers: Readonly<Record<string, unknown>>;
  readonly body: unknown;
}

/**
 * Sends a request over a connection of its own. A body of untold length is as good a request as any, but never a plain
 * one: the SDK answers it.
 */
export function send(
  port: number,
  { path = "/mcp", method = "POST", headers, body }: Sent,
  told: boolean,
): Promise<Came> {
  const framing = told ? ["content-length", String(Buffer.byteLength(body))] : ["transfer-encoding", "chunked"];
  const all = [["host", `127.0.0.1:${port}`], ...headers, framing].filter(
    ([name], n, list) => name !== "host" || n === list.findLastIndex(([other]) => other === "host"),
  );
  return new Promise((resolve, reject) => {
    const sent = request({ host: "127.0.0.1", port, path, method, headers: all.flat(), agent: false }, (answer) => {
      let text = "";
      answer.setEncoding("utf8");
      answer.on("data", (part: string) => (text += part));
      answer.on("end", () => {
        const { date: _, "content-length": length, ...others } = answer.headers;
        const whole = length === undefined || Number(length) === Buffer.byteLength(text);
        resolve({
          status: answer.statusCode,
          headers: { ...others, whole, sized: length !== undefined },
          body: json(text),
        });
      });
    });
    sent.on("error", reject);
    sent.end(body);
  });
}

/** What a text says, or the text where it is no JSON. */
export function json(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

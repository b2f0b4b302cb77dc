import type { RequestId } from "@modelcontextprotocol/server";
import { TaskError, type RpcError } from "../errors.ts";

const parseError = -32700;

/** So many times the limit is still read, and thrown away, before a body that is too large is answered. */
const patience = 16;

/**
 * The text of a request's body, or what came instead. One that is too large is read on for a while: many clients look
 * for an answer only when they have sent all, and a connection that ends before that tells them nothing. `cut` says
 * that not even this reached its end, so that nothing can follow on the connection. Rejects when the sender goes away.
 */
async function readText(
  request: Request,
  maxBytes: number,
): Promise<{ readonly text: string } | { readonly tooLarge: true; readonly cut: boolean }> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of request.body ?? []) {
    size += chunk.byteLength;
    if (size <= maxBytes) chunks.push(chunk);
    else chunks.length = 0;
    if (size > maxBytes * patience) return { tooLarge: true, cut: true };
  }
  return size > maxBytes ? { tooLarge: true, cut: false } : { text: new TextDecoder().decode(Buffer.concat(chunks)) };
}

export function isEventStream(response: Response): boolean {
  return response.headers.get("content-type")?.startsWith("text/event-stream") === true;
}

/** The JSON of a request's body, or the refusal of what is too large, can't be read, or is none. */
export async function readBody(request: Request, maxBytes: number): Promise<unknown> {
  let text: string;
  try {
    const read = await readText(request, maxBytes);
    if ("tooLarge" in read) {
      const { code, message } = new TaskError("TOO_LARGE", { detail: `It may have ${maxBytes} bytes.` }).toRpc();
      const refusal = failure(413, { code, message });
      if (read.cut) refusal.headers.set("connection", "close");
      return refusal;
    }
    ({ text } = read);
  } catch {
    return failure(400, { code: parseError, message: "The request's body could not be read." });
  }
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return failure(400, { code: parseError, message: "The request's body is not JSON." });
  }
}

/** A refusal over HTTP. The id is null where none can be read. */
export function failure(status: number, error: RpcError, id: RequestId | null = null): Response {
  return Response.json({ jsonrpc: "2.0", id, error }, { status });
}

/** So many times the limit is still read, and thrown away, before a body that is too large is answered. */
const patience = 16;

/**
 * The text of a request's body, or what came instead. One that is too large is read on for a while: many clients look
 * for an answer only when they have sent all, and a connection that ends before that tells them nothing. `cut` says
 * that not even this reached its end, so that nothing can follow on the connection. Rejects when the sender goes away.
 */
export async function readText(
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

import { HttpOutlet, streamHeaders, type Outlet, type TextAnswer, type Writer } from "./outlet.ts";
import type { Pulse } from "./pulse.ts";

/** A web-standard response that is still to come. */
interface Coming {
  readonly resolve: (response: Response) => void;
  /** Called when its stream is given up. */
  given(): void;
  controller?: ReadableStreamDefaultController<Uint8Array>;
}

const encoder = new TextEncoder();

/** As much as a socket of Node's has before it asks to wait. */
const room = new ByteLengthQueuingStrategy({ highWaterMark: 64 * 1024 });

const webWriter: Writer<Coming> = {
  begin(coming) {
    const body = new ReadableStream<Uint8Array>(
      { start: (controller) => void (coming.controller = controller), cancel: () => coming.given() },
      room,
    );
    coming.resolve(new Response(body, { headers: streamHeaders }));
  },
  write: ({ controller }, text) => controller?.enqueue(encoder.encode(text)),
  finish: ({ controller }) => controller?.close(),
  whole: ({ resolve }, answer) => resolve(toResponse(answer)),
  hasRoom: ({ controller }) => (controller?.desiredSize ?? 1) > 0,
  isTaken: () => false,
};

/** An outlet whose response is a web-standard one. It is there with the first that is sent. */
export function webOutlet(
  asked: AbortSignal,
  pulse: Pulse,
): { readonly outlet: Outlet; readonly response: Promise<Response> } {
  const { promise: response, resolve } = Promise.withResolvers<Response>();
  const coming: Coming = { resolve, given: () => void outlet.leave() };
  const outlet = new HttpOutlet(coming, webWriter, pulse);
  const leave = () => {
    if (!outlet.leave()) return;
    // Nobody reads it, but whoever waits for it need not wait for ever.
    resolve(new Response(null, { status: 499 }));
    coming.controller?.close();
  };
  if (asked.aborted) leave();
  else asked.addEventListener("abort", leave, { once: true });
  return { outlet, response };
}

export function toResponse({ status, text, retryAfterSeconds }: TextAnswer): Response {
  const later = retryAfterSeconds === undefined ? {} : { "retry-after": String(retryAfterSeconds) };
  return new Response(text, { status, headers: { "content-type": "application/json", ...later } });
}

import type { TypedChannel } from "../channels.ts";

/** Subscribes; the function returned ends it. */
export function listen<M>(channel: TypedChannel<M>, listener: (message: M) => void): () => void {
  channel.subscribe(listener);
  return () => void channel.unsubscribe(listener);
}

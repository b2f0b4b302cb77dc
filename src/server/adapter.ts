import type { IncomingMessage, ServerResponse } from "node:http";
import { getRequestListener } from "@hono/node-server";
import type { AuthInfo } from "@modelcontextprotocol/server";
import type { TaskError } from "../errors.ts";
import { fastNode, type FastNodeOptions, type Known } from "./fast-node.ts";
import { answerTo } from "./methods.ts";

export interface AdapterOptions extends FastNodeOptions {
  readonly onError: (error: TaskError) => void;
}

/** A listener for `node:http`: plain requests have their short way, and `handle` gets the others as web-standard ones. */
export function nodeAdapter(
  { onError, ...options }: AdapterOptions,
  handle: (request: Request, known: Known) => Promise<Response>,
): (incoming: IncomingMessage, outgoing: ServerResponse) => void {
  const found = new WeakMap<IncomingMessage, Known>();
  const listener = getRequestListener(
    (request, { incoming }) => {
      const known = found.get(incoming as never) ?? {};
      return known.response ?? handle(request, known);
    },
    { overrideGlobalObjects: false },
  );
  const quick = fastNode(options);

  return (incoming, outgoing) => {
    const { auth, body } = incoming as { auth?: AuthInfo; body?: unknown };
    const brought = auth === undefined ? { body } : { auth, body };
    const failed = (thrown: unknown) => {
      answerTo(thrown, onError);
      outgoing.destroy();
    };
    const next = (known: Known, rawBody?: Buffer) => {
      found.set(incoming, known);
      // Where the adapter looks for a body that was read already.
      if (rawBody !== undefined) Object.assign(incoming, { rawBody });
      listener(incoming, outgoing).catch(failed);
    };
    quick(incoming, outgoing, brought, next).catch(failed);
  };
}

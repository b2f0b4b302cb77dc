import { isObject } from "./json.ts";

/** The extension's name, in client and server capabilities (Tasks extension, "Extension Identifier"). */
export const tasksExtension = "io.modelcontextprotocol/tasks";

/** Where a request of protocol 2026-07-28 says what its client can do. */
export const capabilitiesKey = "io.modelcontextprotocol/clientCapabilities";

/** The protocol revision in which the extension exists. */
export const tasksProtocol = "2026-07-28";

/** What a client declared on one request, as far as tasks depend on it. Stored with each task it created. */
export interface ClientCapabilities {
  readonly tasks: boolean;
  readonly elicitation: { readonly form: boolean; readonly url: boolean };
  readonly sampling: { readonly basic: boolean; readonly tools: boolean };
  readonly roots: boolean;
}

/** A client that declared nothing. */
export const noCapabilities: ClientCapabilities = {
  tasks: false,
  elicitation: { form: false, url: false },
  sampling: { basic: false, tools: false },
  roots: false,
};

/**
 * Reads a client's declared capabilities (the value under {@link capabilitiesKey}). An empty `elicitation` means
 * forms. The 2025-11-25 capability `tasks` declares nothing here: only the extension does.
 */
export function readCapabilities(declared: unknown): ClientCapabilities {
  if (!isObject(declared)) return noCapabilities;
  const { elicitation, sampling, roots, extensions } = declared;
  const asks = isObject(elicitation);
  return {
    tasks: isObject(extensions) && isObject(extensions[tasksExtension]),
    elicitation: {
      form: asks && (isObject(elicitation.form) || !isObject(elicitation.url)),
      url: asks && isObject(elicitation.url),
    },
    sampling: { basic: isObject(sampling), tools: isObject(sampling) && isObject(sampling.tools) },
    roots: isObject(roots),
  };
}

/** The `data` of a -32021 error that asks for the Tasks extension. */
export const tasksRequired = { requiredCapabilities: { extensions: { [tasksExtension]: {} } } };

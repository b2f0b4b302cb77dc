import { type Client, RELATED_TASK_META_KEY } from "@modelcontextprotocol/client";
import { tasksExtension } from "../protocol/capabilities.ts";
import { type InputContext, type InputHandlers, capabilitiesOf } from "./input.ts";

/**
 * Declares what we can do for all requests, and has the same handlers answer a server that asks by requests of its own,
 * as those before 2026-07-28 do.
 */
export function declare(client: Client, input: InputHandlers): void {
  client.registerCapabilities({ ...capabilitiesOf(input), extensions: { [tasksExtension]: {} } });
  const free = (method: string) => {
    try {
      client.assertCanSetRequestHandler(method);
      return true;
    } catch {
      return false;
    }
  };
  const { elicit, visit, sample, roots } = input;
  if ((elicit || visit) && free("elicitation/create")) {
    client.setRequestHandler("elicitation/create", async ({ params }, { mcpReq }) => {
      const context = contextOf(params._meta, mcpReq.signal);
      const answer = params.mode === "url" ? await visit?.(params, context) : await elicit?.(params, context);
      return answer ?? { action: "cancel" };
    });
  }
  if (sample && free("sampling/createMessage")) {
    client.setRequestHandler("sampling/createMessage", async ({ params }, { mcpReq }) =>
      given(await sample(params, contextOf(params._meta, mcpReq.signal))),
    );
  }
  if (roots && free("roots/list")) {
    client.setRequestHandler("roots/list", async (request, { mcpReq }) =>
      given(await roots(contextOf(request.params?._meta, mcpReq.signal))),
    );
  }
}

/** Such a request has no key. A task of 2025-11-25 names itself in it. */
function contextOf(meta: Readonly<Record<string, unknown>> | undefined, signal: AbortSignal): InputContext {
  const related = meta?.[RELATED_TASK_META_KEY] as { taskId?: unknown } | undefined;
  return { key: "", taskId: typeof related?.taskId === "string" ? related.taskId : undefined, signal };
}

/** A request of this kind can't be left open, only refused. */
function given<T>(answer: T | undefined): T {
  if (answer === undefined) throw new Error("The request was left unanswered");
  return answer;
}

import {
  type McpServer,
  ProtocolError,
  ResourceNotFoundError,
  ResourceTemplate,
  type AuthInfo,
} from "@modelcontextprotocol/server";
import type { Blobs } from "../blobs.ts";
import type { Engine } from "../engine/engine.ts";
import type { TaskError } from "../errors.ts";
import { resultKey, resultTemplate } from "../protocol/large.ts";
import { answerTo } from "./methods.ts";

/** What reading a large result takes. */
export interface ResultParts {
  readonly engine: Engine;
  readonly owner: (auth: AuthInfo | undefined) => string;
  readonly onError: (error: TaskError) => void;
}

/** Serves the results that are kept apart, each to the owner of its task, for as long as the task can be read. */
export function addResults(mcp: McpServer, { engine, owner, onError }: ResultParts, blobs: Blobs): void {
  const template = new ResourceTemplate(resultTemplate, { list: undefined });
  const about = { title: "Large results", description: "What a task returned, where it was too large to send along" };
  mcp.registerResource("task-result", template, about, async (uri, { taskId }, ctx) => {
    try {
      const task = await engine.read(String(taskId), owner(ctx.http?.authInfo));
      const text = await blobs.read(blobs.nameOf(task.id, resultKey(task.epoch)));
      if (task.status !== "completed" || text === null) throw new ResourceNotFoundError(uri.href);
      return { contents: [{ uri: uri.href, mimeType: "application/json", text }] };
    } catch (thrown) {
      if (thrown instanceof ProtocolError) throw thrown;
      const { code, message } = answerTo(thrown, onError);
      throw new ProtocolError(code, message);
    }
  });
}

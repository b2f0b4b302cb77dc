import type { CallToolResult } from "@modelcontextprotocol/client";
import { AjvJsonSchemaValidator } from "@modelcontextprotocol/client/validators/ajv";
import { invalid } from "./failures.ts";

/** What a server has told about its tools, as far as it was asked. */
export class KnownTools {
  readonly #tools = new Map<string, Record<string, unknown>>();
  /** Made when the first result is to be checked. */
  #validator: AjvJsonSchemaValidator | undefined;

  /** Takes note of the tools in a result, if it is one of `tools/list`. */
  note(result: unknown): void {
    const { tools } = (result ?? {}) as { tools?: unknown };
    if (!Array.isArray(tools)) return;
    for (const tool of tools as (Record<string, unknown> | null)[]) {
      if (typeof tool?.name === "string") this.#tools.set(tool.name, tool);
    }
  }

  clear(): void {
    this.#tools.clear();
  }

  /** Whether the tool may be called as a task of 2025-11-25. */
  mayBeTask(name: string): boolean {
    const { taskSupport } = (this.#tools.get(name)?.execution ?? {}) as { taskSupport?: unknown };
    return taskSupport === "required" || taskSupport === "optional";
  }

  /**
   * Checks what a task of this tool came to, as the SDK's client checks what a call did: where the tool's output schema
   * is known. Throws `INVALID_RESPONSE`.
   */
  check(name: string, result: CallToolResult, taskId: string): void {
    const schema = this.#tools.get(name)?.outputSchema;
    if (typeof schema !== "object" || schema === null || result.isError === true) return;
    if (result.structuredContent === undefined) {
      throw invalid({ taskId }, "The tool has an output schema, but its task has no structured content.");
    }
    this.#validator ??= new AjvJsonSchemaValidator();
    const { valid } = this.#validator.getValidator(schema)(result.structuredContent);
    if (!valid) throw invalid({ taskId }, "The result of the task doesn't match the tool's output schema.");
  }
}

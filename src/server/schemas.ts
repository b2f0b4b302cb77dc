import { McpServer } from "@modelcontextprotocol/server";
import type { z } from "zod";
import type { TaskTool } from "../tool.ts";

/** A schema as the SDK takes it. */
type Standard = { readonly "~standard": z.ZodType["~standard"] };

const known = new WeakMap<z.ZodType, Standard>();

/**
 * The same schema, whose JSON Schemas are made once: the SDK makes them anew for each server, and there is one for each
 * request. A schema that has none throws each time.
 */
export function convertedOnce(schema: z.ZodType): Standard {
  const found = known.get(schema);
  if (found !== undefined) return found;
  const standard = schema["~standard"];
  const { input, output } = standard.jsonSchema;
  const once = { "~standard": { ...standard, jsonSchema: { input: remembered(input), output: remembered(output) } } };
  known.set(schema, once);
  return once;
}

type Convert = z.ZodType["~standard"]["jsonSchema"]["input"];

function remembered(convert: Convert): Convert {
  const made = new Map<string, ReturnType<Convert>>();
  return (options) => {
    const key = JSON.stringify(options);
    const json = made.get(key) ?? convert(options);
    made.set(key, json);
    return json;
  };
}

const wrapped = new WeakMap<z.ZodType, boolean>();

/** Whether older clients see the output schema of a tool in a wrapping: it is one of something else than an object. */
export function isListedWrapped({ outputSchema }: TaskTool): boolean {
  if (outputSchema === undefined) return false;
  const found = wrapped.get(outputSchema);
  if (found !== undefined) return found;
  // As the SDK sees it, whose rules for schemas without a type are its own.
  const scratch = new McpServer({ name: "", version: "" });
  const listed = scratch.registerTool("tool", { outputSchema: convertedOnce(outputSchema) }, () => ({ content: [] }));
  const isWrapped = listed.outputSchemaJson?.type !== "object";
  wrapped.set(outputSchema, isWrapped);
  return isWrapped;
}

import type { z } from "zod";

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

import { z } from "zod";
import { TaskError } from "../errors.ts";

/** What a form field may be asked as: a JSON Schema fragment of the kinds that elicitation knows. */
export type FormField = Readonly<Record<string, unknown>>;

/** A `requestedSchema` of `elicitation/create` (core specification, "Elicitation", "Requested Schema"). */
export interface FormSchema {
  readonly type: "object";
  readonly properties: Readonly<Record<string, FormField>>;
  readonly required?: readonly string[];
}

type Json = Readonly<Record<string, unknown>>;

const formats = ["email", "uri", "date", "date-time"];

/**
 * A zod object as a form: one level of strings, numbers, booleans, choices and lists of choices. Rules that a form
 * can't carry (a pattern, a refinement) are left out here and hold when the answer is checked. Throws `MISUSE`, naming
 * the field, for what a form can't ask: nested objects, lists of anything but a fixed choice, unions, nullables.
 */
export function formSchema(schema: z.ZodObject): FormSchema {
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }) as Json;
  const properties: Record<string, FormField> = {};
  for (const [name, field] of Object.entries((json.properties ?? {}) as Record<string, Json>))
    properties[name] = formField(name, field);
  const required = json.required as string[] | undefined;
  return { type: "object", properties, ...(required === undefined ? {} : { required }) };
}

function formField(name: string, field: Json): FormField {
  const label = pick(field, ["title", "description", "default"]);
  const choice = choices(field);
  if (choice !== null) return { type: "string", ...label, ...choice("oneOf") };
  switch (field.type) {
    case "string":
      return {
        type: "string",
        ...label,
        ...pick(field, ["minLength", "maxLength"]),
        ...(formats.includes(String(field.format)) ? { format: field.format } : {}),
      };
    case "number":
    case "integer":
      if (field.enum === undefined && field.const === undefined)
        return { type: field.type, ...label, ...bounds(field, field.type === "integer") };
      break;
    case "boolean":
      if (field.const === undefined) return { type: "boolean", ...label };
      break;
    case "array": {
      const items = choices(field.items as Json | undefined);
      if (items !== null) {
        const form = items("anyOf");
        const list = "enum" in form ? { type: "string", ...form } : form;
        return { type: "array", ...label, ...pick(field, ["minItems", "maxItems"]), items: list };
      }
    }
  }
  throw new TaskError("MISUSE", {
    detail:
      `The field ${JSON.stringify(name)} can't be asked in a form. ` +
      "A form takes strings, numbers, booleans, choices of strings (z.enum) and lists of such choices.",
  });
}

/** The strings to choose from, in the form that elicitation wants them, or null if this is no choice of strings. */
function choices(field: Json | undefined): ((titled: "oneOf" | "anyOf") => FormField) | null {
  if (field === undefined) return null;
  const branches = (field.anyOf ?? field.oneOf) as Json[] | undefined;
  if (branches !== undefined) {
    if (!branches.every((branch) => typeof branch.const === "string")) return null;
    if (branches.every((branch) => branch.title === undefined))
      return () => ({ enum: branches.map((one) => one.const) });
    const options = branches.map((one) => ({ const: one.const, title: one.title ?? one.const }));
    return (titled) => ({ [titled]: options });
  }
  const values = field.const === undefined ? field.enum : [field.const];
  const strings = Array.isArray(values) && values.every((value) => typeof value === "string");
  return strings ? () => ({ enum: values }) : null;
}

/** Bounds of a number. Those that only say "a safe integer" would clutter a form. */
function bounds(field: Json, whole: boolean): FormField {
  const { minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below } = field as Record<string, number>;
  const step = whole ? 1 : 0;
  const low = minimum ?? (above === undefined ? undefined : above + step);
  const high = maximum ?? (below === undefined ? undefined : below - step);
  return {
    ...(low === undefined || low === Number.MIN_SAFE_INTEGER ? {} : { minimum: low }),
    ...(high === undefined || high === Number.MAX_SAFE_INTEGER ? {} : { maximum: high }),
  };
}

function pick(from: Json, names: readonly string[]): FormField {
  return Object.fromEntries(names.filter((name) => from[name] !== undefined).map((name) => [name, from[name]]));
}

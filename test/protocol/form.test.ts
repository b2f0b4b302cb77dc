import { expect, test } from "vitest";
import { z } from "zod";
import { formSchema } from "../../src/protocol/form.ts";
import { unfit } from "../../src/protocol/input.ts";
import { taskTool } from "../../src/tool.ts";

const schema = z.object({
  name: z.string().min(1).max(5).regex(/a/).describe("Yours"),
  mail: z.email(),
  day: z.iso.date().meta({ title: "Day" }),
  id: z.uuid().optional(),
  count: z.int().min(1),
  positive: z.int().positive().lt(10),
  ratio: z.number().gte(0).lte(1).multipleOf(0.1),
  sure: z.boolean().default(true),
  color: z.enum(["red", "blue"]),
  colors: z.array(z.enum(["red", "blue"])).max(2),
  kind: z.literal("only"),
  size: z.union([z.literal("s").meta({ title: "Small" }), z.literal("l")]),
  sizes: z.array(z.union([z.literal("s").meta({ title: "Small" }), z.literal("l")])),
});

test("a form carries what elicitation can ask, and leaves the rest to the check of the answer", () => {
  expect(formSchema(schema)).toEqual({
    type: "object",
    properties: {
      name: { type: "string", description: "Yours", minLength: 1, maxLength: 5 },
      mail: { type: "string", format: "email" },
      day: { type: "string", title: "Day", format: "date" },
      id: { type: "string" },
      count: { type: "integer", minimum: 1 },
      positive: { type: "integer", minimum: 1, maximum: 9 },
      ratio: { type: "number", minimum: 0, maximum: 1 },
      sure: { type: "boolean", default: true },
      color: { type: "string", enum: ["red", "blue"] },
      colors: { type: "array", maxItems: 2, items: { type: "string", enum: ["red", "blue"] } },
      kind: { type: "string", enum: ["only"] },
      size: {
        type: "string",
        oneOf: [
          { const: "s", title: "Small" },
          { const: "l", title: "l" },
        ],
      },
      sizes: {
        type: "array",
        items: {
          anyOf: [
            { const: "s", title: "Small" },
            { const: "l", title: "l" },
          ],
        },
      },
    },
    required: ["name", "mail", "day", "count", "positive", "ratio", "color", "colors", "kind", "size", "sizes"],
  });
});

test("an answer to every kind of field fits the form that asked for it", () => {
  const request = { method: "elicitation/create" as const, params: { requestedSchema: formSchema(schema) } };
  const content = {
    name: "ada",
    mail: "ada@example.org",
    day: "2026-07-28",
    count: 1,
    positive: 9,
    ratio: 0.5,
    color: "red",
    colors: ["red"],
    kind: "only",
    size: "l",
    sizes: ["s"],
  };
  expect(unfit(request, { action: "accept", content })).toBeNull();
  for (const wrong of [{ color: "green" }, { colors: ["green"] }, { size: "m" }, { count: 0 }, { sizes: "s" }])
    expect(
      unfit(request, { action: "accept", content: { ...content, ...wrong } }),
      JSON.stringify(wrong),
    ).not.toBeNull();
});

test.each<[string, z.ZodType]>([
  ["an object", z.object({})],
  ["a list of anything", z.array(z.string())],
  ["a list of numbers", z.array(z.int())],
  ["a nullable", z.string().nullable()],
  ["a union", z.union([z.string(), z.number()])],
  ["a date", z.date()],
  ["a choice of numbers", z.enum({ one: 1, two: 2 })],
  ["a fixed number", z.literal(1)],
  ["anything", z.unknown()],
  ["a tuple", z.tuple([z.enum(["a"])])],
])("%s can't be asked, and the error names the field", (_, field) => {
  expect(() => formSchema(z.object({ fine: z.string(), wrong: field }))).toThrow(/The field "wrong" can't be asked/);
});

test("a tool whose question no form can ask is refused where it is defined", () => {
  const before = { who: { message: "Who?", schema: z.object({ nested: z.object({}) }) } };
  const run = () => ({ content: [] });
  expect(() => taskTool({ name: "x", before, run })).toThrow(expect.objectContaining({ code: "MISUSE" }));
});

import { expect, test } from "vitest";
import { canonical } from "../../src/protocol/canonical.ts";

test.each([
  ['{"a":1,"b":[{"d":2,"c":3}]}', '{"b":[{"c":3,"d":2}],"a":1}'],
  ['{"__proto__":{"x":1},"a":2}', '{"a":2,"__proto__":{"x":1}}'],
  ['{"2":0,"10":0,"a":1.0}', '{"a":1,"10":0,"2":0}'],
])("%s and %s are the same", (one, other) => {
  expect(canonical(JSON.parse(one))).toBe(canonical(JSON.parse(other)));
});

test.each([
  ['{"a":[1,2]}', '{"a":[2,1]}'],
  ['{"a":1}', '{"a":"1"}'],
  ['{"__proto__":{"x":1}}', "{}"],
  ['{"a":null}', "{}"],
])("%s and %s are not", (one, other) => {
  expect(canonical(JSON.parse(one))).not.toBe(canonical(JSON.parse(other)));
});

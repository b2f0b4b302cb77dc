/** What a benchmark found. It fails for nothing that it measures: whether its aims are met is for the reader. */
export interface Result {
  /** One object for each thing that was measured, in the order of the table. */
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  readonly aims: readonly Aim[];
  /** What was measured, besides Node and SQLite: names and versions. */
  readonly versions?: Readonly<Record<string, string>>;
}

export interface Aim {
  /** What is wanted, with its unit. */
  readonly name: string;
  /** The bound, as a person says it. */
  readonly aim: string;
  /** Null: it could not be measured here. */
  readonly value: number | null;
  readonly met: boolean;
}

export type Benchmark = () => Promise<Result>;

export const below = (name: string, bound: number, value: number | null): Aim => ({
  ...{ name, aim: `below ${bound}`, value: value === null ? null : round(value, 3) },
  met: value !== null && value < bound,
});

export const atMost = (name: string, bound: number, value: number | null): Aim => ({
  ...{ name, aim: `at most ${bound}`, value: value === null ? null : round(value, 3) },
  met: value !== null && value <= bound,
});

export const atLeast = (name: string, bound: number, value: number | null): Aim => ({
  ...{ name, aim: `at least ${bound}`, value: value === null ? null : round(value, 3) },
  met: value !== null && value >= bound,
});

/** The value below which this share of the values lies. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}

export const median = (values: readonly number[]) => quantile(values, 0.5);

/** Rounded for people. */
export const round = (value: number, digits = 2) => Number(value.toFixed(digits));

/** Milliseconds that something took. */
export async function timed(work: () => Promise<unknown>): Promise<number> {
  const start = performance.now();
  await work();
  return performance.now() - start;
}

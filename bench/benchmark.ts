/** What a benchmark found. It says whether its aims are met, and fails for nothing. */
export interface Result {
  readonly rows: readonly Readonly<Record<string, string | number>>[];
  readonly aims: readonly { readonly aim: string; readonly value: string; readonly met: boolean }[];
}

export type Benchmark = () => Promise<Result>;

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

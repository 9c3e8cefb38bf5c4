/** Reads the inference profile: latency percentiles of each model with what they were spent on. */
import type { Table, ToolResult } from "../api/types";
import { CATEGORIES, type Category } from "./categories";
import { fieldsOf, isTable, numberOf, records, textOf } from "./tables";

/** What a request's time goes into, from the bottom of the stack; the colours are those of steps. */
export const REQUEST_PARTS: readonly { readonly column: string; readonly category: Category }[] = [
  ["device_compute_us", "compute", "Device compute"],
  ["host_preprocess_us", "host", "Host preprocess"],
  ["host_runtime_us", "launch", "Host runtime"],
  ["host_to_device_us", "input", "Copies to the device"],
  ["device_to_host_us", "output", "Copies from the device"],
  ["host_batch_formation_us", "compile", "Batch formation"],
  ["host_postprocess_us", "other", "Host postprocess"],
  ["idle_us", "idle", "Idle"],
].map(([column, id, label]) => ({ column: column as string, category: { ...(CATEGORIES.find((one) => one.id === id) as Category), label: label as string, short: label as string } }));

/** The rest of a request is in no part: all of it where servers do not record what they do. */
export const REST: Category = { id: "d2d", label: "Not told apart", short: "Not told apart" };

export interface Percentile {
  readonly percentile: number;
  readonly label: string;
  readonly latencyMs: number;
  readonly parts: ReadonlyMap<string, number>;
}

export interface Model {
  /** Empty where no request names its model. */
  readonly name: string;
  readonly requests: number;
  readonly perSecond: number | null;
  readonly averageMs: number | null;
  readonly batches: number;
  readonly batchesPerSecond: number | null;
  readonly efficiency: number | null;
  readonly parameters: readonly (readonly [string, string])[];
  readonly percentiles: readonly Percentile[];
}

const PARAMETERS: readonly (readonly [string, string])[] = [
  ["num_batch_threads", "Batch threads"],
  ["max_batch_size", "Largest batch"],
  ["batch_timeout_us", "Batch timeout, µs"],
  ["max_enqueued_batches", "Batches that may wait"],
  ["allowed_batch_sizes", "Batch sizes allowed"],
];

const labelOf = (percentile: number): string => (percentile === 0 ? "min" : percentile === 100 ? "max" : `p${percentile}`);

/** Models by requests, the busiest first. */
export function models(result: ToolResult): Model[] {
  const own = fieldsOf(result.result);
  const latency = records(own["latency"]);
  return records(own["models"])
    .map((row): Model => {
      const name = textOf(row["model"]) ?? "";
      const ms = (value: unknown): number | null => ((us) => (us === null ? null : us / 1e3))(numberOf(value));
      return {
        name,
        requests: numberOf(row["request_count"]) ?? 0,
        perSecond: numberOf(row["requests_per_second"]),
        averageMs: ms(row["avg_latency_us"]),
        batches: numberOf(row["batch_count"]) ?? 0,
        batchesPerSecond: numberOf(row["batches_per_second"]),
        efficiency: numberOf(row["batching_efficiency_ratio"]),
        parameters: PARAMETERS.flatMap(([id, label]) => (row[id] === null || row[id] === undefined ? [] : [[label, String(row[id])] as const])),
        percentiles: latency
          .filter((one) => (textOf(one["model"]) ?? "") === name)
          .map((one): Percentile => {
            const total = ms(one["latency_us"]) ?? 0;
            const parts = new Map(REQUEST_PARTS.map(({ column, category }) => [category.id, ms(one[column]) ?? 0]));
            const told = [...parts.values()].reduce((sum, part) => sum + part, 0);
            parts.set(REST.id, Math.max(total - told, 0));
            const percentile = numberOf(one["percentile"]) ?? 0;
            return { percentile, label: labelOf(percentile), latencyMs: total, parts };
          }),
      };
    })
    .sort((a, b) => b.requests - a.requests || (a.name < b.name ? -1 : 1));
}

/** The rows of one model, without the column that says so. */
export function ofModel(value: unknown, model: string): Table | null {
  if (!isTable(value)) return null;
  const at = value.columns.findIndex((column) => column.id === "model");
  if (at < 0) return value;
  const without = <T,>(cells: readonly T[]): T[] => cells.filter((_, i) => i !== at);
  return {
    columns: without(value.columns),
    rows: value.rows.filter((row) => (row[at] ?? "") === model).map((row) => without(row)),
  };
}

/** The part that takes most of a request, in which it spends its time. */
export function longestPart(at: Percentile): { readonly category: Category; readonly ratio: number } | null {
  const known = REQUEST_PARTS.map(({ category }) => ({ category, ratio: at.latencyMs > 0 ? (at.parts.get(category.id) ?? 0) / at.latencyMs : 0 }));
  const longest = known.reduce((a, b) => (b.ratio > a.ratio ? b : a));
  return longest.ratio > 0 ? longest : null;
}

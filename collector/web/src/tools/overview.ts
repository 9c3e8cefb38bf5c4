/** Reads the overview's result into what its page shows. */
import type { ToolResult } from "../api/types";
import { type Category } from "./categories";
import { deviation, mean, readSteps, type StepTable } from "./steps";
import { numberOf, records, textOf } from "./tables";

export interface CategoryShare {
  readonly category: Category;
  readonly meanMs: number;
  readonly deviationMs: number;
  readonly ratio: number;
}

/** Mean, deviation and share of each category over the steps; the share is of the mean step. */
export function categoryShares(steps: StepTable): CategoryShare[] {
  const total = mean(steps.rows.map((row) => row.totalMs));
  return steps.categories.map((category) => {
    const values = steps.rows.map((row) => row.parts.get(category.id) ?? 0);
    return { category, meanMs: mean(values), deviationMs: deviation(values), ratio: total > 0 ? mean(values) / total : 0 };
  });
}

export interface TopOp {
  readonly name: string;
  readonly category: string;
  readonly selfRatio: number | null;
  readonly cumulativeRatio: number | null;
  readonly flopsPerSecond: number | null;
  /** Of GPUs: whether its kernels run on tensor cores; unknown where their names do not tell, null where it could not. */
  readonly tensorCores: "used" | "not used" | "unknown" | null;
}

/** The steps that all hosts recorded from begin to end, and how many were cut. */
export function overviewSteps(result: ToolResult): { readonly steps: StepTable; readonly cut: number } {
  const all = readSteps(result.result["steps"]);
  const rows = all.rows.filter((row) => row.isComplete);
  // Where the capture is so short that every step is cut, those are all there is.
  if (rows.length === 0) return { steps: all, cut: 0 };
  return { steps: { ...all, rows }, cut: all.rows.length - rows.length };
}

export function topOps(result: ToolResult): TopOp[] {
  return records(result.result["top_ops"]).map((row) => ({
    name: textOf(row["operation"]) ?? "",
    category: textOf(row["category"]) ?? "",
    selfRatio: numberOf(row["self_time_ratio"]),
    cumulativeRatio: numberOf(row["cumulative_ratio"]),
    flopsPerSecond: numberOf(row["flops_per_second"]),
    tensorCores: row["uses_tensor_core"] === true ? "used" : row["is_tensor_core_eligible"] === true ? (row["uses_tensor_core"] === false ? "not used" : "unknown") : null,
  }));
}

/** Where the top operations ran: `device` or, on CPU runs, `host_execution`. */
export function topOpsPlace(result: ToolResult): string {
  return textOf(result.result["top_ops_place"]) ?? "device";
}

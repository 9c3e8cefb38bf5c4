/** Reads the overview's result into what its page shows. */
import type { ToolResult } from "../api/types";
import { type Category } from "./categories";
import { deviation, mean, readSteps, type StepTable } from "./steps";
import { fieldsOf, numberOf, records, textOf } from "./tables";

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
  }));
}

/** Where the top operations ran: `device` or, on CPU runs, `host_execution`. */
export function topOpsPlace(result: ToolResult): string {
  return textOf(result.result["top_ops_place"]) ?? "device";
}

export interface Advice {
  readonly title: string;
  readonly text: string;
  /** The page that says more. */
  readonly tool: string | null;
}

const BY_CODE: Readonly<Record<string, readonly [string, string | null]>> = {
  straggler: ["Look at the late host", "pod_viewer"],
  input: ["Look at the input", "input_pipeline_analyzer"],
  output: ["Look at the output", null],
  kernel_launch: ["Launch fewer, longer kernels", "kernel_stats"],
  collectives: ["Shorten or hide the collectives", "pod_viewer"],
  all_other: ["Find what the rest of the step does", "framework_op_stats"],
  precision: ["Use 16 bits where the model allows it", "framework_op_stats"],
  eager: ["Compile what runs eagerly", "framework_op_stats"],
  outside_compilation: ["Move host operations out of the step", "framework_op_stats"],
};

export function advice(result: ToolResult): Advice[] {
  const found = result.result["recommendations"];
  const classified = fieldsOf(result.result["bottleneck"])["classification"];
  const inputBound = classified === "host" || classified === "both";
  return (Array.isArray(found) ? found : []).flatMap((item): Advice[] => {
    const fields = fieldsOf(item);
    const text = textOf(fields["message"]);
    // That the input is no bottleneck is worth a word, but nothing to do.
    if (fields["code"] === "input" && !inputBound) return [];
    const [title, tool] = BY_CODE[textOf(fields["code"]) ?? ""] ?? ["", null];
    return text ? [{ title, text, tool }] : [];
  });
}

/** Reads the tables of GPU kernels and says what tensor cores are used for. */
import type { Cell, Table, ToolResult } from "../api/types";
import { columnAt } from "./framework-ops";
import { fieldsOf, isTable, numberOf } from "./tables";

export type KernelRow = readonly Cell[];

/** Which kernels are listed: by what their operation could run on and what they do run on. */
export type TensorCores = "" | "used" | "unused";

export interface KernelStats {
  readonly table: Table | null;
  readonly operations: Table | null;
  readonly at: (row: KernelRow, id: string) => Cell;
  readonly totalUs: (rows: readonly KernelRow[]) => number;
}

export const DURATION = /^total_duration_us$/;
export const KERNEL = /^kernel_name$/;
export const KERNEL_OP = /^op_name$/;

export function kernelStats(result: ToolResult): KernelStats {
  const own = fieldsOf(result.result);
  const table = isTable(own["kernels"]) ? own["kernels"] : null;
  const places = new Map(table?.columns.map((column, at) => [column.id, at]));
  const at = (row: KernelRow, id: string): Cell => row[places.get(id) ?? -1] ?? null;
  const time = table ? columnAt(table, DURATION) : -1;
  return {
    table,
    operations: isTable(own["operations"]) ? own["operations"] : null,
    at,
    totalUs: (rows) => rows.reduce((sum, row) => sum + (numberOf(row[time]) ?? 0), 0),
  };
}

/** Whether the capture tells which kernels use tensor cores: of GPUs of an unknown maker it does not. */
export function tellsTensorCores(stats: KernelStats): boolean {
  return stats.table?.rows.some((row) => stats.at(row, "is_kernel_using_tensor_core") !== null) ?? false;
}

/** Kernels of operations that could use tensor cores, by whether they do. */
export function byTensorCores(stats: KernelStats, rows: readonly KernelRow[], wanted: TensorCores): readonly KernelRow[] {
  if (wanted === "") return rows;
  return rows.filter((row) => stats.at(row, "is_kernel_using_tensor_core") === (wanted === "used") && (wanted === "used" || stats.at(row, "is_op_tensor_core_eligible") === true));
}

/** Kernels in whose name or operation the text is. */
export function filterKernels(stats: KernelStats, search: string, cores: TensorCores): readonly KernelRow[] {
  const wanted = search.trim().toLowerCase();
  const rows = byTensorCores(stats, stats.table?.rows ?? [], cores);
  return wanted === "" ? rows : rows.filter((row) => ["kernel_name", "op_name"].some((id) => String(stats.at(row, id) ?? "").toLowerCase().includes(wanted)));
}

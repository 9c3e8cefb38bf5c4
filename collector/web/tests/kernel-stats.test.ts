import { expect, test } from "vitest";

import type { Column, ToolResult } from "../src/api/types";
import { resultColumns } from "../src/components/result-columns";
import { rankBy } from "../src/tools/framework-ops";
import { byTensorCores, DURATION, filterKernels, KERNEL, KERNEL_OP, kernelStats, tellsTensorCores } from "../src/tools/kernel-stats";

const column = (id: string, type: Column["type"], unit = ""): Column => ({ id, label: id, type, unit });
const kernels = {
  columns: [
    column("rank", "integer"),
    column("kernel_name", "string"),
    column("shared_memory_bytes", "integer", "bytes"),
    column("is_op_tensor_core_eligible", "boolean"),
    column("is_kernel_using_tensor_core", "boolean"),
    column("op_name", "string"),
    column("total_duration_us", "number", "us"),
    column("note", "string"),
  ],
  rows: [
    [1, "gemm", 2048, true, true, "layer/dot", 3000, ""],
    [2, "gemm", 2048, true, false, "head/dot", 1000, ""],
    [3, "add", 0, false, false, "layer/add", 1000, ""],
  ],
};
const stats = kernelStats({ result: { kernels } } as unknown as ToolResult);
const ranks = (rows: readonly (readonly unknown[])[]): unknown[] => rows.map((row) => row[0]);

test("kernels are told apart by what they could run on and what they do", () => {
  expect(ranks(byTensorCores(stats, kernels.rows, "used"))).toEqual([1]);
  expect(ranks(byTensorCores(stats, kernels.rows, "unused"))).toEqual([2]);
  expect(stats.totalUs(kernels.rows)).toBe(5000);
});

test("kernels of GPUs of an unknown maker leave no tensor core unused", () => {
  const rows = [[1, "gemm", null, true, null, null, 3000, ""], [2, "add", null, null, null, "layer/add", 1000, ""]];
  const untold = kernelStats({ result: { kernels: { ...kernels, rows } } } as unknown as ToolResult);
  expect([tellsTensorCores(stats), tellsTensorCores(untold)]).toEqual([true, false]);
  expect(byTensorCores(untold, rows, "unused")).toEqual([]);
  expect(byTensorCores(untold, rows, "used")).toEqual([]);
  // A kernel without an operation counts in the shares, and is no operation called null.
  expect(rankBy({ ...kernels, rows }, rows, KERNEL_OP, 8, DURATION).map(({ name, ratio }) => [name, ratio])).toEqual([["layer/add", 0.25]]);
});

test("kernels are found by name and by operation", () => {
  expect(ranks(filterKernels(stats, "LAYER", ""))).toEqual([1, 3]);
  expect(ranks(filterKernels(stats, "gemm", "unused"))).toEqual([2]);
});

test("kernels of one name are ranked together", () => {
  expect(rankBy(kernels, kernels.rows, KERNEL, 8, DURATION).map(({ name, ratio }) => [name, ratio])).toEqual([["gemm", 0.8], ["add", 0.2]]);
});

test("a column has one unit, names come first and what no row says is left out", () => {
  const columns = resultColumns(kernels, { names: KERNEL, hidden: /^rank$/ });
  expect(columns.map(({ id, unit }) => [id, unit ?? ""])).toEqual([
    ["kernel_name", ""],
    ["shared_memory_bytes", "KiB"],
    ["is_op_tensor_core_eligible", ""],
    ["is_kernel_using_tensor_core", ""],
    ["op_name", ""],
    ["total_duration_us", "ms"],
  ]);
  expect(columns[5]?.cell?.(kernels.rows[0] as never)).toBe("3.000");
  expect(columns[1]?.cell?.(kernels.rows[0] as never)).toBe("2.000");
});

import { describe, expect, it } from "vitest";

import type { ToolResult } from "../src/api/types";
import { filterInstructions, hloStats } from "../src/tools/hlo-stats";
import { instructionPath } from "../src/tools/pages";

const IDS = ["program_id", "category", "hlo_op_name", "hlo_op_expression", "framework_name", "source"];
const STATS = hloStats({
  result: {
    instructions: {
      columns: IDS.map((id) => ({ id, label: id, type: "string", unit: "" })),
      rows: [
        ["1", "fusion", "fusion.1", "%fusion.1 = f32[8] fusion()", "layer/mlp", "model.py:3"],
        ["1", "copy", "copy.2", "%copy.2 = f32[8] copy()", null, null],
        ["2", "fusion", "fusion.1", "%fusion.1 = f32[4] fusion()", "layer/attention", "model.py:9"],
      ],
    },
  },
} as unknown as ToolResult);
const found = (filter: Partial<{ program: string; category: string; search: string }>): string[] =>
  filterInstructions(STATS, { program: "", category: "", search: "", ...filter }).map((row) => `${String(row[0])} ${String(row[2])}`);

describe("the table of instructions", () => {
  it("filters by program, category, and what stands in names, text and source", () => {
    expect(STATS.programs).toEqual(["1", "2"]);
    expect(STATS.categories).toEqual(["copy", "fusion"]);
    expect(found({ search: "fusion.1" })).toEqual(["1 fusion.1", "2 fusion.1"]);
    expect(found({ search: "fusion.1", program: "2" })).toEqual(["2 fusion.1"]);
    expect(found({ category: "copy" })).toEqual(["1 copy.2"]);
    expect(found({ search: "Attention" })).toEqual(["2 fusion.1"]);
    expect(found({ search: "model.py:3" })).toEqual(["1 fusion.1"]);
    expect(found({ search: "null" })).toEqual([]);
  });

  it("leads to the graph where the program is known", () => {
    expect(instructionPath("c", "7", "add.1", "h0")).toBe("/captures/c/graph_viewer?host=h0&program=7&node=add.1");
    expect(instructionPath("c", "0", "add.1", null)).toBeNull();
    expect(instructionPath("c", "7", null, null)).toBeNull();
  });
});

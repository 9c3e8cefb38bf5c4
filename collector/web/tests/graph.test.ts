import { expect, test } from "vitest";

import type { ToolResult } from "../src/api/types";
import { cut, graphOf, kindOf } from "../src/tools/graph";

test("a long name keeps its end, which tells it apart", () => {
  expect(cut("short", 200)).toBe("short");
  const shown = cut("bitcast_dynamic-update-slice_fusion.118", 140);
  expect(shown.length).toBeLessThanOrEqual(18);
  expect(shown.startsWith("bitcast")).toBe(true);
  expect(shown.endsWith("sion.118")).toBe(true);
});

test("kinds of instructions", () => {
  expect(["all-reduce", "dot", "while", "transpose", "parameter", "reduce", "fusion", "tanh"].map(kindOf)).toEqual([
    "collective", "product", "call", "layout", "given", "reduce", "fusion", "element",
  ]);
});

test("what is not shown is counted on the node", () => {
  const columns = ["name", "opcode", "x", "y", "width", "height", "self_time_ps", "operands_left_out", "users_left_out"].map((id) => ({ id, label: id, type: "number", unit: "" }));
  const result = {
    result: {
      graph: { instructions: 30, shown: 1, cursor: "1", width_px: 100, height_px: 40 },
      nodes: { columns, rows: [["dot.1", "dot", 0, 0, 100, 40, 5, 2, 27]] },
    },
  } as unknown as ToolResult;
  const graph = graphOf(result);
  expect(graph.nodes[0]).toMatchObject({ name: "dot.1", hidden: 29, selfPs: 5, flops: null });
  expect([graph.total, graph.shown, graph.cursor]).toEqual([30, 1, "1"]);
  expect([graph.edges, graph.groups]).toEqual([[], []]);
});

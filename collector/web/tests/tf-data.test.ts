import { describe, expect, it } from "vitest";

import type { Cell, ToolResult } from "../src/api/types";
import { pipelineNodes } from "../src/tools/tf-data";

const table = (ids: readonly string[], rows: readonly (readonly Cell[])[]) => ({
  columns: ids.map((id) => ({ id, label: id, type: "string" as const, unit: "" })),
  rows,
});
const result = (fields: Record<string, unknown>): ToolResult => ({
  tool: "tf_data_bottleneck_analysis", version: 1, status: "ok", reasons: [], losses: [], advice: [],
  scope: { capture: null, session: null, hosts: ["h0"], missing_hosts: [] },
  result: fields,
});

describe("a pipeline's graph", () => {
  const ids = ["host", "pipeline", "iterator_id", "parent_id", "iterator", "slowest_self_time_us", "is_critical"];
  const rows: Cell[][] = [
    ["h0", "Host:0", "1", "0", "Root", 5, true],
    ["h0", "Host:0", "2", "1", "Zip", 10, true],
    ["h0", "Host:0", "3", "2", "Range", 80, true],
    ["h0", "Host:0", "4", "2", "TFRecord", 20, false],
    ["h0", "Host:1", "9", "0", "Other", 1, false],
  ];

  it("goes from sources to the root, side by side where they join", () => {
    const nodes = pipelineNodes(result({ iterators: table(ids, rows) }), "h0", "Host:0");
    expect(nodes.map((node) => [node.name, node.column, node.row])).toEqual([
      ["Root", 2, 0],
      ["Zip", 1, 0],
      ["Range", 0, 0],
      ["TFRecord", 0, 1],
    ]);
    expect(nodes.filter((node) => node.isBottleneck).map((node) => node.name)).toEqual(["Range"]);
  });

  it("starts at the root though an iterator has the id that the root's asker lacks", () => {
    const real = [["h0", "Host:0", "7", "0", "Root", 1, true], ["h0", "Host:0", "0", "7", "Prefetch", 2, true], ["h0", "Host:0", "3", "0", "Map", 9, true]];
    const pipelines = table(["host", "pipeline", "root_id"], [["h0", "Host:0", "7"]]);
    expect(pipelineNodes(result({ iterators: table(ids, real), pipelines }), "h0", "Host:0").map((node) => [node.name, node.column])).toEqual([["Root", 2], ["Prefetch", 1], ["Map", 0]]);
  });

  it("ends even where iterators name each other", () => {
    const looped = [["h0", "Host:0", "1", "2", "A", 1, false], ["h0", "Host:0", "2", "1", "B", 1, false]];
    expect(pipelineNodes(result({ iterators: table(ids, looped) }), "h0", "Host:0")).toHaveLength(2);
  });
});

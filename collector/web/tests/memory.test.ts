import { describe, expect, it } from "vitest";

import type { Cell, ToolResult } from "../src/api/types";
import { bufferOf, heapPoints, padding, peakBuffers, timelinePoints } from "../src/tools/memory";

const table = (ids: readonly string[], rows: readonly (readonly Cell[])[]) => ({
  columns: ids.map((id) => ({ id, label: id, type: "string" as const, unit: "" })),
  rows,
});
const result = (fields: Record<string, unknown>): ToolResult => ({
  tool: "memory_viewer", version: 1, status: "ok", reasons: [], losses: [], advice: [],
  scope: { capture: null, session: null, hosts: ["h0"], missing_hosts: [] },
  result: fields,
});

const PEAK = table(
  ["order", "buffer_id", "instruction", "size_bytes", "unpadded_bytes", "begin_position", "end_position"],
  [
    [0, 11, "param.1", 100, 100, null, null],
    [1, 12, "fusion.2", 300, 200, 4, 9],
    [2, null, "smaller than 16384 bytes", 50, null, null, null],
  ],
);

describe("buffers at the peak", () => {
  it("are ordered by size, program and padding", () => {
    const viewer = result({ peak_buffers: PEAK });
    expect(peakBuffers(viewer, "size").map((one) => one.bytes)).toEqual([300, 100, 50]);
    expect(peakBuffers(viewer, "program").map((one) => one.order)).toEqual([0, 1, 2]);
    expect(peakBuffers(viewer, "padding").map(padding)).toEqual([100, 0, 0]);
  });

  it("are found by id, and those laid out but not live at the peak too", () => {
    const viewer = result({
      peak_buffers: PEAK,
      blocks: table(["buffer_id", "name", "size_bytes", "begin_position", "end_position"], [[null, "Temporary", 900, 0, 20], [33, "copy.3", 70, 1, 2]]),
    });
    expect(bufferOf(viewer, "12")?.begin).toBe(4);
    expect(bufferOf(viewer, "33")).toMatchObject({ name: "copy.3", bytes: 70, unpadded: null });
    expect(bufferOf(viewer, "null")).toBeUndefined();
    expect(bufferOf(viewer, null)).toBeUndefined();
  });
});

describe("levels", () => {
  it("keep the heap with and without padding", () => {
    const viewer = result({ heap: table(["position", "instruction", "heap_bytes", "unpadded_heap_bytes"], [[0, "a", 10, 8], [1, "", 0, 0]]) });
    expect(heapPoints(viewer)).toEqual([
      { x: 0, most: 10, second: 8, title: "a" },
      { x: 1, most: 0, second: 0, title: "the end" },
    ]);
  });

  it("keep least and most of one allocator's moments", () => {
    const profile = result({
      timeline: table(["allocator", "begin_ms", "min_used_bytes", "max_used_bytes", "max_fragmentation_ratio", "op_name"], [["0", 1, 5, 9, 0.25, "x"], ["1", 1, 7, 8, null, "y"]]),
    });
    expect(timelinePoints(profile, "0")).toEqual([{ x: 1, most: 9, least: 5, strip: 0.25, title: "x" }]);
  });
});

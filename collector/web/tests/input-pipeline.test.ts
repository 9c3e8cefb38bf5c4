import { expect, test } from "vitest";

import type { Table, ToolResult } from "../src/api/types";
import { coreOfHost, inputPipeline, inputStages, longestStage } from "../src/tools/input-pipeline";

const table = (ids: string[], rows: Table["rows"]): Table => ({
  columns: ids.map((id) => ({ id, label: id, type: "number" as const, unit: id.endsWith("_ms") ? "ms" : id.endsWith("_ratio") ? "ratio" : "" })),
  rows,
});
const resultOf = (result: Record<string, unknown>): ToolResult => ({ result }) as unknown as ToolResult;

test("the five stages stand from the source to the device, with their shares", () => {
  const stages = inputStages({ enqueue: 10, demanded_file_read: 0, advanced_file_read: 30, preprocessing: 60, unclassified: 0 });
  expect(stages?.map((stage) => [stage.id, stage.ratio])).toEqual([["demanded", 0], ["advanced", 0.3], ["preprocessing", 0.6], ["unclassified", 0], ["enqueue", 0.1]]);
  expect(longestStage(stages)?.id).toBe("preprocessing");
});

test("no recorded operation is not five zeros", () => {
  expect(inputStages(null)).toBeNull();
  expect(longestStage(null)).toBeNull();
  expect(longestStage(inputStages({ enqueue: 0 }))).toBeNull();
});

test("a core beside its host goes without the host's name", () => {
  expect(["h1:0", "h10:0", "TPU 3"].map((core) => coreOfHost({ host: "h1", core }))).toEqual(["0", "h10:0", "TPU 3"]);
});

test("steps, ranges and cores are read, hosts without cores told from cores", () => {
  const read = inputPipeline(
    resultOf({
      classification: "host",
      statement: "The program is HIGHLY input-bound: 40.0% of the step time.",
      evidence: ["one"],
      input_ratio: { average: 0.4, standard_deviation: 0.01, minimum: 0.3, maximum: 0.5 },
      core_count: 9,
      series: table(
        ["step", "host", "duration_ms", "device_compute_ms", "input_ms", "input_ratio", "least_input_ratio", "most_input_ratio", "input_host", "input_core"],
        [[3, "h0", 10, 6, 4, 0.4, 0.3, 0.5, "h1", ""]],
      ),
      cores: table(["host", "core_id", "core", "step_count", "input_ratio", "least_input_ratio", "most_input_ratio"], [["h1", 1001, "", 5, 0.5, 0.4, 0.6]]),
    }),
  );
  expect(read.classification).toBe("host");
  // Ratios are no part of the step.
  expect([...(read.steps.rows[0]?.parts ?? [])].filter(([, ms]) => ms > 0)).toEqual([["compute", 6], ["input", 4]]);
  expect(read.series).toEqual([{ step: "3", ratio: 0.4, least: 0.3, most: 0.5, longest: "h1" }]);
  expect([read.cores[0]?.key, read.hasCores, read.coreCount]).toEqual(["h1 1001", false, 9]);
  expect(read.ratio).toEqual({ average: 0.4, deviation: 0.01, least: 0.3, most: 0.5 });
});

test("an empty result reads as unknown, with nothing measured", () => {
  const read = inputPipeline(resultOf({ classification: "unknown", input_ratio: null, step_time_ms: null, host_input_time_us: null }));
  expect([read.classification, read.ratio, read.stepMs, read.stages]).toEqual(["unknown", null, null, null]);
  expect([read.series, read.cores, read.ops]).toEqual([[], [], []]);
});

import { expect, test } from "vitest";

import type { Table, ToolResult } from "../src/api/types";
import { longestPart, models, ofModel } from "../src/tools/inference";

const table = (ids: string[], rows: Table["rows"]): Table => ({ columns: ids.map((id) => ({ id, label: id, type: "number" as const, unit: "" })), rows });

const latency = table(
  ["model", "percentile", "latency_us", "host_preprocess_us", "device_compute_us"],
  [["a", 0, 1000, 100, 400], ["a", 99, 9000, 6000, 500], ["b", 99, 10, null, null]],
);
const result = {
  result: {
    latency,
    models: table(["model", "request_count", "requests_per_second", "avg_latency_us", "batch_count", "max_batch_size"], [["b", 1, null, 10, 0, null], ["a", 50, 20, 2000, 4, 8]]),
  },
} as unknown as ToolResult;

test("models come with the busiest first, and their percentiles with what is left over", () => {
  const [a, b] = models(result);
  expect([a?.name, a?.perSecond, a?.averageMs, a?.batches]).toEqual(["a", 20, 2, 4]);
  expect(a?.parameters).toEqual([["Largest batch", "8"]]);
  expect(a?.percentiles.map((one) => [one.label, one.latencyMs, one.parts.get("d2d")])).toEqual([["min", 1, 0.5], ["p99", 9, 2.5]]);
  expect([b?.name, b?.perSecond, b?.percentiles.length]).toEqual(["b", null, 1]);
});

test("the longest part of a request is named, and none where nothing is told", () => {
  const [a, b] = models(result);
  const slow = longestPart(a!.percentiles[1]!);
  expect([slow?.category.label, slow?.ratio]).toEqual(["Host preprocess", 6 / 9]);
  expect(longestPart(b!.percentiles[0]!)).toBeNull();
});

test("tables are cut to one model", () => {
  expect(ofModel(latency, "b")?.rows).toEqual([[99, 10, null, null]]);
  expect(ofModel(latency, "b")?.columns[0]?.id).toBe("percentile");
  expect(ofModel(undefined, "b")).toBeNull();
});

import { describe, expect, test } from "vitest";

import { routeOf } from "../src/app";
import type { AskedPair, Capture, Comparison, Table, ToolResult } from "../src/api/types";
import { comparisonRoute } from "../src/api/client";
import {
  categoryChanges,
  defaultPair,
  density,
  hostChanges,
  isSameSide,
  ownWorkChange,
  ownWorkOf,
  pairQuery,
  rowChanges,
  rowTables,
  stepDurations,
  stepRange,
  stepRowChanges,
  stepTime,
  total,
  typedSteps,
} from "../src/tools/compare";
import { comparisonOfHosts, comparisonOfSteps } from "../src/tools/pages";
import { typicalHost, type Unit } from "../src/tools/pod";

const table = (ids: readonly string[], rows: Table["rows"], units: Readonly<Record<string, string>> = {}): Table => ({
  columns: ids.map((id) => ({ id, label: id, type: "string", unit: units[id] ?? "" })),
  rows,
});

const STEP = ["measure", "match", "base_mean", "other_mean", "change", "change_ratio", "change_low", "change_high", "significance", "unit"];

function comparison(tables: Comparison["tables"], step: Record<string, unknown> | null = null): Comparison {
  return { tool: "overview_page", status: "ok", basis: "step", notes: [], reasons: [], summary: { step_time: step, tables: {} }, tables } as unknown as Comparison;
}

describe("comparisons", () => {
  const steps = table(STEP, [
    ["duration_us", "both", 10_000, 12_000, 2000, 0.2, 1500, 2500, "significant", "us"],
    ["device_compute_us", "both", 8000, 8100, 100, 0.0125, -10, 210, "within_noise", "us"],
    ["collectives_us", "both", 1000, 2900, 1900, 1.9, 1700, 2100, "significant", "us"],
    ["own_work_us", "both", 9000, 9100, 100, 0.0111, -10, 210, "within_noise", "us"],
  ]);

  test("steps are read in milliseconds, by category, without the whole", () => {
    const changes = categoryChanges(comparison({ steps }));
    expect(changes.map((one) => [one.category.id, one.base, one.other, one.judgement])).toEqual([
      ["compute", 8, 8.1, "within_noise"],
      ["collective", 1, 2.9, "significant"],
    ]);
    const whole = stepTime(comparison({}, Object.fromEntries(STEP.map((id, i) => [id, steps.rows[0]?.[i]]))));
    expect(whole).toMatchObject({ base: 10, other: 12, change: 2, low: 1.5, high: 2.5, judgement: "significant" });
    expect(stepTime(comparison({}))).toBeNull();
  });

  test("hosts are those of their own work, in the order of their names", () => {
    const ids = ["host", ...STEP];
    const hosts = table(ids, [
      ["w1", "own_work_us", "both", 1000, 2000, 1000, 1, 900, 1100, "significant", "us"],
      ["w0", "own_work_us", "vanished", 1000, null, -1000, -1, null, null, "unknown", "us"],
      ["w0", "duration_us", "both", 1, 1, 0, 0, 0, 0, "within_noise", "us"],
    ]);
    expect(hostChanges(comparison({ steps: hosts }))).toEqual([
      { host: "w0", base: 1, other: null, judgement: "unknown" },
      { host: "w1", base: 1, other: 2, judgement: "significant" },
    ]);
  });

  test("rows have a name, what it is, both values and the change with its unit", () => {
    const ids = ["hlo_op_name", "category", "framework_name", "place", "match", "base_rows", "other_rows", "base_total_self_time_us", "other_total_self_time_us", "change_us", "change_ratio", "base_occurrences", "other_occurrences", "significance"];
    const rows = table(ids, [
      ["fusion.1", "loop fusion", "jit(f)/add", "device", "both", 1, 1, 4, 6, 2, 0.5, 10, 10, "unknown"],
      ["fusion.2", "loop fusion", null, "device", "appeared", 0, 1, null, 1, 1, null, null, 10, "unknown"],
    ], { change_us: "us" });
    const found = rowChanges(rows);
    expect(found.unit).toBe("us");
    expect(found.rows[0]).toMatchObject({ name: "fusion.1", about: "jit(f)/add", kind: "loop fusion", base: 4, other: 6, change: 2, ratio: 0.5, baseCount: 10, otherCount: 10 });
    expect(found.rows[1]).toMatchObject({ match: "appeared", about: "", base: null, ratio: null, baseCount: null });
    expect(rowTables(comparison({ steps, totals: rows, instructions: rows })).map(([name]) => name)).toEqual(["instructions"]);
  });

  test("totals by name", () => {
    const totals = table(["name", "base", "other"], [["utilization.duty_cycle_ratio", 0.9, 0.8]]);
    expect(total(comparison({ totals }), "utilization.duty_cycle_ratio")).toEqual({ base: 0.9, other: 0.8 });
    expect(total(comparison({}), "x")).toEqual({ base: null, other: null });
  });

  test("a density peaks at 1 where the values are", () => {
    const at = [0, 1, 2, 3, 4];
    const found = density([2, 2, 2.1, 1.9], at);
    expect(Math.max(...found)).toBe(1);
    expect(found[2]).toBe(1);
    expect(density([], at)).toEqual([0, 0, 0, 0, 0]);
  });

  test("without a choice, the newest analysed capture and the one before it of its run", () => {
    const capture = (id: string, run: string, state = "done"): Capture => ({ id, run, analysis: { state } }) as unknown as Capture;
    const list = [capture("5", "a", "running"), capture("4", "a"), capture("3", "b"), capture("2", "a")];
    expect(defaultPair(list, null)).toEqual({ base: "2", other: "4" });
    expect(defaultPair([capture("6", "c"), ...list], null)).toEqual({ base: "2", other: "4" });
    expect(defaultPair(list, "3")).toEqual({ base: "2", other: "3" });
    expect(defaultPair([], null)).toEqual({ base: null, other: null });
    expect(routeOf("/compare").page).toBe("compare");
  });
});

describe("hosts and ranges of steps", () => {
  const pair: AskedPair = {
    base: { capture: "a", host: "w/0", steps: "0-3" },
    other: { capture: "b", host: null, steps: "4-7" },
  };

  test("what is asked is the service's query, and the page's", () => {
    expect(comparisonRoute(pair, "hlo_stats")).toBe("/captures/b/tools/hlo_stats/diff?base=a&base_host=w%2F0&steps=4-7&base_steps=0-3");
    expect(pairQuery(pair)).toEqual({ base: "a", capture: "b", base_host: "w/0", host: null, base_steps: "0-3", steps: "4-7" });
    expect(isSameSide(pair.base, pair.base)).toBe(true);
    expect(isSameSide(pair.base, { ...pair.base, steps: null })).toBe(false);
  });

  test.each([
    ["3-7", "3-7"],
    [" 3 to 7 ", "3-7"],
    ["3\u20137", "3-7"],
    ["3..7", "3-7"],
    ["5", "5"],
    ["5-5", "5"],
    ["", null],
    ["All", null],
    ["7-3", undefined],
    ["x", undefined],
    ["3-", undefined],
  ])("%j is read as %j", (text, range) => expect(typedSteps(text)).toBe(range));

  test("a range has a first and a last step", () => {
    expect(stepRange("3-7")).toEqual([3, 7]);
    expect(stepRange("5")).toEqual([5, 5]);
    expect(stepRange(null)).toBeNull();
  });

  const result = (ids: readonly string[], rows: Table["rows"]): ToolResult => ({ result: { steps: table(ids, rows) } }) as unknown as ToolResult;

  test("durations are those of the complete steps asked for", () => {
    const steps = result(["step", "duration_us", "is_complete"], [[0, 9000, false], [1, 1000, true], [2, 2000, true], [3, 3000, true]]);
    expect(stepDurations(steps)).toEqual([1, 2, 3]);
    expect(stepDurations(steps, "2-9")).toEqual([2, 3]);
  });

  test("own work of a host is the mean of its cores in every step", () => {
    const pod = result(["step", "host", "own_work_us"], [[2, "w0", 4000], [1, "w0", 1000], [1, "w0", 3000], [1, "w1", 9000]]);
    expect(ownWorkOf(pod, "w0")).toEqual([2, 4]);
    expect(ownWorkOf(pod, "w0", "2")).toEqual([4]);
    expect(ownWorkOf(pod, "w9")).toEqual([]);
    const ids = ["host", ...STEP];
    const own = table(ids, [["w0", "own_work_us", "both", 1000, 2000, 1000, 1, 900, 1100, "significant", "us"]]);
    expect(ownWorkChange(comparison({ steps: own }))).toMatchObject({ base: 1, other: 2, judgement: "significant" });
    expect(ownWorkChange(comparison({}))).toBeNull();
  });

  test("of a tree the operations are the rows, of other tools the parts of a step", () => {
    const tree = table(["name", "kind", "node", ...STEP.slice(0, 1), "label", ...STEP.slice(1)], [
      ["by_program", "root", "", "self_time_us", "Self time", "both", 9, 9, 0, 0, 0, 0, "within_noise", "us"],
      ["fusion.1", "op", "p/fusion.1", "self_time_us", "Self time", "both", 2, 3, 1, 0.5, 0.8, 1.2, "significant", "us"],
    ]);
    const ops = stepRowChanges(tree);
    expect([ops.unit, ops.rows.length]).toEqual(["us", 1]);
    expect(ops.rows[0]).toMatchObject({ name: "fusion.1", base: 2, other: 3, change: 1, judgement: "significant" });
    const parts = table(["host", "measure", "label", ...STEP.slice(1)], [["w0", "input_us", "Input", "both", 2, 3, 1, 0.5, 0, 2, "within_noise", "us"]]);
    expect(stepRowChanges(parts).rows[0]).toMatchObject({ name: "Input", about: "w0", judgement: "within_noise" });
  });

  test("links lead from hosts and steps to their comparison", () => {
    const capture = { id: "a", summary: { slow_host: "w1" } } as unknown as Capture;
    expect(comparisonOfHosts(capture, ["w0", "w1", "w2"])).toBe("/compare?base=a&capture=a&base_host=w0&host=w1");
    expect(comparisonOfHosts({ id: "a", summary: null } as unknown as Capture, ["w0", "w1"])).toBe("/compare?base=a&capture=a&base_host=w0&host=w1");
    const steps = ["1", "2", "3", "4", "5", "6", "7"];
    expect(comparisonOfSteps("a", steps, null)).toBe("/compare?base=a&capture=a&base_steps=1-3&steps=4-7");
    expect(comparisonOfSteps("a", steps, "5")).toBe("/compare?base=a&capture=a&base_steps=1-4&steps=5-7");
    expect(comparisonOfSteps("a", steps, "2")).toBeNull();
    expect(comparisonOfSteps("a", steps.slice(0, 5), null)).toBeNull();
  });

  test("a host is compared with one of median own work", () => {
    const units = [["w0", 5], ["w1", 9], ["w2", 1], ["w3", 4]].map(([host, ownMs]) => ({ host, ownMs }) as unknown as Unit);
    expect(typicalHost(units, "w1")?.host).toBe("w3");
    expect(typicalHost(units.slice(1, 2), "w1")).toBeNull();
  });
});

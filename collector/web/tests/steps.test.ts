import { describe, expect, test } from "vitest";

import type { Table, ToolResult } from "../src/api/types";
import { categoryOf } from "../src/tools/categories";
import { categoryShares, overviewSteps, topOps } from "../src/tools/overview";
import { hostUnits, lateHosts, lateSteps, overMedian, podSteps, slowCores, slowestOfStep } from "../src/tools/pod";
import { deviation, median, readSteps } from "../src/tools/steps";

const column = (id: string, type: "string" | "number" | "integer" = "number", unit = "") => ({ id, label: id, type, unit });
const table = (columns: ReturnType<typeof column>[], rows: (string | number | null)[][]): Table => ({ columns, rows });
const resultOf = (result: Record<string, unknown>): ToolResult => ({
  tool: "t",
  version: 1,
  scope: { capture: null, session: null, hosts: [], missing_hosts: [] },
  status: "ok",
  reasons: [],
  losses: [],
  advice: [],
  result,
});

const POD = table(
  [column("step_num", "integer"), column("host_name", "string"), column("core_id", "integer"), column("total_duration_us"), column("device_compute_us"), column("device_collectives_us"), column("input_us")],
  [
    [4, "w-0", 1, 1000, 600, 300, 100],
    [4, "w-0", 2, 1000, 800, 100, 100],
    [4, "w-1", 1001, 1000, 500, 400, 100],
    [4, "w-2", 2001, 1000, 510, 390, 100],
    [5, "w-0", 1, 2000, 1500, 500, 0],
  ],
);

describe("the step table of a result", () => {
  test("comes in milliseconds whatever unit its columns have", () => {
    const { rows } = readSteps(POD);
    expect(rows[0]).toMatchObject({ step: "4", host: "w-0", core: "1", totalMs: 1 });
    expect(rows[0]?.parts.get("compute")).toBeCloseTo(0.6);
    expect(rows[0]?.parts.get("collective")).toBeCloseTo(0.3);
    const ps = readSteps(table([column("step_num", "integer"), column("step_time_ps"), column("infeed_ps")], [[1, 2e9, 5e8]]));
    expect(ps.rows[0]?.totalMs).toBe(2);
    expect(ps.rows[0]?.parts.get("input")).toBe(0.5);
  });

  test("sums its parts where no column has the total, and names what occurs in stack order", () => {
    const found = readSteps(table([column("step", "integer"), column("input", "number", "ms"), column("device_compute", "number", "ms"), column("output", "number", "ms")], [[1, 2, 3, 0]]));
    expect(found.rows[0]?.totalMs).toBe(5);
    expect(found.categories.map((category) => category.id)).toEqual(["compute", "input"]);
  });

  test("is empty for what is no table", () => {
    expect(readSteps(null).rows).toEqual([]);
    expect(readSteps({ columns: 3 }).rows).toEqual([]);
  });

test("a pod of which some steps are listed says how many there are, and where to go on", () => {
  const some = podSteps(resultOf({ steps: POD, step_count: 1000, first_step: 12, next_step: 24 }));
  expect([some.stepCount, some.first, some.next]).toEqual([1000, 12, 24]);
  const all = podSteps(resultOf({ steps: POD }));
  expect([all.stepCount, all.first, all.next]).toEqual([all.steps.length, 0, null]);
});

  test("gives mean, deviation and share of every category", () => {
    const steps = readSteps(table([column("step", "integer"), column("total", "number", "ms"), column("compute", "number", "ms")], [[1, 10, 4], [2, 10, 8]]));
    expect(categoryShares(steps)).toMatchObject([{ meanMs: 6, deviationMs: 2, ratio: 0.6 }]);
  });
});

test.each([
  ["device_compute_16", "compute"],
  ["device_to_device", "d2d"],
  ["device_collectives", "collective"],
  ["Device collective communication", "collective"],
  ["host_compute", "host"],
  ["kernel_launch", "launch"],
  ["host_wait_input", "input"],
  ["host_to_device", "input"],
  ["device_to_host", "output"],
  ["outfeed", "output"],
  ["compilation", "compile"],
  ["all_others", "other"],
  ["idle", "idle"],
  ["host_transfer", "host"],
])("%s is the category %s", (name, id) => {
  expect(categoryOf(name).id).toBe(id);
});

describe("the pod", () => {
  const pod = podSteps(resultOf({ steps: POD }));

  test("has its steps and hosts in the order of the result", () => {
    expect(pod.steps).toEqual(["4", "5"]);
    expect(pod.hosts).toEqual(["w-0", "w-1", "w-2"]);
    expect(pod.cores.get("4")).toHaveLength(4);
  });

  test("a host stands for its slowest core, and own work leaves collectives out", () => {
    const units = pod.units.get("4") ?? [];
    expect(units.map((unit) => [unit.key, Math.round(unit.ownMs * 1000)])).toEqual([["w-0", 900], ["w-1", 600], ["w-2", 610]]);
    expect(hostUnits([])).toEqual([]);
  });

  test("own work is what the result says where it says it", () => {
    const told = { columns: [...POD.columns, column("own_work_us")], rows: POD.rows.map((row) => [...row, 250]) };
    expect(podSteps(resultOf({ steps: told })).units.get("4")?.map((unit) => unit.ownMs)).toEqual([0.25, 0.25, 0.25]);
  });

  test("measures every host against the median of the step", () => {
    const over = overMedian(pod.units.get("4") ?? []);
    expect(over.get("w-0")).toBeCloseTo(900 / 610 - 1);
    expect(over.get("w-2")).toBeCloseTo(0);
  });

  test("late hosts are those that the analyzer names", () => {
    expect(lateHosts(resultOf({ straggler: { verdict: "straggler", host: "w-0", stragglers: [{ host: "w-0", lateness_us: 290, persistence_ratio: 1, cause: "compute", evidence: ["a", 3] }] } }))).toMatchObject([
      { host: "w-0", latenessMs: 0.29, persistenceRatio: 1, cause: "compute", evidence: ["a"] },
    ]);
    expect(lateHosts(resultOf({ straggler: { verdict: "even", host: null, stragglers: [] } }))).toEqual([]);
    expect(lateHosts(resultOf({ straggler: { host: "w-1", lateness_us: 5 } }))).toMatchObject([{ host: "w-1", latenessMs: 0.005 }]);
    expect(lateHosts(resultOf({}))).toEqual([]);
  });

  test("a host that lacks steps is late in those that it has", () => {
    const [late] = lateHosts(resultOf({ straggler: { stragglers: [{ host: "w-0", lateness_us: 290, persistence_ratio: 1, step_count: 6 }] } }));
    expect(late && lateSteps(late, 12)).toBe("6 of 6");
    const [old] = lateHosts(resultOf({ straggler: { stragglers: [{ host: "w-0", lateness_us: 290, persistence_ratio: 0.5 }] } }));
    expect(old && lateSteps(old, 12)).toBe("6 of 12");
  });

  test("a slow core is told with its host, also where no host is late", () => {
    const verdict = { verdict: "one_host", host: null, stragglers: [], slow_cores: [{ host: "w-0", core: "w-0:1", lateness_us: 6000, lateness_ratio: 0.3 }] };
    expect(slowCores(resultOf({ straggler: verdict }))).toEqual([{ host: "w-0", core: "w-0:1", latenessMs: 6, latenessRatio: 0.3 }]);
    expect(slowCores(resultOf({ straggler: { verdict: "one_host" } }))).toEqual([]);
  });

  test("where nobody stands out a step still waits for its slowest", () => {
    expect(slowestOfStep(resultOf({ straggler: { verdict: "even", stragglers: [], slowest_lateness_us: 4000, slowest_lateness_ratio: 0.2 } }))).toEqual({ latenessMs: 4, latenessRatio: 0.2 });
    expect(slowestOfStep(resultOf({ straggler: { verdict: "even", stragglers: [] } }))).toBeNull();
  });
});

test("the overview's means are of complete steps, unless every step is cut", () => {
  const steps = (complete: boolean[]): Table => ({
    columns: [column("step", "integer"), column("begin_us"), column("duration_us"), column("device_compute_us"), { ...column("is_complete"), type: "boolean" as never }],
    rows: complete.map((is, i) => [i, 5, 1000 * (i + 1), 1000, is]),
  });
  const some = overviewSteps(resultOf({ steps: steps([false, true, true]) }));
  expect(some.cut).toBe(1);
  expect(some.steps.rows.map((row) => row.totalMs)).toEqual([2, 3]);
  expect(overviewSteps(resultOf({ steps: steps([false, false]) })).steps.rows).toHaveLength(2);
});

test("median and deviation of few values", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1])).toBe(2.5);
  expect(median([])).toBe(0);
  expect(deviation([2, 4])).toBe(1);
});

test("an operation that could use tensor cores is not called ineligible where nobody knows", () => {
  const columns = [column("operation", "string" as never), { ...column("is_tensor_core_eligible"), type: "boolean" as never }, { ...column("uses_tensor_core"), type: "boolean" as never }];
  const rows = [["a", true, true], ["b", true, false], ["c", true, null], ["d", false, false], ["e", null, null]];
  expect(topOps(resultOf({ top_ops: { columns, rows } as Table })).map((op) => op.tensorCores)).toEqual(["used", "not used", "unknown", null, null]);
});

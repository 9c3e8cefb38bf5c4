import { describe, expect, test } from "vitest";

import type { Capture, Table, ToolResult } from "../src/api/types";
import { formatSort, nextSort, parseSort, sortRows } from "../src/components/data-table";
import { stripBars } from "../src/components/host-strip";
import { heatStep } from "../src/components/heat-map";
import { thin } from "../src/components/stacked-columns";
import { csv } from "../src/format/csv";
import { matches, stepTimeChanges } from "../src/pages/captures/filter";
import { routeOf } from "../src/app";
import { filterOps, opTables, rankBy, sharesOf } from "../src/tools/framework-ops";
import { href } from "../src/url";

describe("sorting", () => {
  const columns = [
    { id: "a", label: "a", numeric: true, value: (row: (number | null)[]) => row[0] ?? null },
    { id: "b", label: "b", value: (row: (number | null)[]) => row[1] ?? null },
  ];
  test("runs by several keys, what is absent last in either direction", () => {
    const rows = [[1, 2], [null, 0], [1, 1], [3, 0]];
    expect(sortRows(rows, columns, parseSort("-a,b"))).toEqual([[3, 0], [1, 1], [1, 2], [null, 0]]);
    expect(sortRows(rows, columns, parseSort("a")).at(-1)).toEqual([null, 0]);
  });
  test("a click sorts, again reverses, shift adds; numbers begin with the largest", () => {
    expect(formatSort(nextSort([], "a", true, false))).toBe("-a");
    expect(formatSort(nextSort(parseSort("-a"), "a", true, false))).toBe("a");
    expect(formatSort(nextSort(parseSort("-a"), "b", false, true))).toBe("-a,b");
  });
});

test("a CSV cell that a spreadsheet would run stays text", () => {
  expect(csv(["name"], [["=1+1"], ["-3.5"], ["a,b"], ['say "x"'], [null], [-2]])).toBe('name\r\n\'=1+1\r\n-3.5\r\n"a,b"\r\n"say ""x"""\r\n\r\n-2\r\n');
});

test("above 64 hosts a strip has 16 bars, each as bad as its worst host", () => {
  const marks = Array.from({ length: 1024 }, (_, i) => (i === 1023 ? ("failed" as const) : ("stored" as const)));
  expect(stripBars(marks)).toHaveLength(16);
  expect(stripBars(marks).at(-1)).toBe("failed");
  expect(stripBars(marks.slice(0, 64))).toHaveLength(64);
});

test("more columns than fit are drawn by the tallest of neighbours", () => {
  const columns = Array.from({ length: 10 }, (_, i) => ({ key: String(i), label: "", total: i, parts: new Map() }));
  const { columns: drawn, per } = thin(columns, 4);
  expect(per).toBe(3);
  expect(drawn.map((column) => column.total)).toEqual([2, 5, 8, 9]);
  expect(thin(columns, 20).per).toBe(1);
});

test("heat runs from the quiet colour to the last one at the hottest value", () => {
  expect([-1, 0, 0.01, 0.5, 1].map((value) => heatStep(value, 1))).toEqual([0, 0, 0, 4, 7]);
});

describe("the op table", () => {
  const columns = ["host_or_device", "type", "operation"].map((id) => ({ id, label: id, type: "string" as const, unit: "" }));
  const table: Table = {
    columns: [...columns, { id: "total_self_time_us", label: "", type: "number", unit: "us" }],
    rows: [["Device", "MatMul", "m1", 30], ["Device", "MatMul", "m2", 10], ["Device", "IDLE", "IDLE", 60], ["Host", "Dataset", "next", 5]],
  };
  test("takes each table by its name", () => {
    const other = { ...table, rows: table.rows.slice(0, 1) };
    const two = opTables({ result: { with_idle: table, without_idle: other } } as unknown as ToolResult);
    expect(two.withIdle).toBe(table);
    expect(two.withoutIdle).toBe(other);
    expect(two.annotations).toBeNull();
  });
  test("shows the shares of one side and grouping, and not the nameless rest", () => {
    const ids = ["host_or_device", "grouped_by", "name", "operation_count", "total_self_time_us", "self_time_ratio"];
    const shares: Table = {
      columns: ids.map((id) => ({ id, label: id, type: "string" as const, unit: "" })),
      rows: [["device", "type", "dot", 2, 60, 0.6], ["device", "type", null, 9, 40, 0.4], ["device", "operation", "dot.1", 1, 50, 0.5], ["host", "type", "Add", 1, 5, 1]],
    };
    expect(sharesOf(shares, "Device", "type", 8)).toEqual([{ name: "dot", time: 60, ratio: 0.6 }]);
    expect(sharesOf(shares, "Host", "operation", 8)).toEqual([]);
    expect(sharesOf(null, "Host", "type", 8)).toEqual([]);
  });
  test("filters by side and text, and ranks self time by a column", () => {
    expect(filterOps(table, "Host", "")).toHaveLength(1);
    expect(filterOps(table, "", "matmul")).toHaveLength(2);
    const cpu = { ...table, rows: [["host_execution", "dot", "dot.1", 30] as const, ...table.rows] };
    expect(filterOps(cpu, "Program", "").map((row) => row[2])).toEqual(["dot.1"]);
    expect(rankBy(table, filterOps(table, "Device", ""), /^type$/, 1)).toEqual([{ name: "IDLE", time: 60, ratio: 0.6 }]);
  });
});

describe("the list", () => {
  const now = new Date("2026-11-21T12:00:00Z");
  const capture = (id: string, part: Record<string, unknown> = {}): Capture =>
    ({ id, run: "r", state: "complete", trigger: "manual", created_at: "2026-11-21T11:30:00Z", labels: {}, session: "s", analysis: { state: "done" }, summary: { step_time_ms: 100 }, ...part }) as unknown as Capture;
  test("compares a capture with the one before it of the same run", () => {
    const changes = stepTimeChanges([capture("c", { summary: { step_time_ms: 110 } }), capture("x", { run: "other" }), capture("b")]);
    expect(changes.get("c")).toBeCloseTo(0.1);
    expect(changes.get("b")).toBe("first");
    expect(changes.get("x")).toBe("first");
  });
  test("is filtered by text, state and age", () => {
    const none = { q: "", run: "", status: "", trigger: "", hours: "" };
    expect(matches(capture("a", { labels: { team: "Blue" } }), { ...none, q: "blue" }, now)).toBe(true);
    expect(matches(capture("a"), { ...none, q: "blue" }, now)).toBe(false);
    expect(matches(capture("a", { analysis: { state: "running" } }), { ...none, status: "live" }, now)).toBe(true);
    expect(matches(capture("a", { created_at: "2026-11-21T10:00:00Z" }), { ...none, hours: "1" }, now)).toBe(false);
  });
});

test("addresses name a page, and defaults leave no trace in the query", () => {
  expect(routeOf("/captures/1/pod_viewer")).toEqual({ page: "tool", capture: "1", tool: "pod_viewer" });
  expect(routeOf("/captures/1")).toEqual({ page: "tool", capture: "1", tool: "overview_page" });
  expect(routeOf("/")).toMatchObject({ page: "captures" });
  expect(routeOf("/a/b/c/d")).toMatchObject({ page: "unknown" });
  expect(href("/captures", { q: "", host: null, sort: "-self_time,name", step: 0 })).toBe("/captures?sort=-self_time,name&step=0");
});

import { expect, test } from "vitest";

import type { Table, ToolResult } from "../src/api/types";
import { byName } from "../src/format/numbers";
import { deviceGrid, doWait, gridKey, hostArrivals, ownMeans, podSteps } from "../src/tools/pod";

const table = (ids: string[], rows: Table["rows"]): Table => ({ columns: ids.map((id) => ({ id, label: id, type: "number" as const, unit: "" })), rows });
const resultOf = (result: Record<string, unknown>): ToolResult => ({ result }) as unknown as ToolResult;
const CORES = ["core_id", "host", "local_chip_id", "core_on_chip", "global_chip_id", "is_sparse_core"];

test("devices stand by host and chip, hosts in the order of the pod", () => {
  const grid = deviceGrid(resultOf({ cores: table(CORES, [[2, "b", 0, 0, 4, false], [10, "b", 1, 0, 5, false], [1002, "a", 0, 0, 8, false], [1010, "a", 1, 0, 9, false], [1000001, "a", 0, 0, 8, true]]) }));
  expect([grid?.hosts, grid?.columns, grid?.isOrdered]).toEqual([["b", "a"], ["0", "1"], true]);
  expect(grid?.cores.get(gridKey("a", "1"))).toBe("1010");
});

test("several cores of a chip have a place each", () => {
  const grid = deviceGrid(resultOf({ cores: table(CORES, [[2, "a", 0, 0, 0, false], [3, "a", 0, 1, 0, false], [4, "a", 1, 0, 1, false]]) }));
  expect(grid?.columns).toEqual(["0.0", "0.1", "1.0"]);
});

test("without chips, or with two cores in one place, nothing is drawn", () => {
  expect(deviceGrid(resultOf({ cores: table(CORES, []) }))).toBeNull();
  expect(deviceGrid(resultOf({ cores: table(CORES, [[2, "a", 0, 0, null, false], [3, "a", 0, 0, null, false]]) }))).toBeNull();
  expect(deviceGrid(resultOf({ cores: table(CORES, [[2, "a", 0, 0, null, false], [3, "a", 1, 0, null, false]]) }))?.isOrdered).toBe(false);
});

test("hosts that met others come with the latest first", () => {
  const hosts = table(["host", "arrival_lateness_us", "arrival_error_us", "last_arrivals", "collective_count"], [["a", -200, null, 0, 9], ["b", null, null, null, null], ["c", 5000, 40, 9, 9]]);
  expect(hostArrivals(resultOf({ hosts }))).toEqual([
    { host: "c", latenessMs: 5, errorMs: 0.04, last: 9, collectives: 9 },
    { host: "a", latenessMs: -0.2, errorMs: null, last: 0, collectives: 9 },
  ]);
  expect(hostArrivals(resultOf({}))).toEqual([]);
});

test("hosts wait for the late one only where they meet in collectives", () => {
  const waiting = (ratio: number | null): boolean => doWait(resultOf({ straggler: { host: "a", waiting_ratio: ratio } }));
  expect([waiting(0.3), waiting(0.001), waiting(0), waiting(null)]).toEqual([true, false, false, false]);
});

test("the own work of a host is the mean over the steps that it has, by its slowest core", () => {
  const ids = ["step", "host", "core_id", "duration_ms", "own_work_ms"];
  const steps = table(ids, [["0", "a", 1, 10, 4], ["0", "a", 2, 10, 6], ["0", "b", 3, 10, 3], ["1", "a", 1, 10, 8]]);
  expect([...ownMeans(podSteps(resultOf({ steps })))]).toEqual([["a", 7], ["b", 3]]);
  expect(["w-10", "w-2"].sort(byName)).toEqual(["w-2", "w-10"]);
});

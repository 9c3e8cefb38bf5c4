import { expect, test } from "vitest";

import type { Alignment, CaptureSummary, ClockCheck } from "../src/api/types";
import { startedTogether } from "../src/tools/clocks";

const alignment: Alignment = { hosts: 2, skew_ns: 3_000_000, error_ns: null, common_ns: 2_000_000_000, outside: [] };
const check: ClockCheck = {
  basis: "collective_ends", hosts: 2, ends: 1200, residual_ns: 500_000_000, error_ns: 20_000, promised_ns: null,
  ahead: "b", behind: "a", unplaced: [], skew_ns: 1_500_000,
};
const summary: CaptureSummary = {
  device_type: null, step_count: null, step_time_ms: null, duty_cycle_ratio: null, flops_per_second: null,
  breakdown: null, slow_host: null, clock_check: check,
};

test("the starts are by the ends that the hosts share, where there are such ends", () => {
  expect(startedTogether({ alignment, summary: null })?.words).toBe("started within 3.00 ms");
  const found = startedTogether({ alignment, summary });
  expect(found?.words).toBe("started within 1.50 ms");
  expect(found?.detail).toContain("1,200 collectives that 2 hosts share their clocks are 500 ms apart (± 20.0 µs): b is ahead, a behind");
  expect(found?.isApart).toBe(false);
});

test("hosts that missed the others are named", () => {
  const found = startedTogether({ alignment: { ...alignment, outside: ["c"] }, summary: null });
  expect(found?.isApart).toBe(true);
  expect(found?.detail).toContain("Not together with the others: c.");
});

test("a host alone starts with nobody", () => {
  expect(startedTogether({ alignment: { ...alignment, hosts: 1 }, summary })).toBeNull();
  expect(startedTogether({ alignment: null, summary: null })).toBeNull();
});

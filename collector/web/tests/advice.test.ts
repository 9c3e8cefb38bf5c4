import { describe, expect, it } from "vitest";

import type { Loss, ToolResult } from "../src/api/types";
import { evidenceWords, lossSentence, toolOf } from "../src/tools/advice";

const result = (losses: readonly Loss[]): ToolResult => ({
  tool: "overview_page",
  version: 3,
  scope: { capture: null, session: null, hosts: ["h0"], missing_hosts: [] },
  status: "ok",
  reasons: [],
  losses,
  advice: [],
  result: {},
});

describe("advice", () => {
  it("shows a figure with the threshold that it was held against", () => {
    expect(evidenceWords({ name: "input_ratio", value: 0.412, unit: "ratio", threshold: 0.2 })).toBe("input 41.2% (threshold 20.0%)");
    expect(evidenceWords({ name: "compilations", value: 1200, unit: "", threshold: null })).toBe("compilations 1,200");
    expect(evidenceWords({ name: "kernel_us", value: 3.25, unit: "us", threshold: 10 })).toBe("kernel 3.25 µs (threshold 10.0 µs)");
    expect(evidenceWords({ name: "lateness_us", value: 5955.63, unit: "us", threshold: null })).toBe("lateness 5.96 ms");
  });

  it("leads to the page that says more, and to none where the header does", () => {
    expect(["straggler", "hosts_missing", "recompilation"].map((code) => toolOf({ code }))).toEqual(["pod_viewer", null, "framework_op_stats"]);
  });
});

describe("losses", () => {
  it("are one sentence, and none is no sentence", () => {
    expect(lossSentence(result([]))).toBeNull();
    const dropped: Loss = { host: "h0", plane: "/device:TPU:0", kind: "events_dropped", count: 1200 };
    const missing: Loss = { host: "h9", plane: "", kind: "host_missing", count: 1 };
    const unknown: Loss = { host: "h1", plane: "", kind: "trace_truncated", count: 0 };
    expect(lossSentence(result([dropped, missing, unknown, dropped]))).toBe(
      "h0 /device:TPU:0: 1,200 events dropped; h9 is missing; h1: trace truncated; and 1 more loss.",
    );
  });
});

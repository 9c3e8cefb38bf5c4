import { describe, expect, it } from "vitest";

import type { ToolResult } from "../src/api/types";
import { ceilingLine, drawable, isWithin, planeOf, regionOf, regionText, roofline } from "../src/tools/roofline";

const IDS = ["step", "category", "operation", "bottleneck_intensity_flops_per_byte", "measured_flops_per_second", "bound_by", "include_infeed_outfeed", "program_id"];

function result(device: string): ToolResult {
  const table = (ids: readonly string[], rows: readonly (readonly unknown[])[]) => ({ columns: ids.map((id) => ({ id, label: id, type: "string", unit: "" })), rows });
  return {
    result: {
      device_type: device,
      peak_flops_per_second: 1e14,
      records: table(IDS, [
        ["total", "Program", "Program", 50, 2e13, "compute", true, "0"],
        ["total", "fusion", "dot", 200, 5e13, "compute", true, "7"],
        ["total", "copy", "copy.1", 0, 0, "unknown", true, "7"],
        ["total", "Program", "jit_f(7)", 200, 4e13, "compute", true, "7"],
        ["average", "Program", "Program", 50, 2e13, "compute", true, "0"],
        ["3", "Program", "Program", 50, 2e13, "compute", true, "0"],
        ["total", "fusion", "dot", 200, 6e13, "compute", false, "7"],
      ]),
      ceilings: table(["ceiling", "peak_bytes_per_second", "ridge_point_flops_per_byte"], [["hbm", 1e12, 100], ["vmem_read", 1e13, 10], ["vmem_write", 5e12, 20]]),
    },
  } as unknown as ToolResult;
}

describe("the roofline", () => {
  it("tells programs, steps and operations apart, with and without feeds", () => {
    const model = roofline(result("TPU v5"), true);
    expect(model.points.map((point) => [point.kind, point.name])).toEqual([
      ["program", "All operations"], ["op", "dot"], ["op", "copy.1"], ["program", "jit_f(7)"], ["step", "Average step"], ["step", "Step 3"],
    ]);
    expect(roofline(result("TPU v5"), false).points.map((point) => point.flopsPerSecond)).toEqual([6e13]);
  });

  it("selects the points within an area, which its text keeps", () => {
    const area = regionOf(regionText({ x: [100, 300], y: [4.5e13, 1e14] }));
    if (!area) throw new Error("no area");
    const chosen = roofline(result("TPU v5"), true).points.filter((point) => isWithin(area, point));
    expect(chosen.map((point) => [point.name, point.program])).toEqual([["dot", "7"]]);
    expect([regionOf(null), regionOf("1,2,3"), regionOf("1,2,3,x"), regionOf("1,2,3,4,5")]).toEqual([null, null, null, null]);
  });

  it("leaves out of the plane what has no flops", () => {
    expect(drawable(roofline(result("TPU v5"), true).points)).toHaveLength(5);
  });

  it("calls a GPU's local memory what it is, once", () => {
    expect(roofline(result("Nvidia GPU (Hopper)"), true).ceilings.map((one) => one.label)).toEqual(["HBM", "Shared memory / L1"]);
    expect(roofline(result("TPU v5"), true).ceilings.map((one) => one.label)).toEqual(["HBM", "VMEM read", "VMEM write"]);
  });

  it("draws a ceiling from the foot of the plane over the ridge to its edge", () => {
    const model = roofline(result("TPU v5"), true);
    const plane = planeOf(model, drawable(model.points));
    // A decade for the labels of the ridges, which stand above the peak.
    expect(plane.y).toEqual([13, 15]);
    expect(ceilingLine(model.ceilings[0]!, model.peakFlops, plane)).toEqual([[10, 1e13], [100, 1e14], [10 ** plane.x[1], 1e14]]);
  });
});

import { describe, expect, it } from "vitest";

import type { ToolResult } from "../src/api/types";
import { band, furtherChildren, operationNamed, opProfile, programsOf, rowsInView, type View, worst } from "../src/tools/op-profile";

const IDS = ["node", "parent", "depth", "kind", "name", "total_time_us", "time_ratio", "wasted_ratio", "child_count", "next_cursor", "framework_name"];

function result(rows: readonly (readonly unknown[])[]): ToolResult {
  const columns = IDS.map((id) => ({ id, label: id, type: "string", unit: "" }));
  return { result: { nodes: { columns, rows }, total_time_us: 120, total_op_time_us: 100 } } as unknown as ToolResult;
}

const PROFILE = opProfile(
  result([
    ["", null, 0, "root", "by_program", 100, 1, 0.5, 1, null, null],
    ["p", "", 1, "program", "jit_f(1)", 100, 1, 0.5, 2, null, null],
    ["p/dots", "p", 2, "category", "dot", 80, 0.8, 0.2, 4, "p/dots@3", null],
    ["p/dots/a", "p/dots", 3, "op", "dot.1", 60, 0.6, 0.1, 1, null, "model/attention"],
    ["p/dots/a/x", "p/dots/a", 4, "part", "inner", 0, 0, null, 0, null, null],
    ["p/dots/b", "p/dots", 3, "op", "dot.2", 15, 0.15, 0.12, 0, null, null],
    ["p/dots/c", "p/dots", 3, "op", "dot.3", 3, 0.03, null, 0, null, null],
    ["p/copy", "p", 2, "category", "copy", 20, 0.2, 0.2, 1, null, null],
    ["p/copy/d", "p/copy", 3, "op", "copy.1", 20, 0.2, 0.11, 0, null, null],
  ]),
);
const PLAIN: View = { toggled: new Set(), whole: new Set(), most: 10, top90: false, search: "", program: "" };

function shown(view: Partial<View>): string[] {
  if (!PROFILE.root) throw new Error("no root");
  return rowsInView(PROFILE.root, { ...PLAIN, ...view }).map((row) => ("node" in row ? row.node.name : `+${row.hidden}`));
}

describe("the tree", () => {
  it("is open down to operations and counts what the service kept back", () => {
    expect(shown({})).toEqual(["jit_f(1)", "dot", "dot.1", "dot.2", "dot.3", "+1", "copy", "copy.1"]);
    expect(PROFILE.idleUs).toBe(20);
  });

  it("shows so many children, or those that make up nine tenths", () => {
    expect(shown({ most: 1 })).toEqual(["jit_f(1)", "dot", "dot.1", "+3", "+1"]);
    expect(shown({ most: 1, whole: new Set(["p", "p/dots"]) })).toEqual(["jit_f(1)", "dot", "dot.1", "dot.2", "dot.3", "+1", "copy", "copy.1"]);
    expect(shown({ top90: true })).toEqual(["jit_f(1)", "dot", "dot.1", "dot.2", "+2", "copy", "copy.1"]);
  });

  it("opens and closes", () => {
    expect(shown({ toggled: new Set(["p/dots", "p/dots/a"]) })).toEqual(["jit_f(1)", "dot", "copy", "copy.1"]);
    expect(shown({ toggled: new Set(["p/dots/a"]) }).slice(2, 4)).toEqual(["dot.1", "inner"]);
  });

  it("finds by name and by the framework's name, with all that leads there", () => {
    expect(shown({ search: "Attention" })).toEqual(["jit_f(1)", "dot", "dot.1"]);
    expect(shown({ search: "nothing" })).toEqual([]);
  });

  it("leaves out other programs, and finds the operation that a link names in its own", () => {
    const ids = ["node", "parent", "depth", "kind", "name", "total_time_us", "child_count", "program_id"];
    const rows = [
      ["", null, 0, "root", "by_program", 9, 2, null],
      ["f", "", 1, "program", "jit_f(1)", 5, 1, null],
      ["f/a", "f", 2, "op", "add.1", 5, 0, "1"],
      ["g", "", 1, "program", "jit_g(2)", 4, 1, null],
      ["g/a", "g", 2, "op", "add.1", 4, 0, "2"],
      ["g/i", "g", 2, "idle", "IDLE", 4, 0, "0"],
    ];
    const two = opProfile({ result: { nodes: { columns: ids.map((id) => ({ id, label: id, type: "string", unit: "" })), rows } } } as unknown as ToolResult);
    if (!two.root) throw new Error("no root");
    const names = rowsInView(two.root, { ...PLAIN, program: "2" }).map((row) => ("node" in row ? row.node.id : "more"));
    expect(names).toEqual(["g", "g/a"]);
    expect(operationNamed(two, "add.1", "2")?.id).toBe("g/a");
    expect(operationNamed(two, "add", "2")).toBeNull();
    expect(programsOf(two)).toEqual([{ id: "1", name: "jit_f(1)" }, { id: "2", name: "jit_g(2)" }]);
  });

  it("names the operation that wastes most, not its category", () => {
    expect(worst(PROFILE)?.name).toBe("dot.2");
  });

  it("reads the children that a cursor lists", () => {
    const more = furtherChildren(
      result([
        ["p/dots", "p", 2, "category", "dot", 80, 0.8, 0.2, 4, null, null],
        ["p/dots/e", "p/dots", 3, "op", "dot.4", 2, 0.02, null, 0, null, null],
      ]),
      "p/dots",
    );
    expect(more.nodes.map((node) => node.name)).toEqual(["dot.4"]);
    expect(more.nextCursor).toBeNull();
  });
});

describe("bands of utilization", () => {
  it("colour only the higher of two", () => {
    expect([0.1, 0.2, 0.5, 0.7].map((ratio) => band(ratio, 0))).toEqual(["util-low", "util-fair", "util-mid", "util-high"]);
    expect(band(0.5, 0.6)).toBe("util-quiet");
    expect(band(null, 0.6)).toBe("util-quiet");
  });
});

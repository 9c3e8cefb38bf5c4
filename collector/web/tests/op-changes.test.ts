import { describe, expect, it } from "vitest";

import type { Comparison, Table, ToolResult } from "../src/api/types";
import { byChange, changeClass, changesOf } from "../src/tools/op-changes";
import { opProfile } from "../src/tools/op-profile";

const table = (ids: readonly string[], rows: readonly (readonly unknown[])[]): Table => ({ columns: ids.map((id) => ({ id, label: id, type: "string", unit: "" })), rows }) as unknown as Table;

const PROFILE = opProfile({
  result: {
    nodes: table(["node", "parent", "kind", "name", "framework_name", "category"], [
      ["", null, "root", "by_program", null, null],
      ["p", "", "program", "jit_f(1)", null, null],
      ["p/dot", "p", "category", "dot", null, null],
      ["p/dot/a", "p/dot", "op", "dot.1", "f/a", "dot"],
      ["p/dot/a/x", "p/dot/a", "part", "inner", null, null],
      ["p/dot/b", "p/dot", "op", "dot.2", "f/b", "dot"],
      ["p/dot/c", "p/dot", "op", "dot.3", null, "dot"],
    ]),
  },
} as unknown as ToolResult);

const MEASURES = ["match", "base_total_self_time_us", "other_total_self_time_us", "change_us", "change_ratio", "significance"];
const COMPARISON = {
  tables: {
    categories: table(["name", "node", ...MEASURES], [["dot", "p/dot", "both", 30, 42, 12, 0.4, "significant"]]),
    ops: table(["name", "category", "framework_name", "node", ...MEASURES], [
      ["dot.1", "dot", "f/a", "p/dot/a", "both", 20, 21, 1, 0.05, "within_noise"],
      ["dot.2", "dot", "f/b", "p/dot/b", "both", 10, 21, 11, 1.1, "significant"],
      ["dot.9", "dot", "f/z", "p/dot/z", "vanished", 4, null, -4, -1, "unknown"],
    ]),
  },
} as unknown as Comparison;

describe("changes of the op profile", () => {
  const changes = changesOf(PROFILE, COMPARISON);

  it("are of operations by name and origin, of categories by place, and of what is above as sums", () => {
    expect(changes.of.get("p/dot/b")).toMatchObject({ changeUs: 11, judgement: "significant" });
    expect(changes.of.get("p/dot")).toMatchObject({ changeUs: 12, judgement: "significant" });
    expect(changes.of.get("p")).toMatchObject({ baseUs: 30, otherUs: 42 });
    expect(changes.of.has("p/dot/a/x")).toBe(false);
    expect(changes.of.has("p/dot/c")).toBe(false);
    expect(changes.largestUs).toBe(11);
  });

  it("name what the base alone has", () => {
    expect(changes.gone).toEqual([{ name: "dot.9", baseUs: 4 }]);
  });

  it("sort the tree", () => {
    const root = PROFILE.root;
    if (!root) throw new Error("no root");
    const category = byChange(root, changes).children[0]?.children[0];
    expect(category?.children.map((node) => node.name)).toEqual(["dot.2", "dot.1", "dot.3"]);
  });

  it("have a colour where they are more than noise", () => {
    expect(["p/dot/a", "p/dot/b"].map((id) => changeClass(changes.of.get(id) as never))).toEqual(["change-noise", "change-worse"]);
  });
});

/** The tree of operations: rows of a table with parents, and which of them are in view. */
import type { ToolResult } from "../api/types";
import { fieldsOf, numberOf, records, textOf } from "./tables";

export type NodeKind = "root" | "program" | "scope" | "category" | "duplicates" | "op" | "part" | "idle";

export interface OpNode {
  readonly id: string;
  readonly parent: string | null;
  readonly depth: number;
  readonly kind: NodeKind;
  readonly name: string;
  readonly occurrences: number | null;
  readonly timeUs: number;
  readonly averageUs: number | null;
  readonly selfUs: number;
  readonly timeRatio: number;
  readonly wasted: number | null;
  readonly flopsUtilization: number | null;
  readonly hbmUtilization: number | null;
  readonly childCount: number;
  readonly nextCursor: string | null;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly children: OpNode[];
}

export interface OpProfile {
  readonly root: OpNode | null;
  readonly nodes: ReadonlyMap<string, OpNode>;
  readonly place: string;
  readonly totalUs: number;
  readonly idleUs: number;
  readonly includesIdle: boolean;
  readonly peakFlops: number | null;
}

export function opProfile(result: ToolResult): OpProfile {
  const fields = fieldsOf(result.result);
  const nodes = new Map<string, OpNode>();
  let root: OpNode | null = null;
  for (const row of records(fields["nodes"])) {
    const node = nodeOf(row);
    nodes.set(node.id, node);
    if (node.parent === null) root = node;
    else nodes.get(node.parent)?.children.push(node);
  }
  const total = numberOf(fields["total_time_us"]) ?? 0;
  return {
    root,
    nodes,
    place: textOf(fields["place"]) ?? "device",
    totalUs: total,
    idleUs: total - (numberOf(fields["total_op_time_us"]) ?? 0),
    includesIdle: fields["includes_idle"] === true,
    peakFlops: numberOf(fields["peak_flops_per_second"]),
  };
}

function nodeOf(row: Readonly<Record<string, unknown>>): OpNode {
  return {
    id: String(row["node"] ?? ""),
    parent: typeof row["parent"] === "string" ? row["parent"] : null,
    depth: numberOf(row["depth"]) ?? 0,
    kind: (textOf(row["kind"]) ?? "op") as NodeKind,
    name: textOf(row["name"]) ?? "",
    occurrences: numberOf(row["occurrences"]),
    timeUs: numberOf(row["total_time_us"]) ?? 0,
    averageUs: numberOf(row["avg_time_us"]),
    selfUs: numberOf(row["total_self_time_us"]) ?? 0,
    timeRatio: numberOf(row["time_ratio"]) ?? 0,
    wasted: numberOf(row["wasted_ratio"]),
    flopsUtilization: numberOf(row["flops_utilization_ratio"]),
    hbmUtilization: numberOf(row["hbm_utilization_ratio"]),
    childCount: numberOf(row["child_count"]) ?? 0,
    nextCursor: textOf(row["next_cursor"]),
    fields: row,
    children: [],
  };
}

/** Further children of one node, as the service lists them from its cursor on. */
export function furtherChildren(result: ToolResult, parent: string): { readonly nodes: OpNode[]; readonly nextCursor: string | null } {
  const more = opProfile(result);
  const top = more.nodes.get(parent);
  return { nodes: top?.children ?? [], nextCursor: top?.nextCursor ?? null };
}

export type Row =
  | { readonly node: OpNode; readonly level: number; readonly isOpen: boolean }
  | { readonly moreOf: OpNode; readonly level: number; readonly hidden: number; readonly timeRatio: number };

export interface View {
  /** Nodes that the reader opened or closed; all others are open down to categories. */
  readonly toggled: ReadonlySet<string>;
  /** Nodes of which all children are shown. */
  readonly whole: ReadonlySet<string>;
  readonly most: number;
  /** Only the children that make up nine tenths of their parent's time. */
  readonly top90: boolean;
  readonly search: string;
  /** Only what belongs to this program; empty for all. */
  readonly program: string;
}

const OPEN_KINDS: ReadonlySet<NodeKind> = new Set(["root", "program", "category"]);

/** Rows in view, parents before children. A search shows what matches, and all that leads to it. */
export function rowsInView(root: OpNode, view: View): Row[] {
  const wanted = view.search.trim().toLowerCase();
  const matches = wanted === "" && view.program === "" ? null : matching(root, wanted, view.program);
  const rows: Row[] = [];
  const add = (node: OpNode, level: number): void => {
    const kept = matches ? node.children.filter((child) => matches.has(child.id)) : limited(node, view, level);
    for (const child of kept) {
      const opens = child.children.length > 0 || child.nextCursor !== null;
      const isOpen = opens && (matches ? child.children.some((one) => matches.has(one.id)) : OPEN_KINDS.has(child.kind) !== view.toggled.has(child.id));
      rows.push({ node: child, level, isOpen });
      if (isOpen) add(child, level + 1);
    }
    const hidden = node.childCount - kept.length;
    if (!matches && hidden > 0) {
      const shown = kept.reduce((sum, child) => sum + child.timeRatio, 0);
      rows.push({ moreOf: node, level, hidden, timeRatio: Math.max(node.timeRatio - shown, 0) });
    }
  };
  add(root, 0);
  return rows;
}

function limited(node: OpNode, view: View, level: number): readonly OpNode[] {
  // The top level is short and shows all.
  if (level === 0 || view.whole.has(node.id)) return node.children;
  if (!view.top90) return node.children.slice(0, view.most);
  let sum = 0;
  const kept = [];
  for (const child of node.children) {
    if (kept.length > 0 && sum >= 0.9 * node.timeUs) break;
    kept.push(child);
    sum += child.timeUs;
  }
  return kept;
}

const isOf = (node: OpNode, program: string): boolean => program === "" || textOf(node.fields["program_id"]) === program;

function matching(root: OpNode, wanted: string, program: string): Set<string> {
  const found = new Set<string>();
  const visit = (node: OpNode): boolean => {
    const own = isOf(node, program) && [node.name, node.fields["framework_name"], node.fields["source"]].some((text) => typeof text === "string" && text.toLowerCase().includes(wanted));
    // Not short-circuited: every match below is kept.
    const below = node.children.map(visit).some(Boolean);
    if (own || below) found.add(node.id);
    return own || below;
  };
  visit(root);
  return found;
}

/** The operation of that name, as pages of programs link to it. */
export function operationNamed(profile: OpProfile, name: string, program: string): OpNode | null {
  if (name === "") return null;
  return [...profile.nodes.values()].find((node) => node.kind === "op" && node.name === name && isOf(node, program)) ?? null;
}

/** Programs of the operations, with their names where the tree tells them. */
export function programsOf(profile: OpProfile): { readonly id: string; readonly name: string }[] {
  const ids = new Set([...profile.nodes.values()].flatMap((node) => textOf(node.fields["program_id"]) ?? []));
  const named = [...profile.nodes.values()].filter((node) => node.kind === "program").map((node) => node.name);
  return [...ids].filter((id) => id !== "0").sort().map((id) => ({ id, name: named.find((name) => name.endsWith(`(${id})`)) ?? id }));
}

/** The operation that wastes most, copies taken together; the longest where waste is unknown. */
export function worst(profile: OpProfile): OpNode | null {
  let found: OpNode | null = null;
  for (const node of profile.nodes.values()) {
    const isTop = node.kind === "duplicates" || (node.kind === "op" && profile.nodes.get(node.parent ?? "")?.kind !== "duplicates");
    if (!isTop) continue;
    const better = found === null || (node.wasted ?? -1) > (found.wasted ?? -1) || ((node.wasted ?? -1) === (found.wasted ?? -1) && node.timeRatio > found.timeRatio);
    if (better) found = node;
  }
  return found;
}

/** Bands of utilization, as everywhere: only the higher of both bars of an operation is coloured. */
export function band(ratio: number | null, other: number | null): string {
  if (ratio === null) return "util-quiet";
  if (other !== null && other > ratio) return "util-quiet";
  return ratio < 0.15 ? "util-low" : ratio < 0.35 ? "util-fair" : ratio < 0.6 ? "util-mid" : "util-high";
}

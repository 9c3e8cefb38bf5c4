/** What changed of every node of the op profile, from a comparison with another capture. */
import type { Comparison } from "../api/types";
import { type Judgement, judgementOf } from "./compare";
import type { OpNode, OpProfile } from "./op-profile";
import { numberOf, records, textOf } from "./tables";

/** Self time of a step of one core; of whole captures where one of them has no steps. */
export interface NodeChange {
  readonly baseUs: number;
  readonly otherUs: number;
  readonly changeUs: number;
  readonly ratio: number | null;
  readonly judgement: Judgement;
  /** Whether the base has none of it. */
  readonly isNew: boolean;
}

export interface Changes {
  readonly of: ReadonlyMap<string, NodeChange>;
  /** Operations that only the base has, the longest first. */
  readonly gone: readonly { readonly name: string; readonly baseUs: number }[];
  readonly largestUs: number;
}

const keyOf = (name: string, framework: string | null, category: string | null): string => [name, framework ?? "", category ?? ""].join("\n");

/** Changes of operations, and of all nodes above them as their sums. */
export function changesOf(profile: OpProfile, comparison: Comparison): Changes {
  const byPlace = new Map<string, NodeChange>();
  const byName = new Map<string, NodeChange>();
  const gone: { name: string; baseUs: number }[] = [];
  for (const [table, isOp] of [["categories", false], ["ops", true]] as const) {
    for (const row of records(comparison.tables[table])) {
      const found = changeOf(row);
      const name = textOf(row["name"]) ?? "";
      if (row["match"] === "vanished") {
        if (isOp) gone.push({ name, baseUs: found.baseUs });
        continue;
      }
      byPlace.set(textOf(row["node"]) ?? "", found);
      if (isOp) byName.set(keyOf(name, textOf(row["framework_name"]), textOf(row["category"])), found);
    }
  }
  const of = new Map<string, NodeChange>();
  const visit = (node: OpNode): NodeChange | null => {
    const below = node.children.flatMap((child) => visit(child) ?? []);
    const own = node.kind === "op" ? byName.get(keyOf(node.name, textOf(node.fields["framework_name"]), textOf(node.fields["category"]))) : byPlace.get(node.id);
    const found = node.kind === "part" || node.kind === "idle" ? null : (own ?? summed(below));
    if (found) of.set(node.id, found);
    return found;
  };
  if (profile.root) visit(profile.root);
  const ops = [...of].filter(([id]) => profile.nodes.get(id)?.kind === "op");
  return { of, gone: gone.sort((a, b) => b.baseUs - a.baseUs), largestUs: Math.max(0, ...ops.map(([, one]) => Math.abs(one.changeUs))) };
}

function changeOf(row: Readonly<Record<string, unknown>>): NodeChange {
  return {
    baseUs: numberOf(row["base_total_self_time_us"]) ?? 0,
    otherUs: numberOf(row["other_total_self_time_us"]) ?? 0,
    changeUs: numberOf(row["change_us"]) ?? 0,
    ratio: numberOf(row["change_ratio"]),
    judgement: judgementOf(row["significance"]),
    isNew: row["match"] === "appeared",
  };
}

function summed(parts: readonly NodeChange[]): NodeChange | null {
  if (parts.length === 0) return null;
  if (parts.length === 1 && parts[0]) return parts[0];
  const baseUs = parts.reduce((sum, one) => sum + one.baseUs, 0);
  const otherUs = parts.reduce((sum, one) => sum + one.otherUs, 0);
  return {
    baseUs,
    otherUs,
    changeUs: otherUs - baseUs,
    ratio: baseUs > 0 ? (otherUs - baseUs) / baseUs : null,
    // How they vary together nobody tells; only that all of them stayed.
    judgement: parts.every((one) => one.judgement === "within_noise") ? "within_noise" : "unknown",
    isNew: parts.every((one) => one.isNew),
  };
}

/** The same tree with the largest changes first at every level. */
export function byChange(root: OpNode, changes: Changes): OpNode {
  const size = (node: OpNode): number => Math.abs(changes.of.get(node.id)?.changeUs ?? 0);
  return { ...root, children: [...root.children].sort((a, b) => size(b) - size(a)).map((child) => byChange(child, changes)) };
}

/** Only what is more than noise has a colour. */
export function changeClass(one: NodeChange): string {
  if (one.judgement === "within_noise" || one.changeUs === 0) return "change-noise";
  const way = one.changeUs > 0 ? "worse" : "better";
  return one.judgement === "significant" || one.isNew ? `change-${way}` : `change-${way} change-unsure`;
}

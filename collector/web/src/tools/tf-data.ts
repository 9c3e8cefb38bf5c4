/** The iterators of tf.data pipelines, placed as a graph. */
import type { Cell, ToolResult } from "../api/types";
import { numberOf, records, textOf } from "./tables";

export interface PipelineNode {
  readonly id: string;
  readonly name: string;
  readonly selfUs: number;
  readonly slowestSelfUs: number;
  readonly calls: number;
  readonly isAsync: boolean;
  readonly isCritical: boolean;
  readonly isBottleneck: boolean;
  readonly parent: string;
  readonly column: number;
  readonly row: number;
}

/** The iterators of one pipeline, placed: sources at the left, what asks them to the right. */
export function pipelineNodes(result: ToolResult, host: string, pipeline: string): PipelineNode[] {
  const own = (table: string): Record<string, Cell>[] => records(result.result[table]).filter((row) => row["host"] === host && row["pipeline"] === pipeline);
  const rows = own("iterators");
  // The root is asked by no iterator, yet an id of 0 may be one's: it would be its own ancestor.
  const roots = new Set(own("pipelines").map((row) => String(row["root_id"])));
  const parents = new Map(rows.map((row) => [String(row["iterator_id"]), roots.has(String(row["iterator_id"])) ? "" : String(row["parent_id"])]));
  const depth = (id: string): number => {
    let steps = 0;
    for (let at = parents.get(id); at !== undefined && parents.has(at) && steps <= parents.size; at = parents.get(at)) steps += 1;
    return steps;
  };
  const deepest = Math.max(0, ...[...parents.keys()].map(depth));
  const used = new Map<number, number>();
  const critical = rows.filter((row) => row["is_critical"] === true);
  const worst = critical.reduce<number>((most, row) => Math.max(most, numberOf(row["slowest_self_time_us"]) ?? 0), 0);
  return rows.map((row): PipelineNode => {
    const id = String(row["iterator_id"]);
    const column = deepest - depth(id);
    const place = used.get(column) ?? 0;
    used.set(column, place + 1);
    const slowest = numberOf(row["slowest_self_time_us"]) ?? 0;
    return {
      id,
      name: textOf(row["iterator"]) ?? "",
      selfUs: numberOf(row["self_time_us"]) ?? 0,
      slowestSelfUs: slowest,
      calls: numberOf(row["calls"]) ?? 0,
      isAsync: row["is_async"] === true,
      isCritical: row["is_critical"] === true,
      isBottleneck: row["is_critical"] === true && worst > 0 && slowest === worst,
      parent: parents.get(id) ?? "",
      column,
      row: place,
    };
  });
}

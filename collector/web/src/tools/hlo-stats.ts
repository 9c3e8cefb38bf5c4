/** Reads the table of HLO instructions and filters it. */
import type { Cell, Table, ToolResult } from "../api/types";
import { fieldsOf, isTable } from "./tables";

type Row = readonly Cell[];

export interface HloStats {
  readonly table: Table | null;
  readonly programs: readonly string[];
  readonly categories: readonly string[];
  /** A cell of a row by the id of its column. */
  readonly at: (row: Row, id: string) => Cell;
}

export interface HloFilter {
  readonly program: string;
  readonly category: string;
  readonly search: string;
}

const SEARCHED = ["hlo_op_name", "hlo_op_expression", "framework_name", "source"] as const;

export function hloStats(result: ToolResult): HloStats {
  const found = fieldsOf(result.result)["instructions"];
  const table = isTable(found) ? found : null;
  const places = new Map(table?.columns.map((column, at) => [column.id, at]));
  const at = (row: Row, id: string): Cell => row[places.get(id) ?? -1] ?? null;
  const distinct = (id: string): string[] => [...new Set((table?.rows ?? []).flatMap((row) => at(row, id) ?? []).map(String))].sort();
  return { table, programs: distinct("program_id"), categories: distinct("category"), at };
}

/** Instructions of a program and category, in whose name, text, framework name or source the text is. */
export function filterInstructions(stats: HloStats, filter: HloFilter): readonly Row[] {
  const wanted = filter.search.trim().toLowerCase();
  return (stats.table?.rows ?? []).filter(
    (row) =>
      (filter.program === "" || String(stats.at(row, "program_id")) === filter.program) &&
      (filter.category === "" || stats.at(row, "category") === filter.category) &&
      (wanted === "" || SEARCHED.some((id) => String(stats.at(row, id) ?? "").toLowerCase().includes(wanted))),
  );
}

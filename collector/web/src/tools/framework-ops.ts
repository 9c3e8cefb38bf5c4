/** Reads the op table: rows of devices, of hosts, and of programs that host threads ran, with and without idle time. */
import type { Cell, Column, Table, ToolResult } from "../api/types";
import { fieldsOf, isTable } from "./tables";

export interface OpTables {
  readonly withIdle: Table | null;
  readonly withoutIdle: Table | null;
  readonly sharesWithIdle: Table | null;
  readonly sharesWithoutIdle: Table | null;
  readonly annotations: Table | null;
}

const SIDE = /^host_or_device$/;

/** A result has two tables of operations, as shares differ with and without idle. */
export function opTables(result: ToolResult): OpTables {
  const named = (name: string): Table | null => {
    const value = fieldsOf(result.result)[name];
    return isTable(value) ? value : null;
  };
  return {
    withIdle: named("with_idle"),
    withoutIdle: named("without_idle"),
    sharesWithIdle: named("shares_with_idle"),
    sharesWithoutIdle: named("shares_without_idle"),
    annotations: named("annotations"),
  };
}

/** Shares of one side, of all its operations; what is too small for a name comes last. */
export function sharesOf(table: Table | null, side: Side, groupedBy: "type" | "operation", most: number): Ranked[] {
  if (!table) return [];
  const at = (id: string): number => table.columns.findIndex((column) => column.id === id);
  const [by, name, time, ratio] = [at("grouped_by"), at("name"), at("total_self_time_us"), at("self_time_ratio")];
  const where = sideOf(table);
  const rows = table.rows.filter((row) => row[by] === groupedBy && row[name] !== null && where(row) === side);
  return rows.slice(0, most).map((row) => ({ name: String(row[name]), time: Number(row[time]), ratio: Number(row[ratio]) }));
}

export function columnAt(table: Table, pattern: RegExp): number {
  return table.columns.findIndex((column) => pattern.test(column.id));
}

/** A program is of a host without devices: its threads ran it. */
export type Side = "Device" | "Host" | "Program";
export const SIDES: readonly Side[] = ["Device", "Host", "Program"];

export const sideOf = (table: Table): ((row: readonly Cell[]) => Side) => {
  const at = columnAt(table, SIDE);
  return (row) => {
    const side = String(row[at]).toLowerCase();
    return side === "host_execution" ? "Program" : side === "host" ? "Host" : "Device";
  };
};

/** Rows of one side whose text holds what is searched for. */
export function filterOps(table: Table, side: string, search: string): Table["rows"] {
  const wanted = search.toLowerCase();
  const where = sideOf(table);
  return table.rows.filter(
    (row) =>
      (side === "" || where(row) === side) &&
      (wanted === "" || row.some((cell, i) => table.columns[i]?.type === "string" && String(cell).toLowerCase().includes(wanted))),
  );
}

export interface Ranked {
  readonly name: string;
  readonly time: number;
  readonly ratio: number;
}

/** Self time, or another, summed by a column, the largest first; shares of all rows given. */
export function rankBy(table: Table, rows: Table["rows"], column: RegExp, most: number, timed: RegExp = SELF_TIME): Ranked[] {
  const [name, time] = [columnAt(table, column), columnAt(table, timed)];
  const sums = new Map<string, number>();
  let total = 0;
  for (const row of rows) {
    const value = typeof row[time] === "number" ? (row[time] as number) : 0;
    total += value;
    // What has no name counts in the shares alone.
    if (row[name] === null) continue;
    sums.set(String(row[name]), (sums.get(String(row[name])) ?? 0) + value);
  }
  return [...sums]
    .map(([key, value]) => ({ name: key, time: value, ratio: total > 0 ? value / total : 0 }))
    .sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1))
    .slice(0, most);
}

export const SELF_TIME = /^total_self_time|^self_time/;
export const OPERATION = /^(operation|annotation|name|op|op_name|hlo_op_name)$/;
export const TYPE = /^(type|op_type|category)$/;

export const isRatio = (column: Column): boolean => column.unit === "ratio" || column.id.endsWith("_ratio");

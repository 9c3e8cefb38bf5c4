/** Reads the op table: rows of devices, of hosts, and of programs that host threads ran, with and without idle time. */
import type { Cell, Column, Table, ToolResult } from "../api/types";
import { isTable, tablesIn } from "./tables";

export interface OpTables {
  readonly withIdle: Table | null;
  readonly withoutIdle: Table | null;
}

const SIDE = /^(host_or_device|side|where|place)$/;
const isIdle = (table: Table): ((row: readonly Cell[]) => boolean) => {
  const type = table.columns.findIndex((column) => /^(type|op_type|category)$/.test(column.id));
  return (row) => row[type] === "IDLE";
};

/** A result has two tables, as shares differ with and without idle; from one, rows are left out. */
export function opTables(result: ToolResult): OpTables {
  const tables = tablesIn(result.result).filter(({ table }) => table.columns.some((column) => SIDE.test(column.id)));
  const without = tables.find(({ path }) => /without|exclud|no_idle|busy/.test(path))?.table ?? null;
  const withIdle = tables.find(({ table, path }) => table !== without && /with|includ|idle/.test(path))?.table ?? tables.find(({ table }) => table !== without)?.table ?? null;
  if (without || !withIdle) return { withIdle: withIdle ?? without, withoutIdle: without };
  const idle = isIdle(withIdle);
  return { withIdle, withoutIdle: { columns: withIdle.columns, rows: withIdle.rows.filter((row) => !idle(row)) } };
}

export function columnAt(table: Table, pattern: RegExp): number {
  return table.columns.findIndex((column) => pattern.test(column.id));
}

/** A program is of a host without devices: its threads ran it. */
export type Side = "Device" | "Host" | "Program";

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

/** Self time summed by a column, the largest first; shares of all rows given. */
export function rankBy(table: Table, rows: Table["rows"], column: RegExp, most: number): Ranked[] {
  const [name, time] = [columnAt(table, column), columnAt(table, SELF_TIME)];
  const sums = new Map<string, number>();
  let total = 0;
  for (const row of rows) {
    const value = typeof row[time] === "number" ? (row[time] as number) : 0;
    total += value;
    sums.set(String(row[name]), (sums.get(String(row[name])) ?? 0) + value);
  }
  return [...sums]
    .map(([key, value]) => ({ name: key, time: value, ratio: total > 0 ? value / total : 0 }))
    .sort((a, b) => b.time - a.time || (a.name < b.name ? -1 : 1))
    .slice(0, most);
}

export const SELF_TIME = /^total_self_time|^self_time/;
export const OPERATION = /^(operation|name|op|op_name)$/;
export const TYPE = /^(type|op_type|category)$/;

export const isRatio = (column: Column): boolean => column.unit === "ratio" || column.id.endsWith("_ratio");

export function isOpTable(value: unknown): value is Table {
  return isTable(value) && columnAt(value, OPERATION) >= 0;
}

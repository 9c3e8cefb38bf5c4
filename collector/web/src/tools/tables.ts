/** Reads results: tables by column id, and fields that may be absent. */
import type { Cell, Table } from "../api/types";

export type Fields = Readonly<Record<string, unknown>>;

export function isTable(value: unknown): value is Table {
  const table = value as Partial<Table> | null;
  return typeof table === "object" && table !== null && Array.isArray(table.columns) && Array.isArray(table.rows);
}

/** Rows as records by column id. */
export function records(table: unknown): Record<string, Cell>[] {
  if (!isTable(table)) return [];
  const ids = table.columns.map((column) => column.id);
  return table.rows.map((row) => Object.fromEntries(ids.map((id, i) => [id, row[i] ?? null])));
}

export function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : {};
}

export function numberOf(value: unknown): number | null {
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function textOf(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

/** Every table of a result with the path that leads to it. */
export function tablesIn(value: unknown, path = ""): { readonly path: string; readonly table: Table }[] {
  if (isTable(value)) return [{ path, table: value }];
  if (Array.isArray(value)) return [];
  return Object.entries(fieldsOf(value)).flatMap(([key, inner]) => tablesIn(inner, path ? `${path}.${key}` : key));
}

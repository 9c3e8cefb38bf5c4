/** Rows as a file that spreadsheets open: raw units, full precision. */
import type { Cell } from "../api/types";

function field(value: Cell): string {
  if (value === null) return "";
  if (typeof value !== "string") return String(value);
  // A spreadsheet would run a cell like "=cmd()" as a formula; a leading quote keeps it text.
  const safe = /^[=+\-@\t\r]/.test(value) && !/^[+-]?[\d.]+(e[+-]?\d+)?$/i.test(value) ? `'${value}` : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

export function csv(header: readonly string[], rows: readonly (readonly Cell[])[]): string {
  return [header, ...rows].map((row) => row.map(field).join(",") + "\r\n").join("");
}

/** Hands the text to the browser as a download. */
export function save(name: string, text: string, type = "text/csv"): void {
  const url = URL.createObjectURL(new Blob([text], { type: `${type};charset=utf-8` }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The download has its own hold on the blob once it has begun.
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

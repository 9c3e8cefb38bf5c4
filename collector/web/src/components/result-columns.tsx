/** Columns of a result's own tables: units once in the heading, one unit and number of decimals a column. */
import type { ComponentChildren } from "preact";

import type { Cell, Column, Table } from "../api/types";
import { bandwidth, columnDecimals, durationUnit, fixed, flops, memoryUnit, percent, type Quantity, text, type Unit } from "../format/numbers";
import { isRatio } from "../tools/framework-ops";
import { msFactor } from "../tools/steps";
import { Bar } from "./basics";
import type { TableColumn } from "./data-table";

export type ResultRow = readonly Cell[];

export interface ColumnChoices {
  /** The column that names the row: it comes first, and stays in view in tables that scroll sideways. */
  readonly names?: RegExp;
  /** What is read first stands right behind the name. */
  readonly early?: RegExp;
  /** Where a name leads. */
  readonly opens?: (row: ResultRow) => string | null;
  /** Shares drawn as bars. */
  readonly bars?: RegExp;
  /** For tables that fill the page, whose columns are of fixed width. */
  readonly widths?: readonly (readonly [RegExp, number])[];
  readonly hidden?: RegExp;
}

const NUMBER_WIDTH = 132;
const RATE_WIDTH = 120;
const BAR_WIDTH = 160;
const TEXT_WIDTH = 110;
const RATES: Readonly<Record<string, (value: number) => Quantity>> = { "flops/s": flops, "bytes/s": bandwidth };

const absent = (word: string): ComponentChildren => <span class="quiet">{word}</span>;
const isNothing = (cell: Cell | undefined): boolean => cell === null || cell === undefined || cell === "";

/** How a number of this column reads, and the unit that stands in its heading. */
function numbersOf(column: Column, values: readonly (Cell | undefined)[], isBar: boolean): { readonly unit: string; readonly width: number; readonly shown: (value: number) => ComponentChildren } {
  const numbers = values.filter((value): value is number => typeof value === "number");
  const largest = numbers.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const scaled = ({ unit, factor }: Unit, base: number) => {
    const decimals = factor === 1 && unit === "B" ? 0 : columnDecimals([(largest * base) / factor]);
    return { unit, width: NUMBER_WIDTH, shown: (value: number) => fixed((value * base) / factor, decimals) };
  };
  const toMs = msFactor(column);
  if (toMs !== null) return scaled(durationUnit(largest * toMs), toMs);
  if (column.unit === "bytes") return scaled(memoryUnit(largest), 1);
  const rate = RATES[column.unit];
  if (rate) return { unit: "", width: RATE_WIDTH, shown: (value) => text(rate(value)) };
  if (isRatio(column)) {
    const bar = (value: number) => <span class="with-bar"><Bar ratio={value} /><span class="bar-number">{percent(value)}</span></span>;
    return { unit: "", width: isBar ? BAR_WIDTH : NUMBER_WIDTH, shown: isBar ? bar : percent };
  }
  const decimals = column.type === "integer" ? 0 : columnDecimals(numbers);
  return { unit: column.unit.replaceAll("_", " "), width: NUMBER_WIDTH, shown: (value) => fixed(value, decimals) };
}

/** Columns without a single value are left out. */
export function resultColumns(table: Table, choices: ColumnChoices = {}): TableColumn<ResultRow>[] {
  const { names, early, opens, widths } = choices;
  const isName = (column: Column): boolean => names?.test(column.id) ?? false;
  const rank = (column: Column): number => (isName(column) ? 0 : early?.test(column.id) ? 1 : 2);
  const order = table.columns.map((column, at) => ({ column, at })).sort((a, b) => rank(a.column) - rank(b.column));
  return order.flatMap(({ column, at }): TableColumn<ResultRow>[] => {
    const values = table.rows.map((row) => row[at]);
    if (choices.hidden?.test(column.id) || (table.rows.length > 0 && values.every(isNothing))) return [];
    const own = widths?.find(([pattern]) => pattern.test(column.id))?.[1];
    const width = (otherwise: number): { readonly width?: number } => (widths ? { width: own ?? otherwise } : {});
    const label = column.label.replace(/\s*\((us|µs|ms|ps|ns|s)\)$/, "");
    const shared = { id: column.id, label, value: (row: ResultRow): Cell => row[at] ?? null };
    if (column.type === "number" || column.type === "integer") {
      const { unit, width: usual, shown } = numbersOf(column, values, choices.bars?.test(column.id) ?? false);
      const none = column.unit === "flops/s" ? "no FLOPs" : "none";
      return [{ ...shared, ...width(usual), ...(unit ? { unit } : {}), numeric: true, cell: (row) => (typeof row[at] === "number" ? shown(row[at]) : absent(none)) }];
    }
    const shown = (row: ResultRow): ComponentChildren => {
      const cell = row[at];
      if (typeof cell === "boolean") return cell ? "yes" : <span class="quiet">no</span>;
      if (isNothing(cell)) return widths ? "" : absent("none");
      const to = isName(column) ? (opens?.(row) ?? null) : null;
      return to === null ? <span title={String(cell)}>{String(cell)}</span> : <a href={to} title={String(cell)}>{String(cell)}</a>;
    };
    return [{ ...shared, ...width(TEXT_WIDTH), class: `${isName(column) ? "mono" : ""} ${widths ? "" : "bounded"}`, cell: shown }];
  });
}

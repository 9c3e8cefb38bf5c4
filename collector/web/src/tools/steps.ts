/** Step tables of results: what each step is made of, per host and core where the table says so. */
import type { Column, Table } from "../api/types";
import { CATEGORIES, type Category, categoryOf, stackOrder } from "./categories";
import { isTable, numberOf } from "./tables";

export interface StepRow {
  readonly step: string;
  readonly host: string | null;
  readonly core: string | null;
  readonly totalMs: number;
  /** Step time less waiting in collectives, where the result says it. */
  readonly ownMs: number | null;
  /** Cut by the begin or end of the capture on some host. */
  readonly isComplete: boolean;
  /** By category id; what a table splits further is summed. */
  readonly parts: ReadonlyMap<string, number>;
}

export interface StepTable {
  readonly rows: readonly StepRow[];
  /** The categories that occur, in stack order. */
  readonly categories: readonly Category[];
}

const TO_MS: Readonly<Record<string, number>> = { ps: 1e-9, ns: 1e-6, us: 1e-3, µs: 1e-3, ms: 1, s: 1000 };

/** Milliseconds in one of the column's units; null when it holds no time. */
export function msFactor(column: Column): number | null {
  const unit = column.unit || (/_(ps|ns|us|ms|s)$/.exec(column.id)?.[1] ?? "");
  return TO_MS[unit] ?? null;
}

const STEP = /^(step|step_num|step_number|step_name|step_id)$/;
const HOST = /^(host|host_name|hostname)$/;
const CORE = /^(core|core_id|core_name|device|device_id)$/;
const TOTAL = /^(total|step|duration|step_time|step_duration|total_time|total_duration)(_time)?(_(ps|ns|us|ms|s))?$/;
/** Columns about a step that are no part of it. */
const NOT_A_PART = /^own_work|^begin_|^waiting_/;

export function readSteps(value: unknown): StepTable {
  if (!isTable(value)) return { rows: [], categories: [] };
  const table: Table = value;
  const at = (pattern: RegExp): number => table.columns.findIndex((column) => pattern.test(column.id));
  const [step, host, core] = [at(STEP), at(HOST), at(CORE)];
  const [own, complete] = [at(/^own_work_/), at(/^is_complete$/)];
  const total = table.columns.findIndex((column) => TOTAL.test(column.id) && msFactor(column) !== null);
  const parts = table.columns.flatMap((column, i) => {
    const factor = msFactor(column);
    if (factor === null || i === total || NOT_A_PART.test(column.id)) return [];
    return [{ i, factor, id: categoryOf(column.id).id }];
  });
  const rows = table.rows.map((row): StepRow => {
    const sums = new Map<string, number>();
    for (const part of parts) {
      const ms = (numberOf(row[part.i]) ?? 0) * part.factor;
      sums.set(part.id, (sums.get(part.id) ?? 0) + ms);
    }
    const column = table.columns[total];
    const said = column ? numberOf(row[total]) : null;
    const summed = [...sums.values()].reduce((a, b) => a + b, 0);
    const cell = (i: number): string | null => (i < 0 || row[i] === null || row[i] === undefined ? null : String(row[i]));
    const ownColumn = table.columns[own];
    const ownTime = ownColumn ? numberOf(row[own]) : null;
    return {
      ownMs: ownTime === null || !ownColumn ? null : ownTime * (msFactor(ownColumn) ?? 1),
      isComplete: complete < 0 || row[complete] !== false,
      step: cell(step) ?? "",
      host: cell(host),
      core: cell(core),
      totalMs: said === null || !column ? summed : said * (msFactor(column) ?? 1),
      parts: sums,
    };
  });
  return { rows, categories: present(rows) };
}

function present(rows: readonly StepRow[]): Category[] {
  const used = new Set<string>();
  for (const row of rows) for (const [id, ms] of row.parts) if (ms > 0) used.add(id);
  return CATEGORIES.filter((category) => used.has(category.id)).sort((a, b) => stackOrder(a.id) - stackOrder(b.id));
}

export function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((a, b) => a + b, 0) / values.length;
}

/** Of the values as a whole, not of a sample. */
export function deviation(values: readonly number[]): number {
  const middle = mean(values);
  return Math.sqrt(mean(values.map((value) => (value - middle) ** 2)));
}

export function median(values: readonly number[]): number {
  if (values.length === 0) return 0;
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[half] as number) : ((sorted[half - 1] as number) + (sorted[half] as number)) / 2;
}

/** Reads comparisons: what changed, in what order, and how sure that is. */
import type { Capture, Cell, Comparison, Table, ToolResult } from "../api/types";
import { runOf } from "../pages/captures/filter";
import { categoryOf, type Category, CATEGORIES, stackOrder } from "./categories";
import { fieldsOf, numberOf, records, textOf } from "./tables";

export type Judgement = "significant" | "within_noise" | "unknown";

export interface StepChange {
  readonly measure: string;
  readonly host: string | null;
  readonly base: number;
  readonly other: number;
  readonly change: number;
  readonly ratio: number | null;
  readonly low: number | null;
  readonly high: number | null;
  readonly judgement: Judgement;
}

export const judgementOf = (value: unknown): Judgement => (value === "significant" || value === "within_noise" ? value : "unknown");

/** Times of steps in milliseconds, whatever the tool says them in. */
export function stepChanges(comparison: Comparison): StepChange[] {
  return records(comparison.tables["steps"]).map((row) => stepChange(row));
}

function stepChange(row: Readonly<Record<string, unknown>>): StepChange {
  const factor = row["unit"] === "us" ? 1e-3 : 1;
  const ms = (name: string): number | null => {
    const value = numberOf(row[name]);
    return value === null ? null : value * factor;
  };
  return {
    measure: textOf(row["measure"]) ?? "",
    host: textOf(row["host"]),
    base: ms("base_mean") ?? 0,
    other: ms("other_mean") ?? 0,
    change: ms("change") ?? 0,
    ratio: numberOf(row["change_ratio"]),
    low: ms("change_low"),
    high: ms("change_high"),
    judgement: judgementOf(row["significance"]),
  };
}

export function stepTime(comparison: Comparison): StepChange | null {
  const found = comparison.summary.step_time;
  return found ? stepChange(found) : null;
}

export interface CategoryChange {
  readonly category: Category;
  readonly base: number;
  readonly other: number;
  readonly change: number;
  readonly judgement: Judgement;
}

/** The step's change by category, in the order of the stack; several of one category are one. */
export function categoryChanges(comparison: Comparison): CategoryChange[] {
  const byId = new Map<string, CategoryChange>();
  for (const row of stepChanges(comparison)) {
    if (row.measure.startsWith("duration")) continue;
    const category = categoryOf(row.measure.replace(/_(us|ms)$/, ""));
    const known = byId.get(category.id);
    byId.set(category.id, {
      category,
      base: (known?.base ?? 0) + row.base,
      other: (known?.other ?? 0) + row.other,
      change: (known?.change ?? 0) + row.change,
      judgement: known?.judgement === "significant" ? "significant" : row.judgement,
    });
  }
  return CATEGORIES.flatMap((category) => byId.get(category.id) ?? []).sort((a, b) => stackOrder(a.category.id) - stackOrder(b.category.id));
}

export interface HostChange {
  readonly host: string;
  readonly base: number | null;
  readonly other: number | null;
  readonly judgement: Judgement;
}

/** Own work of every host, from the pod viewer's comparison. */
export function hostChanges(comparison: Comparison): HostChange[] {
  return records(comparison.tables["steps"])
    .filter((row) => row["measure"] === "own_work_us")
    .map((row) => ({
      host: textOf(row["host"]) ?? "",
      base: scaled(row["base_mean"]),
      other: scaled(row["other_mean"]),
      judgement: judgementOf(row["significance"]),
    }))
    .sort((a, b) => (a.host < b.host ? -1 : 1));
}

const scaled = (value: unknown): number | null => {
  const number = numberOf(value);
  return number === null ? null : number / 1000;
};

/** Durations of the complete steps of an overview, in milliseconds. */
export function stepDurations(result: ToolResult): number[] {
  const rows = records(fieldsOf(result.result)["steps"]);
  const complete = rows.filter((row) => row["is_complete"] === true);
  return (complete.length > 0 ? complete : rows).flatMap((row) => scaled(row["duration_us"]) ?? []);
}

/** A smooth density over `at`, by a Gaussian kernel of Silverman's width; its peak is 1. */
export function density(values: readonly number[], at: readonly number[]): number[] {
  if (values.length === 0) return at.map(() => 0);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
  const width = Math.max(1.06 * deviation * values.length ** -0.2, Math.abs(mean) * 1e-3, 1e-9);
  const raw = at.map((x) => values.reduce((sum, value) => sum + Math.exp(-0.5 * ((x - value) / width) ** 2), 0));
  const highest = Math.max(...raw, 1e-12);
  return raw.map((value) => value / highest);
}

export interface RowChange {
  readonly key: string;
  readonly name: string;
  readonly about: string;
  readonly kind: string;
  readonly match: "both" | "appeared" | "vanished";
  readonly base: number | null;
  readonly other: number | null;
  readonly change: number;
  readonly ratio: number | null;
  readonly baseCount: number | null;
  readonly otherCount: number | null;
  readonly judgement: Judgement;
}

export interface RowChanges {
  readonly unit: string;
  readonly measure: string;
  readonly rows: readonly RowChange[];
}

const ABOUT = /framework_name|long_name|op_name|shape|origin|node/;
const KIND = /^(category|type|opcode|region_type|device_type|host_or_device|pipeline|stage|place)$/;

/** The rows of one table: its first column names them, the others say what they are. */
export function rowChanges(table: Table): RowChanges {
  const ids = table.columns.map((column) => column.id);
  const until = ids.indexOf("match");
  const changeAt = ids.findIndex((id) => /^change(_|$)/.test(id) && id !== "change_ratio");
  const [baseAt, otherAt] = [changeAt - 2, changeAt - 1];
  const at = (id: string): number => ids.indexOf(id);
  const countAt = ["occurrences", "calls", "count", "buffers", "allocations"].map((name) => at(`base_${name}`)).find((found) => found >= 0) ?? -1;
  const said = (row: readonly Cell[], pattern: RegExp): string => {
    const found = ids.slice(1, until).findIndex((id, i) => pattern.test(id) && row[i + 1] !== null && row[i + 1] !== "");
    return found < 0 ? "" : String(row[found + 1]);
  };
  return {
    unit: table.columns[changeAt]?.unit ?? "",
    measure: table.columns[baseAt]?.label.replace(/, base$/, "") ?? "",
    rows: table.rows.map((row, i): RowChange => ({
      key: String(i),
      name: String(row[0] ?? ""),
      about: said(row, ABOUT),
      kind: said(row, KIND),
      match: row[at("match")] as RowChange["match"],
      base: numberOf(row[baseAt]),
      other: numberOf(row[otherAt]),
      change: numberOf(row[changeAt]) ?? 0,
      ratio: numberOf(row[at("change_ratio")]),
      baseCount: countAt < 0 ? null : numberOf(row[countAt]),
      otherCount: countAt < 0 ? null : numberOf(row[countAt + 1]),
      judgement: judgementOf(row[at("significance")]),
    })),
  };
}

/** The tables of a comparison that list rows. */
export function rowTables(comparison: Comparison): [string, Table][] {
  return Object.entries(comparison.tables).filter(([name]) => name !== "steps" && name !== "totals");
}

export interface Total {
  readonly base: number | null;
  readonly other: number | null;
}

export function total(comparison: Comparison, name: string): Total {
  const row = records(comparison.tables["totals"]).find((candidate) => candidate["name"] === name);
  return { base: numberOf(row?.["base"]), other: numberOf(row?.["other"]) };
}

/** What is compared when nothing is chosen: the newest analysed capture that has one before it of its run, with that one. */
export function defaultPair(captures: readonly Capture[], chosen: string | null): { readonly base: string | null; readonly other: string | null } {
  const analysed = captures.filter((capture) => capture.analysis?.state === "done");
  const isFollowing = (capture: Capture, at: number): boolean => analysed.slice(at + 1).some((before) => runOf(before) === runOf(capture));
  const other = captures.find((capture) => capture.id === chosen) ?? analysed.find(isFollowing) ?? analysed[0];
  if (!other) return { base: null, other: chosen };
  const later = analysed.slice(analysed.findIndex((capture) => capture.id === other.id) + 1);
  const before = later.find((capture) => runOf(capture) === runOf(other)) ?? later[0] ?? analysed.find((capture) => capture.id !== other.id);
  return { base: before?.id ?? null, other: other.id };
}

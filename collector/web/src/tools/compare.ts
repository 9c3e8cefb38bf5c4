/** Reads comparisons: what changed, in what order, and how sure that is. */
import type { AskedPair, AskedSide, Capture, Cell, Comparison, Table, ToolResult } from "../api/types";
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
    // These are sums of the others.
    if (row.measure.startsWith("duration") || row.measure === "own_work_us") continue;
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

/** Durations of the complete steps of an overview, in milliseconds; of those asked for. */
export function stepDurations(result: ToolResult, steps: string | null = null): number[] {
  return completeSteps(result, steps).flatMap((row) => scaled(row["duration_us"]) ?? []);
}

function completeSteps(result: ToolResult, steps: string | null): Readonly<Record<string, unknown>>[] {
  const range = stepRange(steps);
  const rows = records(fieldsOf(result.result)["steps"]).filter((row) => {
    const step = numberOf(row["step"]);
    return range === null || (step !== null && range[0] <= step && step <= range[1]);
  });
  const complete = rows.filter((row) => row["is_complete"] === true);
  return complete.length > 0 ? complete : rows;
}

/** Own work of a host in every step, in milliseconds: the mean of its cores, from the pod viewer's steps. */
export function ownWorkOf(result: ToolResult, host: string, steps: string | null = null): number[] {
  const byStep = new Map<number, number[]>();
  for (const row of completeSteps(result, steps)) {
    const [step, own] = [numberOf(row["step"]), scaled(row["own_work_us"])];
    if (row["host"] === host && step !== null && own !== null) byStep.set(step, [...(byStep.get(step) ?? []), own]);
  }
  return [...byStep].sort(([a], [b]) => a - b).map(([, own]) => own.reduce((sum, one) => sum + one, 0) / own.length);
}

/** The first and the last step of an overview; null without steps. */
export function stepBounds(result: ToolResult): readonly [number, number] | null {
  const numbers = completeSteps(result, null).flatMap((row) => numberOf(row["step"]) ?? []);
  return numbers.length > 0 ? [Math.min(...numbers), Math.max(...numbers)] : null;
}

/** How the own work of one host changed to that of another, from the pod viewer's comparison of the two. */
export function ownWorkChange(comparison: Comparison): StepChange | null {
  return stepChanges(comparison).find((one) => one.measure === "own_work_us") ?? null;
}

/** First and last of "3-7" or "3"; null for all steps. */
export function stepRange(steps: string | null): readonly [number, number] | null {
  const found = /^(\d{1,9})(?:-(\d{1,9}))?$/.exec(steps ?? "");
  return found ? [Number(found[1]), Number(found[2] ?? found[1])] : null;
}

/** A range of steps as the address has it, of what somebody typed; null for all, undefined for what is none. */
export function typedSteps(text: string): string | null | undefined {
  const found = /^\s*(\d{1,9})\s*(?:(?:-|\u2013|to|\.\.)\s*(\d{1,9})\s*)?$/.exec(text);
  if (!found) return /^\s*(all)?\s*$/i.test(text) ? null : undefined;
  const [first, last] = [Number(found[1]), Number(found[2] ?? found[1])];
  if (last < first) return undefined;
  return first === last ? String(first) : `${first}-${last}`;
}

/** Two whole captures. */
export const ofWhole = (base: string, other: string): AskedPair => ({
  base: { capture: base, host: null, steps: null },
  other: { capture: other, host: null, steps: null },
});

export const isSameSide = (one: AskedSide, two: AskedSide): boolean => one.capture === two.capture && one.host === two.host && one.steps === two.steps;

/** The query of the page that compares these. */
export const pairQuery = ({ base, other }: AskedPair): Readonly<Record<string, string | null>> => ({
  base: base.capture,
  capture: other.capture,
  base_host: base.host,
  host: other.host,
  base_steps: base.steps,
  steps: other.steps,
});

/** Tools that tell steps apart. */
export const LISTS_STEPS: ReadonlySet<string> = new Set([
  "overview_page",
  "pod_viewer",
  "input_pipeline_analyzer",
  "framework_op_stats",
  "op_profile",
  "hlo_stats",
  "roofline_model",
  "kernel_stats",
]);

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

/** Rows of a comparison of ranges of steps: times of operations, or of the parts of a step. */
export function stepRowChanges(table: Table): RowChanges {
  const ids = table.columns.map((column) => column.id);
  const [measureAt, kindAt] = [ids.indexOf("measure"), ids.indexOf("kind")];
  // Of a tree its leaves: categories and programs are sums of these.
  const leaves = kindAt < 0 || kindAt > measureAt ? table.rows : table.rows.filter((row) => row[kindAt] === "op");
  const rows = rowChanges({ columns: table.columns, rows: leaves }).rows.map((row, i): RowChange => {
    const cells = leaves[i] as readonly Cell[];
    const ofStep = cells[measureAt] !== "self_time_us";
    return ofStep ? { ...row, name: String(cells[ids.indexOf("label")] ?? ""), about: measureAt > 0 ? String(cells[0] ?? "") : "", kind: "" } : row;
  });
  return { unit: String(leaves[0]?.[ids.indexOf("unit")] ?? ""), measure: "Time of a step", rows };
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

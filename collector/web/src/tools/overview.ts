/** Reads the overview's result into what its page shows. */
import type { Table, ToolResult } from "../api/types";
import { type Category } from "./categories";
import { deviation, mean, readSteps, type StepTable } from "./steps";
import { type Fields, fieldsOf, isTable, numberOf, records, tablesIn, textOf } from "./tables";

export interface CategoryShare {
  readonly category: Category;
  readonly meanMs: number;
  readonly deviationMs: number;
  readonly ratio: number;
}

/** Mean, deviation and share of each category over the steps; the share is of the mean step. */
export function categoryShares(steps: StepTable): CategoryShare[] {
  const total = mean(steps.rows.map((row) => row.totalMs));
  return steps.categories.map((category) => {
    const values = steps.rows.map((row) => row.parts.get(category.id) ?? 0);
    return { category, meanMs: mean(values), deviationMs: deviation(values), ratio: total > 0 ? mean(values) / total : 0 };
  });
}

export interface TopOp {
  readonly name: string;
  readonly category: string;
  readonly selfRatio: number | null;
  readonly cumulativeRatio: number | null;
  readonly flopsPerSecond: number | null;
}

/** The first field of these names anywhere in the result, the shallowest first. */
export function find(result: Fields, ...names: string[]): unknown {
  let level: Fields[] = [result];
  for (let depth = 0; depth < 4 && level.length > 0; depth++) {
    for (const fields of level) {
      for (const name of names) if (fields[name] !== undefined && fields[name] !== null) return fields[name];
    }
    level = level.flatMap((fields) => Object.values(fields).filter((value) => !isTable(value)).map(fieldsOf)).filter((fields) => Object.keys(fields).length > 0);
  }
  return null;
}

export const findNumber = (result: Fields, ...names: string[]): number | null => numberOf(find(result, ...names));
export const findText = (result: Fields, ...names: string[]): string | null => textOf(find(result, ...names));

/** The table whose path and columns fit: a result may hold several. */
export function findTable(result: Fields, path: RegExp, columns: readonly RegExp[]): Table | null {
  const fits = tablesIn(result).filter(({ table }) => columns.every((wanted) => table.columns.some((column) => wanted.test(column.id))));
  return (fits.find((candidate) => path.test(candidate.path)) ?? fits[0])?.table ?? null;
}

function firstOf(row: Fields, pattern: RegExp): unknown {
  const key = Object.keys(row).find((name) => pattern.test(name));
  return key === undefined ? null : row[key];
}

export function overviewSteps(result: ToolResult): StepTable {
  return readSteps(findTable(result.result, /step/, [/^step/, /_(ms|us|ps)$/]));
}

export function topOps(result: ToolResult): TopOp[] {
  const table = findTable(result.result, /op/, [/^(operation|name|op|op_name)$/, /self/]);
  return records(table).slice(0, 10).map((row) => {
    const gflops = numberOf(firstOf(row, /gflop/));
    return {
      name: String(firstOf(row, /^(operation|name|op|op_name)$/) ?? ""),
      category: String(firstOf(row, /^(category|type|op_type)$/) ?? ""),
      selfRatio: numberOf(firstOf(row, /^(?!cumulative).*self.*ratio$/)),
      cumulativeRatio: numberOf(firstOf(row, /cumulative.*ratio$/)),
      flopsPerSecond: gflops !== null ? gflops * 1e9 : numberOf(firstOf(row, /flops_per_second|flop_rate/)),
    };
  });
}

export interface Advice {
  readonly title: string;
  readonly text: string;
  readonly tool: string | null;
  readonly gainMs: number | null;
}

/** Advice as a list of objects, of sentences, or a table: whatever the analyzer sends. */
export function advice(result: ToolResult): Advice[] {
  const found = find(result.result, "advice", "recommendations", "what_to_do", "suggestions");
  const rows: unknown[] = isTable(found) ? records(found) : Array.isArray(found) ? found : [];
  return rows.flatMap((row): Advice[] => {
    if (typeof row === "string") return row ? [{ title: "", text: row, tool: null, gainMs: null }] : [];
    const fields = fieldsOf(row);
    const text = textOf(fields["text"]) ?? textOf(fields["message"]) ?? textOf(fields["statement"]) ?? textOf(fields["description"]);
    const title = textOf(fields["title"]);
    if (!text && !title) return [];
    return [{ title: title ?? "", text: text ?? "", tool: textOf(fields["tool"]), gainMs: numberOf(fields["gain_ms"] ?? fields["expected_gain_ms"]) }];
  });
}

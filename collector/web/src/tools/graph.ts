/** The graph viewer's result as things to draw. */
import type { Cell, ToolResult } from "../api/types";
import { fieldsOf, numberOf, records, textOf } from "./tables";

export interface Spent {
  readonly selfPs: number | null;
  readonly occurrences: number | null;
  readonly flops: number | null;
  readonly hbm: number | null;
}

export interface Box {
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

export interface GraphNode extends Box, Spent {
  readonly name: string;
  readonly opcode: string;
  readonly category: string;
  readonly shape: string;
  readonly fusion: string;
  readonly hidden: number;
  readonly calls: string;
}

export interface GraphGroup extends Box, Spent {
  readonly name: string;
  readonly instructions: number;
}

export interface GraphEdge {
  readonly source: string;
  readonly target: string;
  readonly points: string;
}

export interface Graph {
  readonly nodes: readonly GraphNode[];
  readonly groups: readonly GraphGroup[];
  readonly edges: readonly GraphEdge[];
  readonly width: number;
  readonly height: number;
  readonly shown: number;
  readonly total: number;
  readonly cursor: string | null;
}

type Row = Record<string, Cell>;

const number = (row: Row, id: string): number => numberOf(row[id]) ?? 0;
const text = (row: Row, id: string): string => textOf(row[id]) ?? "";

function boxOf(row: Row): Box {
  return { x: number(row, "x"), y: number(row, "y"), width: number(row, "width"), height: number(row, "height") };
}

export function spentOf(row: Readonly<Record<string, unknown>>): Spent {
  return {
    selfPs: numberOf(row["self_time_ps"]),
    occurrences: numberOf(row["occurrences"]),
    flops: numberOf(row["flops_utilization_ratio"]),
    hbm: numberOf(row["hbm_utilization_ratio"]),
  };
}

export function graphOf(result: ToolResult): Graph {
  const about = fieldsOf(result.result["graph"]);
  return {
    nodes: records(result.result["nodes"]).map((row) => ({
      ...boxOf(row),
      ...spentOf(row),
      name: text(row, "name"),
      opcode: text(row, "opcode"),
      category: text(row, "category"),
      shape: text(row, "shape"),
      fusion: text(row, "fusion"),
      hidden: number(row, "operands_left_out") + number(row, "users_left_out"),
      calls: text(row, "calls"),
    })),
    groups: records(result.result["fusions"]).map((row) => ({
      ...boxOf(row),
      ...spentOf(row),
      name: text(row, "fusion"),
      instructions: number(row, "instructions"),
    })),
    edges: records(result.result["edges"]).map((row) => ({
      source: text(row, "source"),
      target: text(row, "target"),
      points: text(row, "points"),
    })),
    width: numberOf(about["width_px"]) ?? 0,
    height: numberOf(about["height_px"]) ?? 0,
    shown: numberOf(about["shown"]) ?? 0,
    total: numberOf(about["instructions"]) ?? 0,
    cursor: textOf(about["cursor"]),
  };
}

const KINDS: readonly (readonly [string, RegExp])[] = [
  ["collective", /^(all-|collective-|reduce-scatter|ragged-all|send|recv|infeed|outfeed|partition-id|replica-id)/],
  ["product", /^(dot|convolution|ragged-dot|scaled-dot|fft|triangular-solve|cholesky)$/],
  ["call", /^(call|conditional|custom-call|while|async-)/],
  ["layout", /^(copy|transpose|reshape|dynamic-reshape|reverse|concatenate|dynamic-slice|bitcast|slice|pad)/],
  ["given", /^(parameter|constant|iota|get-tuple-element|tuple)$/],
  ["reduce", /^(reduce|batch-norm|scatter|gather|select-and-scatter|sort)/],
  ["fusion", /^fusion$/],
];

/** What an instruction does, as one of a few kinds that boxes are told apart by. */
export function kindOf(opcode: string): string {
  return KINDS.find(([, opcodes]) => opcodes.test(opcode))?.[0] ?? "element";
}

/** What fits into a box, its end kept: names differ at their ends. */
export function cut(name: string, width: number): string {
  const letters = Math.max(6, Math.floor((width - 16) / 6.6));
  if (name.length <= letters) return name;
  const end = Math.ceil((letters - 1) / 2);
  return `${name.slice(0, letters - 1 - end)}…${name.slice(-end)}`;
}

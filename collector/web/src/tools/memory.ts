/** Reads the memory tools' results for their pages. */
import type { LevelPoint, LevelRun } from "../components/level-chart";
import { fieldsOf, numberOf, records, textOf } from "./tables";
import type { ToolResult } from "../api/types";

export interface PeakBuffer {
  readonly order: number;
  readonly id: number | null;
  readonly name: string;
  readonly shape: string;
  readonly category: string;
  readonly op: string;
  readonly opcode: string;
  readonly source: string;
  readonly bytes: number;
  readonly unpadded: number | null;
  readonly begin: number | null;
  readonly end: number | null;
}

/** Why a buffer takes more than its elements need; 0 where nothing says it. */
export const padding = (buffer: PeakBuffer): number => (buffer.unpadded === null ? 0 : Math.max(buffer.bytes - buffer.unpadded, 0));

export type BufferOrder = "size" | "program" | "padding";

export function peakBuffers(result: ToolResult, order: BufferOrder): PeakBuffer[] {
  const found = records(result.result["peak_buffers"]).map((row): PeakBuffer => ({
    order: numberOf(row["order"]) ?? 0,
    id: numberOf(row["buffer_id"]),
    name: textOf(row["instruction"]) ?? "",
    shape: textOf(row["shape"]) ?? "",
    category: textOf(row["category"]) ?? "",
    op: textOf(row["op_name"]) ?? "",
    opcode: textOf(row["opcode"]) ?? "",
    source: textOf(row["source"]) ?? "",
    bytes: numberOf(row["size_bytes"]) ?? 0,
    unpadded: numberOf(row["unpadded_bytes"]),
    begin: numberOf(row["begin_position"]),
    end: numberOf(row["end_position"]),
  }));
  const by = { size: (a: PeakBuffer, b: PeakBuffer) => b.bytes - a.bytes, program: (a: PeakBuffer, b: PeakBuffer) => a.order - b.order, padding: (a: PeakBuffer, b: PeakBuffer) => padding(b) - padding(a) };
  return found.sort(by[order]);
}

/** A buffer by its id: one of the peak, else one of those that are laid out. */
export function bufferOf(result: ToolResult, id: string | null): PeakBuffer | undefined {
  if (id === null) return undefined;
  const atPeak = peakBuffers(result, "program").find((buffer) => buffer.id !== null && String(buffer.id) === id);
  if (atPeak) return atPeak;
  const row = records(result.result["blocks"]).find((one) => one["buffer_id"] !== null && String(one["buffer_id"]) === id);
  if (!row) return undefined;
  return {
    order: -1,
    id: numberOf(row["buffer_id"]),
    name: textOf(row["name"]) ?? "",
    shape: textOf(row["shape"]) ?? "",
    category: textOf(row["category"]) ?? "",
    op: textOf(row["op_name"]) ?? "",
    opcode: "",
    source: "",
    bytes: numberOf(row["size_bytes"]) ?? 0,
    unpadded: numberOf(row["unpadded_bytes"]),
    begin: numberOf(row["begin_position"]),
    end: numberOf(row["end_position"]),
  };
}

export function heapPoints(result: ToolResult): LevelPoint[] {
  return records(result.result["heap"]).map((row) => ({
    x: numberOf(row["position"]) ?? 0,
    most: numberOf(row["heap_bytes"]) ?? 0,
    second: numberOf(row["unpadded_heap_bytes"]) ?? 0,
    title: textOf(row["instruction"]) ?? "the end",
  }));
}

/** The timeline of one allocator; a bucket's least and most stay both. */
/** Runs of programs to be drawn above an allocator's timeline: of its own core where it is a core's. */
export function programRuns(result: ToolResult, allocator: string): LevelRun[] {
  const rows = records(result.result["modules"]);
  const own = rows.filter((row) => row["core"] === `TPU:${allocator}`);
  const first = rows[0]?.["core"];
  return (own.length > 0 ? own : rows.filter((row) => row["core"] === first)).map((row) => ({
    begin: numberOf(row["begin_ms"]) ?? 0,
    end: numberOf(row["end_ms"]) ?? 0,
    label: textOf(row["program"]) ?? "",
  }));
}

export function timelinePoints(result: ToolResult, allocator: string): LevelPoint[] {
  return records(result.result["timeline"])
    .filter((row) => row["allocator"] === allocator)
    .map((row) => ({
      x: numberOf(row["begin_ms"]) ?? 0,
      most: numberOf(row["max_used_bytes"]) ?? 0,
      least: numberOf(row["min_used_bytes"]) ?? 0,
      strip: numberOf(row["max_fragmentation_ratio"]),
      title: textOf(row["op_name"]) ?? "no operation named",
    }));
}

export const figures = (result: ToolResult, name: string): ((key: string) => number | null) => {
  const fields = fieldsOf(result.result[name]);
  return (key) => numberOf(fields[key]);
};

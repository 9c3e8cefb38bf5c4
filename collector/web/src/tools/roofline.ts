/** Points and ceilings of a roofline, and the logarithmic plane that they are drawn in. */
import type { Cell, Table, ToolResult } from "../api/types";
import { fieldsOf, isTable, numberOf, records, textOf } from "./tables";

export interface Ceiling {
  readonly name: string;
  readonly label: string;
  readonly bytesPerSecond: number;
  readonly ridge: number;
}

export interface Point {
  readonly key: string;
  readonly name: string;
  readonly kind: "program" | "step" | "op";
  readonly step: string;
  readonly category: string;
  readonly program: string;
  /** FLOP per byte of what bounds it. */
  readonly intensity: number;
  readonly flopsPerSecond: number;
  readonly boundBy: string;
  readonly selfRatio: number;
  readonly efficiency: number;
  readonly row: readonly Cell[];
}

export interface Roofline {
  readonly table: Table | null;
  readonly points: readonly Point[];
  readonly ceilings: readonly Ceiling[];
  readonly peakFlops: number | null;
  readonly deviceType: string;
}

const LABELS: Readonly<Record<string, string>> = {
  hbm: "HBM",
  cmem_read: "CMEM read",
  cmem_write: "CMEM write",
  vmem_read: "VMEM read",
  vmem_write: "VMEM write",
};

/** What bounds an operation, in words. */
export const boundWords = (bound: string): string => LABELS[bound] ?? bound;

export function roofline(result: ToolResult, withFeeds: boolean): Roofline {
  const fields = fieldsOf(result.result);
  const deviceType = textOf(fields["device_type"]) ?? "";
  const table = isTable(fields["records"]) ? fields["records"] : null;
  const rows = table ? records(table) : [];
  const points = rows.flatMap((row, at): Point[] => {
    if (row["include_infeed_outfeed"] !== withFeeds) return [];
    const [name, step] = [textOf(row["operation"]) ?? "", textOf(row["step"]) ?? ""];
    const isProgram = textOf(row["category"]) === "Program";
    return [
      {
        key: `${step} ${textOf(row["program_id"]) ?? ""} ${name}`,
        name: isProgram && name === "Program" ? (step === "total" ? "All operations" : step === "average" ? "Average step" : `Step ${step}`) : name,
        kind: !isProgram ? "op" : step === "total" ? "program" : "step",
        step,
        category: textOf(row["category"]) ?? "",
        program: textOf(row["program_id"]) ?? "0",
        intensity: numberOf(row["bottleneck_intensity_flops_per_byte"]) ?? 0,
        flopsPerSecond: numberOf(row["measured_flops_per_second"]) ?? 0,
        boundBy: textOf(row["bound_by"]) ?? "unknown",
        selfRatio: numberOf(row["total_self_time_ratio"]) ?? 0,
        efficiency: numberOf(row["roofline_efficiency_ratio"]) ?? 0,
        row: table?.rows[at] ?? [],
      },
    ];
  });
  const ceilings = records(fields["ceilings"]).map((row) => {
    const name = textOf(row["ceiling"]) ?? "";
    // The local memory of a GPU is its shared memory.
    const label = deviceType.includes("GPU") && name.startsWith("vmem") ? (name === "vmem_write" ? "Shared memory / L1" : "") : (LABELS[name] ?? name);
    return { name, label, bytesPerSecond: numberOf(row["peak_bytes_per_second"]) ?? 0, ridge: numberOf(row["ridge_point_flops_per_byte"]) ?? 0 };
  });
  return { table, points, ceilings: ceilings.filter((one) => one.label !== "" && one.bytesPerSecond > 0), peakFlops: numberOf(fields["peak_flops_per_second"]), deviceType };
}

/** Those that have a place: both coordinates above zero. */
export const drawable = (points: readonly Point[]): Point[] => points.filter((point) => point.intensity > 0 && point.flopsPerSecond > 0);

/** A part of the plane that the reader drew: intensities, and rates. */
export interface Region {
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
}

export const isWithin = ({ x, y }: Region, point: Point): boolean =>
  point.intensity >= x[0] && point.intensity <= x[1] && point.flopsPerSecond >= y[0] && point.flopsPerSecond <= y[1];

/** `0.5,20,1e9,3e12` and back: edges of intensity, then of rate. */
export function regionText({ x, y }: Region): string {
  return [...x, ...y].map((edge) => Number(edge.toPrecision(6)).toString()).join(",");
}

export function regionOf(text: string | null): Region | null {
  const [left, right, low, high, ...more] = (text ?? "").split(",").map(Number);
  if (more.length > 0 || ![left, right, low, high].every((edge) => edge !== undefined && Number.isFinite(edge))) return null;
  return { x: [left as number, right as number], y: [low as number, high as number] };
}

export interface Plane {
  /** Exponents of ten at the edges. */
  readonly x: readonly [number, number];
  readonly y: readonly [number, number];
}

/** Whole decades around all points, ridges and the peak. */
export function planeOf(model: Roofline, points: readonly Point[]): Plane {
  const xs = [...points.map((point) => point.intensity), ...model.ceilings.map((one) => one.ridge)].filter((x) => x > 0);
  const ys = [...points.map((point) => point.flopsPerSecond), ...(model.peakFlops ? [model.peakFlops] : [])].filter((y) => y > 0);
  const edges = (values: readonly number[], fallback: readonly [number, number]): readonly [number, number] => {
    if (values.length === 0) return fallback;
    const [low, high] = [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
    return [Math.max(low, high - 9), high === low ? high + 1 : high];
  };
  const x = edges(xs, [-1, 3]);
  const y = edges(ys, [9, 15]);
  // Room for the ridges' labels above the peak, and for a whole circle below.
  const above = model.peakFlops && Math.log10(model.peakFlops) > y[1] - 0.9 ? 1 : 0;
  const below = y[1] - y[0] < 9 && ys.some((one) => Math.log10(one) < y[0] + 0.3) ? 1 : 0;
  return { x: [x[0], x[1] + (xs.some((one) => Math.log10(one) > x[1] - 0.3) ? 1 : 0)], y: [y[0] - below, y[1] + above] };
}

/** The three corners of a ceiling within the plane: along the bandwidth up to its ridge, then along the peak. */
export function ceilingLine(ceiling: Ceiling, peakFlops: number | null, plane: Plane): [number, number][] {
  const [left, right] = [10 ** plane.x[0], 10 ** plane.x[1]];
  const bottom = 10 ** plane.y[0];
  // Where the slope enters the plane: at its left edge, or at its foot.
  const start = Math.max(left, bottom / ceiling.bytesPerSecond);
  const ridge = peakFlops ? peakFlops / ceiling.bytesPerSecond : right;
  const line: [number, number][] = [[start, start * ceiling.bytesPerSecond], [ridge, ridge * ceiling.bytesPerSecond]];
  if (peakFlops && right > ridge) line.push([right, peakFlops]);
  return line;
}

/** Numbers as people read them. The browser's locale has no say: a link shows the same text to everyone. */

export const MINUS = "\u2212";

/** Digits with comma groups; a negative number gets a true minus sign. */
export function fixed(value: number, decimals: number): string {
  const text = Math.abs(value).toFixed(decimals);
  const [whole = "", fraction] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  const isZero = /^[0.]*$/.test(text);
  return (value < 0 && !isZero ? MINUS : "") + grouped + (fraction ? "." + fraction : "");
}

export function count(value: number): string {
  return fixed(Math.round(value), 0);
}

/** Decimals that show `digits` digits of `value`, none for what is larger. */
export function decimalsFor(value: number, digits = 4): number {
  const size = Math.abs(value);
  if (!Number.isFinite(size) || size === 0) return 0;
  const decimals = digits - 1 - Math.floor(Math.log10(size));
  // 9.9996 at four digits is 10.000: rounding may add a digit.
  const rounded = Number(size.toFixed(Math.min(Math.max(decimals, 0), 20)));
  const settled = rounded === 0 ? decimals : digits - 1 - Math.floor(Math.log10(rounded));
  return Math.min(Math.max(settled, 0), 6);
}

/** One number of decimals for a whole column: the largest shows four digits. */
export function columnDecimals(values: Iterable<number | null | undefined>, digits = 4): number {
  let largest = 0;
  for (const value of values) {
    if (value != null && Number.isFinite(value)) largest = Math.max(largest, Math.abs(value));
  }
  return decimalsFor(largest, digits);
}

export function significant(value: number, digits = 4): string {
  return fixed(value, decimalsFor(value, digits));
}

/** A difference: always with its sign. Zero has none. */
export function signed(value: number, decimals: number): string {
  const text = fixed(value, decimals);
  return value > 0 && !/^[0.,]*$/.test(text) ? "+" + text : text;
}

/** A ratio of 0 to 1 as a percentage with one decimal. */
export function percent(ratio: number): string {
  if (ratio === 0) return "0%";
  if (ratio > 0 && ratio < 0.001) return "<0.1%";
  return fixed(ratio * 100, 1) + "%";
}

/** From eleven times on a percentage is hard to read. */
const TIMES_FROM = 10;

/** A relative change, signed: `+8.3%`; of what grew many times over, by how much: `×453`. */
export function change(ratio: number): string {
  if (ratio >= TIMES_FROM) return "×" + significant(ratio + 1, 3);
  return signed(ratio * 100, 1) + "%";
}

/** A change of a percentage, in points. */
export function points(difference: number): string {
  return signed(difference * 100, 1) + " points";
}

/** A value and its unit, apart, so that the unit can stand small and grey. */
export interface Quantity {
  readonly value: string;
  readonly unit: string;
}

export interface Unit {
  readonly unit: string;
  /** How many base units one of these is. */
  readonly factor: number;
}

const DURATIONS: readonly Unit[] = [
  { unit: "ns", factor: 1e-6 },
  { unit: "µs", factor: 1e-3 },
  { unit: "ms", factor: 1 },
  { unit: "s", factor: 1e3 },
];
const BINARY: readonly Unit[] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"].map((unit, i) => ({ unit, factor: 1024 ** i }));
const DECIMAL: readonly Unit[] = ["B", "kB", "MB", "GB", "TB", "PB"].map((unit, i) => ({ unit, factor: 1000 ** i }));
const BANDWIDTH: readonly Unit[] = DECIMAL.map(({ unit, factor }) => ({ unit: unit + "/s", factor }));
const FLOPS: readonly Unit[] = ["FLOP/s", "kFLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s", "EFLOP/s"].map(
  (unit, i) => ({ unit, factor: 1000 ** i }),
);

function pick(units: readonly Unit[], value: number, step: number): Unit {
  const size = Math.abs(value);
  let chosen = units[0] as Unit;
  for (const unit of units) {
    if (size >= unit.factor && size > 0) chosen = unit;
  }
  // 999.97 kB shows as 1,000 kB at three digits: the next unit says it better.
  const next = units[units.indexOf(chosen) + 1];
  if (next && Number((size / chosen.factor).toPrecision(4)) >= step) chosen = next;
  return chosen;
}

function quantity(units: readonly Unit[], value: number, step: number, digits: number): Quantity {
  const { unit, factor } = pick(units, value, step);
  const scaled = value / factor;
  return { value: fixed(scaled, factor === 1 && unit === "B" ? 0 : decimalsFor(scaled, digits)), unit };
}

/** The unit for a column of durations in milliseconds, by the largest. */
export function durationUnit(largestMs: number): Unit {
  return pick(DURATIONS, largestMs, 1000);
}

/** A duration in milliseconds; a minute and more as `2 min 05 s`. */
export function duration(ms: number, digits = 4): Quantity {
  if (ms === 0) return { value: "0", unit: "ms" };
  if (Math.abs(ms) >= 60_000) {
    const seconds = Math.round(ms / 1000);
    const rest = String(Math.abs(seconds) % 60).padStart(2, "0");
    return { value: `${fixed(Math.trunc(seconds / 60), 0)} min ${rest}`, unit: "s" };
  }
  return quantity(DURATIONS, ms, 1000, digits);
}

/** The unit for a column or an axis of memory, by the largest. */
export function memoryUnit(largestBytes: number): Unit {
  return pick(BINARY, largestBytes, 1024);
}

/** Memory: binary units. */
export function memory(bytes: number, digits = 3): Quantity {
  return quantity(BINARY, bytes, 1024, digits);
}

/** Files and the network: decimal units. */
export function fileSize(bytes: number, digits = 3): Quantity {
  return quantity(DECIMAL, bytes, 1000, digits);
}

export function bandwidth(bytesPerSecond: number, digits = 3): Quantity {
  return quantity(BANDWIDTH, bytesPerSecond, 1000, digits);
}

export function flops(flopsPerSecond: number, digits = 3): Quantity {
  return quantity(FLOPS, flopsPerSecond, 1000, digits);
}

export function text({ value, unit }: Quantity): string {
  return `${value} ${unit}`;
}

/** `1,021 of 1,024`. */
export function ofTotal(done: number, total: number): string {
  return `${count(done)} of ${count(total)}`;
}

export function plural(n: number, one: string, many = one + "s"): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

/** Long ids keep both ends: `1219…3885`. */
export function middleCut(id: string, ends = 4): string {
  return id.length <= 2 * ends + 1 ? id : `${id.slice(0, ends)}…${id.slice(-ends)}`;
}

/** Time in a trace: milliseconds since its start, three decimals. */
export function traceTime(ms: number): string {
  return fixed(ms, 3) + " ms";
}

/** Tick marks for an axis from 0 that reaches `largest`. */
export function ticks(largest: number, wanted = 5): number[] {
  if (!(largest > 0)) return [0, 1];
  const rough = largest / wanted;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((s) => s >= rough) ?? 10 * power;
  const marks: number[] = [];
  for (let i = 0; i * step < largest * 1.0001 + step; i++) {
    marks.push(i * step);
    if (i * step >= largest) break;
  }
  return marks;
}

/** Round values from `first` to `last`: marks of an axis that does not begin at 0. */
export function ticksWithin(first: number, last: number, wanted = 6): number[] {
  if (!(last > first)) return [first];
  const [, step = last - first] = ticks(last - first, wanted);
  const from = Math.ceil(first / step - 1e-9);
  const to = Math.floor(last / step + 1e-9);
  return Array.from({ length: Math.max(to - from + 1, 0) }, (_, i) => (from + i) * step);
}

/** Decimals that tell axis ticks `step` apart. */
export function tickDecimals(step: number): number {
  for (let decimals = 0; decimals < 6; decimals++) {
    const scaled = step * 10 ** decimals;
    if (Math.abs(scaled - Math.round(scaled)) < 1e-6 * Math.max(scaled, 1)) return decimals;
  }
  return 6;
}

// Made once: a comparison that makes its own takes a hundred times as long.
const COLLATOR = new Intl.Collator("en", { numeric: true });

/** The order of names for people: `w-2` before `w-10`. */
export const byName = (a: string, b: string): number => COLLATOR.compare(a, b);

/** Names without the beginning that all share, cut where a part of a name ends. */
export function shortNames(names: readonly string[]): Map<string, string> {
  const first = names[0] ?? "";
  let shared = names.length > 1 ? first.length : 0;
  for (const name of names) {
    while (!name.startsWith(first.slice(0, shared))) shared -= 1;
  }
  const cut = Math.max(...["-", "_", ".", ":", "/"].map((mark) => first.lastIndexOf(mark, shared - 1))) + 1;
  const keep = shared > 0 && names.every((name) => name.length > cut) ? cut : 0;
  return new Map(names.map((name) => [name, name.slice(keep)]));
}

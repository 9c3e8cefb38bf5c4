/** Reads the pod viewer's result: every step of every core, folded to hosts, and who is late. */
import type { ToolResult } from "../api/types";
import { ofTotal } from "../format/numbers";
import type { Category } from "./categories";
import { median, readSteps, type StepRow } from "./steps";
import { fieldsOf, numberOf, records, textOf } from "./tables";

/** One host, or one core of it, in one step. */
export interface Unit {
  readonly key: string;
  readonly host: string;
  readonly core: string | null;
  readonly totalMs: number;
  /** Step time less time in collectives: equal step times hide who is late, this does not. */
  readonly ownMs: number;
  readonly parts: ReadonlyMap<string, number>;
}

export interface PodSteps {
  /** In the order of the result. */
  readonly steps: readonly string[];
  /** Steps of the capture: of long ones of large pods the result lists some. */
  readonly stepCount: number;
  /** Place of the first step listed, and of the first that is not any more. */
  readonly first: number;
  readonly next: number | null;
  readonly hosts: readonly string[];
  readonly categories: readonly Category[];
  /** Cores of a step. */
  readonly cores: ReadonlyMap<string, readonly Unit[]>;
  /** Hosts of a step: each stands for its slowest core. */
  readonly units: ReadonlyMap<string, readonly Unit[]>;
}

function unitOf(row: StepRow): Unit {
  const host = row.host ?? row.core ?? "";
  const waiting = row.parts.get("collective") ?? 0;
  return {
    key: row.core === null ? host : `${host} ${row.core}`,
    host,
    core: row.core,
    totalMs: row.totalMs,
    ownMs: row.ownMs ?? Math.max(row.totalMs - waiting, 0),
    parts: row.parts,
  };
}

export function podSteps(result: ToolResult): PodSteps {
  const { rows, categories } = readSteps(result.result["steps"]);
  const cores = new Map<string, Unit[]>();
  for (const row of rows) {
    const units = cores.get(row.step);
    if (units) units.push(unitOf(row));
    else cores.set(row.step, [unitOf(row)]);
  }
  const units = new Map([...cores].map(([step, all]) => [step, hostUnits(all)]));
  const hosts = [...new Set(rows.map((row) => row.host ?? row.core ?? ""))];
  const steps = [...cores.keys()];
  return {
    steps,
    stepCount: numberOf(result.result["step_count"]) ?? steps.length,
    first: numberOf(result.result["first_step"]) ?? 0,
    next: numberOf(result.result["next_step"]),
    hosts,
    categories,
    cores,
    units,
  };
}

/** A host is as late as its slowest core. */
export function hostUnits(cores: readonly Unit[]): Unit[] {
  const slowest = new Map<string, Unit>();
  for (const core of cores) {
    const present = slowest.get(core.host);
    if (!present || core.ownMs > present.ownMs) slowest.set(core.host, core);
  }
  return [...slowest.values()].map((unit) => ({ ...unit, key: unit.host }));
}

/** Mean own work of each host over the steps that it has. */
export function ownMeans(pod: PodSteps): Map<string, number> {
  const sums = new Map<string, { ms: number; steps: number }>();
  for (const units of pod.units.values()) {
    for (const { host, ownMs } of units) {
      const sum = sums.get(host) ?? { ms: 0, steps: 0 };
      sums.set(host, { ms: sum.ms + ownMs, steps: sum.steps + 1 });
    }
  }
  return new Map([...sums].map(([host, { ms, steps }]) => [host, ms / steps]));
}

/** Own work over the step's median, as a ratio: 0.16 is 16% over. */
export function overMedian(units: readonly Unit[]): Map<string, number> {
  const middle = median(units.map((unit) => unit.ownMs));
  return new Map(units.map((unit) => [unit.key, middle > 0 ? unit.ownMs / middle - 1 : 0]));
}

/** The host of median own work among the others; null where there is none. */
export function typicalHost(units: readonly Unit[], host: string): Unit | null {
  const others = units.filter((unit) => unit.host !== host).sort((a, b) => a.ownMs - b.ownMs);
  return others[Math.floor(others.length / 2)] ?? null;
}

export interface LateHost {
  readonly host: string;
  readonly latenessMs: number | null;
  readonly latenessRatio: number | null;
  readonly persistenceRatio: number | null;
  /** Steps in which it was compared: a host may lack some. */
  readonly stepCount: number | null;
  readonly cause: string | null;
  readonly evidence: readonly string[];
}

/** The hosts that the analyzer names, the worst first. It decides; the page only shows. */
export function lateHosts(result: ToolResult): LateHost[] {
  const verdict = fieldsOf(result.result["straggler"]);
  const named: unknown[] = Array.isArray(verdict["stragglers"]) ? verdict["stragglers"] : [verdict];
  return named.flatMap((row): LateHost[] => {
    const fields = fieldsOf(row);
    const host = textOf(fields["host"]);
    if (!host) return [];
    const lateness = numberOf(fields["lateness_us"]);
    const evidence = fields["evidence"];
    return [
      {
        host,
        latenessMs: lateness === null ? null : lateness / 1e3,
        latenessRatio: numberOf(fields["lateness_ratio"]),
        persistenceRatio: numberOf(fields["persistence_ratio"]),
        stepCount: numberOf(fields["step_count"]),
        cause: textOf(fields["cause"]),
        evidence: Array.isArray(evidence) ? evidence.filter((line): line is string => typeof line === "string") : [],
      },
    ];
  });
}

export interface SlowCore {
  readonly host: string;
  readonly core: string;
  readonly latenessMs: number;
  readonly latenessRatio: number | null;
}

/** Cores that the others of their host wait for, the worst first; a host alone may have one. */
export function slowCores(result: ToolResult): SlowCore[] {
  const named: unknown = fieldsOf(result.result["straggler"])["slow_cores"];
  return (Array.isArray(named) ? named : []).flatMap((row: unknown): SlowCore[] => {
    const fields = fieldsOf(row);
    const [host, core, lateness] = [textOf(fields["host"]), textOf(fields["core"]), numberOf(fields["lateness_us"])];
    return host && core && lateness !== null ? [{ host, core, latenessMs: lateness / 1e3, latenessRatio: numberOf(fields["lateness_ratio"]) }] : [];
  });
}

/** In how many of the steps that it recorded the host is late: "6 of 6". */
export function lateSteps(late: LateHost, stepCount: number): string | null {
  const own = late.stepCount ?? stepCount;
  return late.persistenceRatio === null ? null : ofTotal(Math.round(late.persistenceRatio * own), own);
}

/** What a step loses to its slowest host where none stands out, and which is most often that. */
export function slowestOfStep(result: ToolResult): { readonly latenessMs: number; readonly latenessRatio: number } | null {
  const verdict = fieldsOf(result.result["straggler"]);
  const lateness = numberOf(verdict["slowest_lateness_us"]);
  const ratio = numberOf(verdict["slowest_lateness_ratio"]);
  return lateness === null || ratio === null ? null : { latenessMs: lateness / 1e3, latenessRatio: ratio };
}

/** Below this share of all step time in collectives nobody is said to wait. */
const WAITING_RATIO = 0.01;

/** Whether the hosts wait for each other; a late host of those that do not is slow by itself. */
export function doWait(result: ToolResult): boolean {
  return (numberOf(fieldsOf(result.result["straggler"])["waiting_ratio"]) ?? 0) >= WAITING_RATIO;
}

/** How late one host comes to the collectives in which it meets the others. */
export interface HostArrival {
  readonly host: string;
  readonly latenessMs: number;
  /** Of the clocks; null where no clock was needed. */
  readonly errorMs: number | null;
  readonly last: number;
  readonly collectives: number;
}

/** Hosts that met others, the latest first. */
export function hostArrivals(result: ToolResult): HostArrival[] {
  return records(result.result["hosts"])
    .flatMap((row): HostArrival[] => {
      const lateness = numberOf(row["arrival_lateness_us"]);
      const host = textOf(row["host"]);
      if (lateness === null || host === null) return [];
      const error = numberOf(row["arrival_error_us"]);
      return [{ host, latenessMs: lateness / 1e3, errorMs: error === null ? null : error / 1e3, last: numberOf(row["last_arrivals"]) ?? 0, collectives: numberOf(row["collective_count"]) ?? 0 }];
    })
    .sort((a, b) => b.latenessMs - a.latenessMs);
}

/** Where a core sits: its host's row, its place in the row. */
export interface DeviceGrid {
  /** By the first chip of each, as the pod counts them. */
  readonly hosts: readonly string[];
  /** Chips of a host and their cores, `0` or `0.1`. */
  readonly columns: readonly string[];
  /** Core id by host and column. */
  readonly cores: ReadonlyMap<string, string>;
  /** Whether the tracer told each chip's number in the pod. */
  readonly isOrdered: boolean;
}

export const gridKey = (host: string, column: string): string => `${host}\n${column}`;

/** The cores of the hosts, chip by chip; null where the tracer tells no chips. SparseCores are left out. */
export function deviceGrid(result: ToolResult): DeviceGrid | null {
  const rows = records(result.result["cores"]).filter((row) => row["is_sparse_core"] !== true && textOf(row["host"]) !== null);
  if (rows.length < 2) return null;
  const perChip = rows.some((row) => (numberOf(row["core_on_chip"]) ?? 0) > 0);
  const first = new Map<string, number>();
  const cores = new Map<string, string>();
  const columns = new Map<string, number>();
  const isOrdered = rows.every((row) => numberOf(row["global_chip_id"]) !== null);
  for (const row of rows) {
    const host = textOf(row["host"]) ?? "";
    const [chip, core] = [numberOf(row["local_chip_id"]) ?? 0, numberOf(row["core_on_chip"]) ?? 0];
    const column = perChip ? `${chip}.${core}` : String(chip);
    columns.set(column, chip * 1000 + core);
    cores.set(gridKey(host, column), String(row["core_id"]));
    first.set(host, Math.min(first.get(host) ?? Infinity, numberOf(row["global_chip_id"]) ?? numberOf(row["core_id"]) ?? 0));
  }
  // Two cores in one place: the chips' numbers say nothing.
  if (cores.size < rows.length) return null;
  const ordered = (map: ReadonlyMap<string, number>): string[] => [...map].sort(([a, x], [b, y]) => x - y || (a < b ? -1 : 1)).map(([key]) => key);
  return { hosts: ordered(first), columns: ordered(columns), cores, isOrdered };
}

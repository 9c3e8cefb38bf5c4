/** Reads the pod viewer's result: every step of every core, folded to hosts, and who is late. */
import type { ToolResult } from "../api/types";
import type { Category } from "./categories";
import { median, readSteps, type StepRow } from "./steps";
import { fieldsOf, numberOf, textOf } from "./tables";

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

/** Own work over the step's median, as a ratio: 0.16 is 16% over. */
export function overMedian(units: readonly Unit[]): Map<string, number> {
  const middle = median(units.map((unit) => unit.ownMs));
  return new Map(units.map((unit) => [unit.key, middle > 0 ? unit.ownMs / middle - 1 : 0]));
}

export interface LateHost {
  readonly host: string;
  readonly latenessMs: number | null;
  readonly latenessRatio: number | null;
  readonly persistenceRatio: number | null;
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
        cause: textOf(fields["cause"]),
        evidence: Array.isArray(evidence) ? evidence.filter((line): line is string => typeof line === "string") : [],
      },
    ];
  });
}

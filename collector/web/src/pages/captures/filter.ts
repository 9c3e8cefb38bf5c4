/** Which captures the list shows, by the query of the address. */
import type { Capture } from "../../api/types";
import { isLive } from "../../api/types";
import { parseTime } from "../../format/time";

export interface Filter {
  readonly q: string;
  readonly run: string;
  readonly status: string;
  readonly trigger: string;
  /** Hours back from now; empty for all. */
  readonly hours: string;
}

export const runOf = (capture: Capture): string => capture.run || "no run";

export const startedAt = (capture: Capture): Date =>
  parseTime(capture.started_at) ?? parseTime(capture.created_at) ?? new Date(0);

export function statusClass(capture: Capture): string {
  if (isLive(capture)) return "live";
  if (capture.state === "complete") return capture.analysis?.state === "failed" ? "failed" : "ready";
  return capture.state;
}

export function matches(capture: Capture, filter: Filter, now: Date): boolean {
  if (filter.run && runOf(capture) !== filter.run) return false;
  if (filter.status && statusClass(capture) !== filter.status) return false;
  if (filter.trigger && capture.trigger !== filter.trigger) return false;
  if (filter.hours && now.getTime() - startedAt(capture).getTime() > Number(filter.hours) * 3_600_000) return false;
  if (!filter.q) return true;
  const labels = Object.entries(capture.labels ?? {}).map(([key, value]) => `${key}=${value}`);
  const words = [capture.run, capture.id, capture.session, capture.trigger, capture.summary?.slow_host, ...labels];
  return words.some((word) => word?.toLowerCase().includes(filter.q.toLowerCase()));
}

/** Relative change of the step time to the previous capture of the same run, by capture id. `captures`: newest first. */
export function stepTimeChanges(captures: readonly Capture[]): Map<string, number | "first"> {
  const changes = new Map<string, number | "first">();
  const last = new Map<string, number>();
  for (const capture of [...captures].reverse()) {
    const time = capture.summary?.step_time_ms;
    if (time == null || !(time > 0)) continue;
    const before = last.get(runOf(capture));
    changes.set(capture.id, before === undefined ? "first" : time / before - 1);
    last.set(runOf(capture), time);
  }
  return changes;
}

/** A host's way through a capture as spans on one clock. */
import type { Capture, Host } from "../../api/types";
import { hasEnded } from "../../api/types";
import { parseTime } from "../../format/time";

export type Phase = "wait" | "trace" | "transfer" | "store" | "failed";

export interface PhaseSpan {
  readonly phase: Phase;
  readonly fromMs: number;
  readonly toMs: number;
}

const ORDER: readonly (readonly [string, Phase])[] = [
  ["pending", "wait"],
  ["connecting", "wait"],
  ["armed", "wait"],
  ["capturing", "trace"],
  ["receiving", "transfer"],
  ["storing", "store"],
];
/** So short a span could not be seen; a failed attempt must be. */
const FAILED_MARK_MS = 40;

/** Milliseconds from the capture's start, spans in order; a running host's last span reaches `now`. */
export function phaseSpans(capture: Capture, host: Host, now: Date): PhaseSpan[] {
  const zero = (parseTime(capture.started_at) ?? parseTime(capture.created_at) ?? now).getTime();
  const started = parseTime(host.started_at);
  if (!started) return [];
  const timings = host.timings_ms ?? {};
  const spans: PhaseSpan[] = [];
  let at = Math.max(0, started.getTime() - zero);
  for (const [state, phase] of ORDER) {
    const length = timings[state];
    if (length === undefined || !(length > 0)) continue;
    const last = spans.at(-1);
    if (last?.phase === phase) spans[spans.length - 1] = { ...last, toMs: at + length };
    else spans.push({ phase, fromMs: at, toMs: at + length });
    at += length;
  }
  const end = parseTime(host.finished_at);
  if (!hasEnded(host)) {
    const phase = ORDER.find(([state]) => state === host.state)?.[1] ?? "wait";
    const reach = now.getTime() - zero;
    if (reach > at) spans.push({ phase, fromMs: at, toMs: reach });
  } else if (host.state !== "done") {
    const stop = end ? Math.max(end.getTime() - zero, at) : at;
    spans.push({ phase: "failed", fromMs: Math.max(stop - FAILED_MARK_MS, at), toMs: Math.max(stop, at + FAILED_MARK_MS) });
  }
  return spans;
}

/** How far the axis goes: the latest span, and while it runs what is expected. */
export function horizonMs(capture: Capture, spans: readonly (readonly PhaseSpan[])[]): number {
  const latest = Math.max(0, ...spans.flat().map((span) => span.toMs));
  return Math.max(latest * 1.05, capture.steps ? 0 : capture.duration_ms, 100);
}

/** How well the hosts of a capture started together, and what is left of wrong clocks. */
import type { Capture } from "../api/types";
import { count, duration, text } from "../format/numbers";

const time = (ns: number): string => text(duration(ns / 1e6, 3));

export interface Together {
  readonly words: string;
  readonly detail: string;
  /** Hosts ended before the others began. */
  readonly isApart: boolean;
}

/** Null for a host alone, and for profiles that do not tell when they were recorded. */
export function startedTogether({ alignment, summary }: Pick<Capture, "alignment" | "summary">): Together | null {
  if (!alignment || alignment.hosts < 2) return null;
  const check = summary?.clock_check ?? null;
  const lines = [
    alignment.error_ns === null
      ? "Starts by the hosts' own clocks, of which not all were measured."
      : `Starts by measured clocks, right to within ${time(alignment.error_ns)}.`,
  ];
  if (alignment.common_ns !== null) lines.push(`All recorded together for ${time(alignment.common_ns)}.`);
  if (alignment.outside.length > 0) lines.push(`Not together with the others: ${alignment.outside.slice(0, 5).join(", ")}.`);
  if (check) {
    const what = check.basis === "collective_ends" ? "collectives" : "steps";
    const who = check.ahead === check.behind ? "" : `: ${check.ahead} is ahead, ${check.behind} behind`;
    lines.push(`At the ends of ${count(check.ends)} ${what} that ${count(check.hosts)} hosts share their clocks are ${time(check.residual_ns)} apart (± ${time(check.error_ns)})${who}.`);
    if (check.skew_ns !== null) lines.push(`By these ends the starts lie ${time(check.skew_ns)} apart.`);
  }
  return {
    words: `started within ${time(check?.skew_ns ?? alignment.skew_ns)}`,
    detail: lines.join("\n"),
    isApart: alignment.outside.length > 0,
  };
}

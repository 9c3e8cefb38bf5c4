/** The last 24 hours as a strip: one cell a capture, failed and partial marked. */
import { useRef } from "preact/hooks";

import type { Capture } from "../../api/types";
import { useWidth } from "../../components/use-width";
import { plural } from "../../format/numbers";
import { startedAt, statusClass } from "./filter";

const BINS = 96;
const DAY_MS = 86_400_000;
const MAX_CELLS = 8;

export function Density({ captures, now }: { captures: readonly Capture[]; now: Date }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const bins: string[][] = Array.from({ length: BINS }, () => []);
  let shown = 0;
  for (const capture of captures) {
    const age = now.getTime() - startedAt(capture).getTime();
    if (age < 0 || age >= DAY_MS) continue;
    bins[BINS - 1 - Math.floor((age / DAY_MS) * BINS)]?.push(statusClass(capture));
    shown += 1;
  }
  const pitch = width / BINS;
  const hours = Array.from({ length: 8 }, (_, i) => new Date(now.getTime() - DAY_MS + (i * DAY_MS) / 8));
  return (
    <div class="density" ref={box}>
      <svg role="img" aria-label={`${plural(shown, "capture")} in the last 24 hours`} width={width} height="34">
        {bins.flatMap((cells, bin) =>
          cells.slice(0, MAX_CELLS).map((state, i) => (
            <rect key={`${bin}-${i}`} class={`cell-${state}`} x={bin * pitch} y={29 - i * 4} width={Math.max(pitch - 2, 1)} height="3" />
          )),
        )}
        <line class="axis" x1="0" x2={width} y1="33.5" y2="33.5" />
      </svg>
      <div class="density-hours">
        {hours.map((hour) => (
          <span key={hour.getTime()}>{hour.toISOString().slice(11, 16)}</span>
        ))}
        <span>now</span>
      </div>
    </div>
  );
}

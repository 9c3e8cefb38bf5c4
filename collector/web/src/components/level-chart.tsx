/** Bytes over positions or time: an area in steps on a base that never goes, with lines and marks. */
import { useRef, useState } from "preact/hooks";

import { fixed, memoryUnit, text, memory, tickDecimals, ticks, ticksWithin } from "../format/numbers";
import { useWidth } from "./use-width";

/** Something that ran above the levels. */
export interface LevelRun {
  readonly begin: number;
  readonly end: number;
  readonly label: string;
}

export interface LevelPoint {
  readonly x: number;
  readonly most: number;
  /** Where less was in use in the same bucket. */
  readonly least?: number;
  /** A second line: the same without padding. */
  readonly second?: number;
  /** From 0 to 1, in a strip below; null where nothing says it. */
  readonly strip?: number | null;
  readonly title: string;
}

const LEFT = 52;
const RIGHT = 12;
const TOP = 18;
const STRIP = 14;

export function LevelChart(props: {
  points: readonly LevelPoint[];
  base: number;
  sentence: string;
  caption: string;
  formatX: (x: number) => string;
  /** For round values, where fewer digits do. */
  formatTick?: (x: number) => string;
  limit?: { readonly value: number; readonly label: string } | null;
  peak?: { readonly x: number; readonly value: number } | null;
  /** Drawn as a strip along the top. */
  runs?: readonly LevelRun[];
  span?: { readonly begin: number; readonly end: number; readonly label: string } | null;
  height?: number;
  /** What the strip is of. */
  strip?: string;
  mark?: number | null;
  onZoom?: (begin: number, end: number) => void;
  onPick?: (x: number) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [hover, setHover] = useState<number | null>(null);
  const [drag, setDrag] = useState<number | null>(null);
  const { points, base, limit } = props;
  const height = props.height ?? 240;
  const strips = props.strip ? points.filter((point) => typeof point.strip === "number") : [];
  const bottom = height - 38 - (strips.length > 0 ? STRIP + 6 : 0);
  const plot = Math.max(width - LEFT - RIGHT, 1);
  const first = points[0]?.x ?? 0;
  const last = points.at(-1)?.x ?? 1;
  const range = Math.max(last - first, 1e-12);
  const highest = Math.max(...points.map((point) => point.most), 1);
  // A capacity far above would flatten the curve: it is said, not drawn.
  const drawsLimit = limit && limit.value <= highest * 3;
  const unit = memoryUnit(Math.max(highest, drawsLimit ? limit.value : 0));
  const marks = ticks(Math.max(highest, drawsLimit ? limit.value : 0) / unit.factor);
  const top = (marks.at(-1) ?? 1) * unit.factor;
  const decimals = tickDecimals((marks[1] ?? 1) - (marks[0] ?? 0));
  const x = (value: number): number => LEFT + ((value - first) / range) * plot;
  const y = (value: number): number => bottom - (value / top) * (bottom - TOP);
  const steps = (of: (point: LevelPoint) => number): string =>
    points.map((point, i) => `${i === 0 ? "M" : "H"}${x(point.x).toFixed(1)}${i === 0 ? " " : "V"}${y(of(point)).toFixed(1)}`).join("");
  const hasLeast = points.some((point) => point.least !== undefined && point.least !== point.most);
  const hasSecond = points.some((point) => point.second !== undefined && point.second !== point.most);
  const valueAt = (event: PointerEvent | MouseEvent): number => {
    const left = (box.current as HTMLDivElement).getBoundingClientRect().left;
    return first + (Math.min(Math.max(event.clientX - left - LEFT, 0), plot) / plot) * range;
  };
  const nearest = hover === null ? undefined : points.reduce((a, b) => (Math.abs(b.x - hover) < Math.abs(a.x - hover) ? b : a), points[0] as LevelPoint);
  const xs = ticksWithin(first, last);
  return (
    <div class="chart" ref={box}>
      <svg
        role="img"
        aria-label={props.sentence}
        width={width}
        height={height}
        onPointerMove={(event) => setHover(valueAt(event))}
        onPointerLeave={() => { setHover(null); setDrag(null); }}
        onPointerDown={(event) => props.onZoom && setDrag(valueAt(event))}
        onPointerUp={(event) => {
          const to = valueAt(event);
          if (drag !== null && Math.abs(to - drag) > range / 50) props.onZoom?.(Math.min(drag, to), Math.max(drag, to));
          else props.onPick?.(to);
          setDrag(null);
        }}
      >
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={LEFT} x2={LEFT + plot} y1={y(mark * unit.factor)} y2={y(mark * unit.factor)} />
            <text class="tick" x={LEFT - 6} y={y(mark * unit.factor) + 4} text-anchor="end">{fixed(mark, decimals)}</text>
          </g>
        ))}
        {points.length > 0 && (
          <>
            <path class="level-area" d={`${steps((point) => point.most)}V${y(base).toFixed(1)}H${x(first).toFixed(1)}z`} />
            {base > 0 && <rect class="level-base" x={LEFT} width={plot} y={y(base)} height={Math.max(bottom - y(base), 0)} />}
            <path class="level-line" d={steps((point) => point.most)} />
            {hasLeast && <path class="level-second" d={steps((point) => point.least ?? point.most)} />}
            {hasSecond && <path class="level-second" d={steps((point) => point.second ?? point.most)} />}
          </>
        )}
        {(props.runs ?? []).filter((run) => run.end >= first && run.begin <= last).map((run, i) => (
          <rect key={i} class="level-run" x={x(Math.max(run.begin, first))} width={Math.max(x(Math.min(run.end, last)) - x(Math.max(run.begin, first)) - 1, 1)} y={1} height={5}>
            <title>{`${run.label}, ${props.formatX(run.end - run.begin)}`}</title>
          </rect>
        ))}
        {drawsLimit && (
          <g>
            <line class="level-limit" x1={LEFT} x2={LEFT + plot} y1={y(limit.value)} y2={y(limit.value)} />
            <text class="level-limit-text" x={LEFT + 6} y={y(limit.value) - 4}>{limit.label}</text>
          </g>
        )}
        {props.span && (
          <g class="level-span">
            <rect x={x(props.span.begin)} width={Math.max(x(props.span.end) - x(props.span.begin), 2)} y={TOP} height={bottom - TOP} />
            <text x={Math.min(x(props.span.end) + 5, LEFT + plot - 160)} y={TOP + 10}>{props.span.label}</text>
          </g>
        )}
        {strips.length > 0 && (
          <g class="level-strip">
            <title>{props.strip}</title>
            <rect class="ground" x={LEFT} width={plot} y={bottom + 4} height={STRIP} />
            {strips.map((point, i) => {
              const to = strips[i + 1]?.x ?? last;
              return <rect key={point.x} x={x(point.x)} width={Math.max(x(to) - x(point.x), 1)} y={bottom + 4} height={STRIP} fill-opacity={point.strip ?? 0} />;
            })}
            <text class="tick" x={LEFT - 6} y={bottom + 15} text-anchor="end">frag.</text>
          </g>
        )}
        {props.mark !== null && props.mark !== undefined && props.mark >= first && props.mark <= last && <line class="level-mark" x1={x(props.mark)} x2={x(props.mark)} y1={TOP} y2={bottom} />}
        {props.peak && <circle class="level-peak" cx={x(props.peak.x)} cy={y(props.peak.value)} r="3.5" />}
        {drag !== null && hover !== null && <rect class="level-brush" x={x(Math.min(drag, hover))} width={Math.abs(x(hover) - x(drag))} y={TOP} height={bottom - TOP} />}
        {nearest && <line class="reference" x1={x(nearest.x)} x2={x(nearest.x)} y1={TOP} y2={bottom} />}
        {xs.map((mark) => (
          <text class="tick" key={mark} x={x(mark)} y={height - 24} text-anchor="middle">{(props.formatTick ?? props.formatX)(mark)}</text>
        ))}
        <text class="tick" x={LEFT + plot / 2} y={height - 6} text-anchor="middle">{props.caption}</text>
        <text class="tick" x={4} y={11}>{unit.unit}</text>
      </svg>
      {nearest && (
        <p class="level-readout" role="status">
          <b>{text(memory(nearest.most, 4))}</b> {nearest.least !== undefined && nearest.least !== nearest.most && <>down to {text(memory(nearest.least, 4))} </>}
          {props.formatX(nearest.x)} · {nearest.title}
          {props.strip && typeof nearest.strip === "number" && <> · {props.strip} {fixed(nearest.strip * 100, 1)} %</>}
        </p>
      )}
    </div>
  );
}

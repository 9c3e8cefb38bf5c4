/** A share per step as a line, the range over its cores as a band, thresholds as lines. */
import { useRef, useState } from "preact/hooks";

import { percent, tickDecimals, fixed, ticks } from "../format/numbers";
import { Hint } from "./stacked-columns";
import { useWidth } from "./use-width";

export interface RangePoint {
  readonly key: string;
  readonly value: number;
  readonly least: number;
  readonly most: number;
  readonly title: string;
}

const LEFT = 46;
const RIGHT = 8;
const TOP = 12;
const HEIGHT = 150;

export function RangeChart(props: {
  points: readonly RangePoint[];
  thresholds: readonly { readonly value: number; readonly label: string }[];
  sentence: string;
  caption: string;
  selected: string | null;
  onSelect: (key: string) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [hover, setHover] = useState<number | null>(null);
  const { points } = props;
  const bottom = HEIGHT - 38;
  const plot = Math.max(width - LEFT - RIGHT, 1);
  const pitch = plot / Math.max(points.length, 1);
  // The highest of what was measured, and the next threshold above it: how far it is from there.
  const measured = Math.max(...points.map((point) => point.most), 0);
  const above = props.thresholds.map((one) => one.value).sort((a, b) => a - b).find((value) => value > measured);
  const marks = ticks(Math.min(Math.max(measured, above ?? 0, 0.01), 1) * 100, 4);
  const top = marks.at(-1) ?? 100;
  const x = (i: number): number => LEFT + (i + 0.5) * pitch;
  const y = (ratio: number): number => bottom - ((ratio * 100) / top) * (bottom - TOP);
  const every = Math.max(1, Math.ceil((7 * Math.max(...points.map((point) => point.key.length), 1) + 10) / pitch));
  const at = points.findIndex((point) => point.key === props.selected);
  const shown = hover === null ? undefined : points[hover];
  const indexAt = (event: PointerEvent | MouseEvent): number | null => {
    const left = (box.current as HTMLDivElement).getBoundingClientRect().left;
    const i = Math.floor((event.clientX - left - LEFT) / pitch);
    return i >= 0 && i < points.length ? i : null;
  };
  const band = points.length > 1
    ? `M${points.map((point, i) => `${x(i).toFixed(1)} ${y(point.most).toFixed(1)}`).join("L")}L${[...points].reverse().map((point, i) => `${x(points.length - 1 - i).toFixed(1)} ${y(point.least).toFixed(1)}`).join("L")}z`
    : "";
  return (
    <div class="chart range-chart" ref={box}>
      <svg
        role="img"
        aria-label={props.sentence}
        width={width}
        height={HEIGHT}
        onPointerMove={(event) => setHover(indexAt(event))}
        onPointerLeave={() => setHover(null)}
        onClick={(event) => {
          const i = indexAt(event);
          if (i !== null) props.onSelect((points[i] as RangePoint).key);
        }}
      >
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark / 100)} y2={y(mark / 100)} />
            <text x={LEFT - 6} y={y(mark / 100) + 4} text-anchor="end">{fixed(mark, tickDecimals(marks[1] ?? 1))}</text>
          </g>
        ))}
        <path class="range-band" d={band} />
        {props.thresholds.filter((one) => one.value * 100 <= top).map((one) => (
          <g key={one.label}>
            <line class="reference" x1={LEFT} x2={width - RIGHT} y1={y(one.value)} y2={y(one.value)} />
            <text class="range-label" x={width - RIGHT} y={y(one.value) - 4} text-anchor="end">{one.label}</text>
          </g>
        ))}
        <path class="range-line" d={points.map((point, i) => `${i === 0 ? "M" : "L"}${x(i).toFixed(1)} ${y(point.value).toFixed(1)}`).join("")} />
        {pitch > 7 && points.map((point, i) => (
          <g key={point.key}>
            <line class="range-whisker" x1={x(i)} x2={x(i)} y1={y(point.most)} y2={y(point.least)} />
            <circle class="range-dot" cx={x(i)} cy={y(point.value)} r="3" />
          </g>
        ))}
        {at >= 0 && <rect class="outline" x={x(at) - Math.max(pitch / 2, 4)} y={TOP - 6} width={Math.max(pitch, 8)} height={bottom - TOP + 6} rx="2" />}
        {points.map((point, i) => (i % every === 0 || i === at) && (i === at || at < 0 || Math.abs(i - at) >= every) && (
          <text key={point.key} class={i === at ? "strong" : ""} x={x(i)} y={bottom + 16} text-anchor="middle">{point.key}</text>
        ))}
        <text x={LEFT + plot / 2} y={HEIGHT - 4} text-anchor="middle">{props.caption}</text>
      </svg>
      {shown && hover !== null && (
        <Hint left={Math.min(Math.max(x(hover) + 10, 0), Math.max(width - 230, 0))}>
          <b>{shown.key}</b> {percent(shown.value)} waiting for input
          {shown.most > shown.least && <><br />{percent(shown.least)} to {percent(shown.most)}, most on {shown.title}</>}
        </Hint>
      )}
    </div>
  );
}

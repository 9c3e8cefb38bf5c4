/** The log-log chart: ceilings with their ridge points, operations by area of time, hollow when memory bounds them. */
import { useRef, useState } from "preact/hooks";

import { useWidth } from "../../components/use-width";
import { flops, percent, significant, text } from "../../format/numbers";
import { boundWords, ceilingLine, drawable, planeOf, type Point, type Region, type Roofline } from "../../tools/roofline";

const HEIGHT = 380;
const LEFT = 86;
const RIGHT = 16;
const TOP = 16;
const BOTTOM = 40;

/** A shorter drag is a click. */
const LEAST_DRAG = 5;

type Spot = readonly [number, number];

export function RooflineChart(props: {
  model: Roofline;
  points: readonly Point[];
  chosen: string | null;
  region: Region | null;
  onChoose: (point: Point) => void;
  onRegion: (region: Region | null) => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [drag, setDrag] = useState<readonly [Spot, Spot] | null>(null);
  const width = useWidth(box);
  const { model } = props;
  const shown = drawable(props.points);
  const plane = planeOf(model, shown);
  const x = (value: number): number => LEFT + ((Math.log10(value) - plane.x[0]) / (plane.x[1] - plane.x[0])) * (width - LEFT - RIGHT);
  const y = (value: number): number => HEIGHT - BOTTOM - ((Math.log10(value) - plane.y[0]) / (plane.y[1] - plane.y[0])) * (HEIGHT - BOTTOM - TOP);
  const intensityAt = (px: number): number => 10 ** (plane.x[0] + ((px - LEFT) / (width - LEFT - RIGHT)) * (plane.x[1] - plane.x[0]));
  const rateAt = (py: number): number => 10 ** (plane.y[0] + ((HEIGHT - BOTTOM - py) / (HEIGHT - BOTTOM - TOP)) * (plane.y[1] - plane.y[0]));
  const spot = (event: PointerEvent): Spot => {
    const frame = (event.currentTarget as Element).getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  const finish = (): void => {
    if (!drag) return;
    const [[ax, ay], [bx, by]] = drag;
    setDrag(null);
    if (Math.abs(ax - bx) < LEAST_DRAG && Math.abs(ay - by) < LEAST_DRAG) return;
    const [left, right] = [Math.min(ax, bx), Math.max(ax, bx)];
    const [top, bottom] = [Math.min(ay, by), Math.max(ay, by)];
    props.onRegion({ x: [intensityAt(left), intensityAt(right)], y: [rateAt(bottom), rateAt(top)] });
  };
  const drawn = drag ?? (props.region ? ([[x(props.region.x[0]), y(props.region.y[1])], [x(props.region.x[1]), y(props.region.y[0])]] as const) : null);
  const decades = ([from, to]: readonly [number, number]): number[] => Array.from({ length: to - from + 1 }, (_, i) => 10 ** (from + i));
  const most = Math.max(...shown.map((point) => point.selfRatio), 1e-12);
  const radius = (point: Point): number => (point.kind === "op" ? 3 + 13 * Math.sqrt(point.selfRatio / most) : point.kind === "program" ? 6 : 3.5);
  const best = shown.filter((point) => point.kind === "op").sort((a, b) => b.selfRatio - a.selfRatio)[0];
  const sentence = `Roofline of ${shown.length} points against ${model.ceilings.length} ceilings${best ? `; the longest, ${best.name}, reaches ${percent(best.efficiency)} of its roof` : ""}.`;
  return (
    <div class="chart roofline-chart" ref={box}>
      <svg
        width={width}
        height={HEIGHT}
        role="img"
        aria-label={sentence}
        onPointerDown={(event) => {
          if (event.button !== 0) return;
          // Drags end where the pointer is let go, outside of the chart too; a click stays the point's.
          if (!(event.target as Element).classList.contains("point")) event.currentTarget.setPointerCapture(event.pointerId);
          setDrag([spot(event), spot(event)]);
        }}
        onPointerMove={(event) => drag && setDrag([drag[0], spot(event)])}
        onPointerUp={finish}
        onPointerCancel={() => setDrag(null)}
      >
        <clipPath id="roofline-plane"><rect x={LEFT} y={TOP - 8} width={Math.max(width - LEFT - RIGHT, 0)} height={HEIGHT - TOP - BOTTOM + 8} /></clipPath>
        {decades(plane.x).map((value, at, all) => (
          <g key={value}>
            <line class="grid" x1={x(value)} x2={x(value)} y1={TOP} y2={HEIGHT - BOTTOM} />
            <text x={x(value)} y={HEIGHT - BOTTOM + 16} text-anchor={at === all.length - 1 ? "end" : "middle"}>{tick(value)}</text>
          </g>
        ))}
        {decades(plane.y).map((value) => (
          <g key={value}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(value)} y2={y(value)} />
            <text x={LEFT - 8} y={y(value) + 4} text-anchor="end">{text(flops(value, 1))}</text>
          </g>
        ))}
        <text x={(LEFT + width - RIGHT) / 2} y={HEIGHT - 6} text-anchor="middle">FLOP per byte</text>
        <g clip-path="url(#roofline-plane)">
          {model.ceilings.map((ceiling, at) => {
            const line = ceilingLine(ceiling, model.peakFlops, plane);
            return (
              <g key={ceiling.name}>
                <polyline class={`ceiling ${at > 0 ? "ceiling-chip" : ""}`} points={line.map(([px, py]) => `${x(px)},${y(py)}`).join(" ")} />
                {ceiling.ridge > 0 && model.peakFlops && (
                  <g>
                    <circle class="ceiling" cx={x(ceiling.ridge)} cy={y(model.peakFlops)} r={2.5} />
                    <text class="label" x={x(ceiling.ridge)} y={y(model.peakFlops) - 7 - (at % 3) * 13} text-anchor={at % 2 ? "end" : "start"}>{ceiling.label} ridge {significant(ceiling.ridge, 3)}</text>
                  </g>
                )}
              </g>
            );
          })}
          {[...shown].sort((a, b) => radius(b) - radius(a)).map((point) => (
            <circle
              key={point.key}
              class={`point ${point.kind === "op" ? "" : "program"} ${point.boundBy === "compute" ? "" : "memory"} ${props.chosen === point.key ? "here" : ""}`}
              cx={x(point.intensity)}
              cy={y(point.flopsPerSecond)}
              r={radius(point)}
              onClick={() => props.onChoose(point)}
            >
              <title>{`${point.name}\n${text(flops(point.flopsPerSecond))}, ${significant(point.intensity, 3)} FLOP per byte\nbound by ${boundWords(point.boundBy)}, ${percent(point.efficiency)} of its roof`}</title>
            </circle>
          ))}
          {drawn && (
            <rect
              class="selection"
              x={Math.min(drawn[0][0], drawn[1][0])}
              y={Math.min(drawn[0][1], drawn[1][1])}
              width={Math.abs(drawn[0][0] - drawn[1][0])}
              height={Math.abs(drawn[0][1] - drawn[1][1])}
            />
          )}
        </g>
      </svg>
    </div>
  );
}

function tick(value: number): string {
  const exponent = Math.round(Math.log10(value));
  return exponent >= -3 && exponent <= 4 ? String(Number(value.toPrecision(1))) : `1e${exponent}`;
}

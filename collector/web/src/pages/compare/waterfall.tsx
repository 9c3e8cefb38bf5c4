/** From the base's step to the other's, category by category. */
import { useRef } from "preact/hooks";

import { useWidth } from "../../components/use-width";
import { columnDecimals, fixed, signed, tickDecimals, ticks } from "../../format/numbers";
import type { CategoryChange, StepChange } from "../../tools/compare";

const LEFT = 46;
const RIGHT = 8;
const TOP = 26;
const HEIGHT = 250;
const BOTTOM = HEIGHT - 26;

export function Waterfall({ step, changes }: { step: StepChange; changes: readonly CategoryChange[] }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  // Longest core by step: its parts need not add up to the mean to the last digit.
  const explained = changes.reduce((sum, one) => sum + one.change, 0);
  const rest = step.change - explained;
  const parts = [
    ...changes.filter((one) => Math.abs(one.change) > Math.abs(step.base) * 1e-6).map((one) => ({ id: one.category.id, label: one.category.short, change: one.change, sure: one.judgement === "significant" })),
    ...(Math.abs(rest) > Math.abs(step.base) * 1e-4 ? [{ id: "other", label: "Rest", change: rest, sure: false }] : []),
  ];
  let level = step.base;
  const levels = parts.map((part) => {
    const from = level;
    level += part.change;
    return { ...part, from, to: level };
  });
  const every = [step.base, step.other, ...levels.map((one) => one.to)];
  const [lowest, highest] = [Math.min(...every), Math.max(...every)];
  const reach = Math.max(highest - lowest, highest * 1e-3, 1e-9);
  const gaps = ticks(reach * 1.75, 4);
  const gap = (gaps[1] ?? 1) - (gaps[0] ?? 0);
  const floor = Math.max(0, Math.floor((lowest - reach * 0.6) / gap) * gap);
  const top = highest + reach * 0.15;
  const y = (value: number): number => BOTTOM - ((value - floor) / (top - floor)) * (BOTTOM - TOP);
  const slot = Math.max((width - LEFT - RIGHT) / (levels.length + 2), 1);
  const x = (at: number): number => LEFT + slot * at + slot * 0.14;
  const wide = slot * 0.72;
  const marks = Array.from({ length: 12 }, (_, i) => floor + i * gap).filter((mark) => mark <= top);
  const decimals = columnDecimals([highest]);
  return (
    <div class="chart waterfall chart-pad" ref={box}>
      <svg role="img" width={width} height={HEIGHT} aria-label={`The mean step goes from ${fixed(step.base, decimals)} to ${fixed(step.other, decimals)} ms: ${levels.map((one) => `${one.label} ${signed(one.change, decimals)}`).join(", ")}`}>
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={LEFT} x2={width - RIGHT} y1={y(mark)} y2={y(mark)} />
            <text x={LEFT - 6} y={y(mark) + 4} text-anchor="end">{fixed(mark, tickDecimals(gap))}</text>
          </g>
        ))}
        <Column x={x(0)} wide={wide} top={y(step.base)} name="a" label="A" value={fixed(step.base, decimals)} />
        {levels.map((one, at) => (
          <g key={one.label}>
            <line class="bridge" x1={x(at) + wide} x2={x(at + 1)} y1={y(one.from)} y2={y(one.from)} />
            <rect
              x={x(at + 1)}
              width={wide}
              y={Math.min(y(one.from), y(one.to))}
              height={Math.max(Math.abs(y(one.from) - y(one.to)), 1)}
              fill={one.change < 0 ? "var(--ok)" : `var(--cat-${one.id})`}
              rx="1"
            />
            <text class={one.sure && one.change > 0 ? "strong worse" : "strong"} text-anchor="middle" x={x(at + 1) + wide / 2} y={Math.min(y(one.from), y(one.to)) - 6}>
              {signed(one.change, decimals)}
            </text>
            <text text-anchor="middle" x={x(at + 1) + wide / 2} y={BOTTOM + 16}>{one.label}</text>
          </g>
        ))}
        <line class="bridge" x1={x(levels.length) + wide} x2={x(levels.length + 1)} y1={y(step.other)} y2={y(step.other)} />
        <Column x={x(levels.length + 1)} wide={wide} top={y(step.other)} name="b" label="B" value={fixed(step.other, decimals)} />
      </svg>
      <p class="compare-note">{floor > 0 ? `Axis starts at ${fixed(floor, tickDecimals(gap))} ms. ` : ""}Green is faster in B; other colours are the category that grew.</p>
    </div>
  );
}

function Column(props: { x: number; wide: number; top: number; name: string; label: string; value: string }) {
  return (
    <g>
      <rect class={props.name} x={props.x} width={props.wide} y={props.top} height={Math.max(BOTTOM - props.top, 1)} rx="1" />
      <text class="strong" text-anchor="middle" x={props.x + props.wide / 2} y={props.top - 6}>{props.value}</text>
      <text text-anchor="middle" x={props.x + props.wide / 2} y={BOTTOM + 16}>{props.label}</text>
    </g>
  );
}

/** All steps of both captures: where they lie, and how far they spread. */
import { useRef } from "preact/hooks";

import { useWidth } from "../../components/use-width";
import { columnDecimals, fixed, tickDecimals, ticks } from "../../format/numbers";
import { density, type StepChange } from "../../tools/compare";
import { deviation } from "../../tools/steps";

const PAD = 20;
const HEIGHT = 250;
const BAND = 92;
const SAMPLES = 120;

/** What the words beside a curve take. */
const WORDS = 150;

export function StepTimes({ base, other, step, what }: { base: readonly number[]; other: readonly number[]; step: StepChange; what: string }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const all = [...base, ...other];
  const reach = Math.max(Math.max(...all) - Math.min(...all), Math.max(...all) * 1e-3);
  const [from, to] = [Math.min(...all) - reach * 0.15, Math.max(...all) + reach * 0.15];
  const x = (value: number): number => PAD + ((value - from) / (to - from)) * Math.max(width - 2 * PAD, 1);
  const at = Array.from({ length: SAMPLES + 1 }, (_, i) => from + ((to - from) * i) / SAMPLES);
  const spacing = ticks(to - from, 6);
  const gap = (spacing[1] ?? 1) - (spacing[0] ?? 0);
  const marks = Array.from({ length: spacing.length + 1 }, (_, i) => (Math.ceil(from / gap) + i) * gap).filter((mark) => mark <= to);
  const decimals = columnDecimals(all);
  const bands = [
    { name: "a", label: "A, base", values: base, bottom: 20 + BAND - 16 },
    { name: "b", label: "B", values: other, bottom: 20 + 2 * BAND + 2 },
  ];
  const words = step.low === null || step.high === null ? "Too few steps to judge the difference." : `Difference ${fixed(step.change, decimals)} ms, 95% interval ${fixed(step.low, decimals)} to ${fixed(step.high, decimals)}.`;
  return (
    <div class="chart step-times chart-pad" ref={box}>
      <svg role="img" width={width} height={HEIGHT} aria-label={`${what} of A and B. ${words}`}>
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={x(mark)} x2={x(mark)} y1={10} y2={HEIGHT - 24} />
            <text x={x(mark)} y={HEIGHT - 8} text-anchor="middle">{fixed(mark, tickDecimals(gap))}</text>
          </g>
        ))}
        {bands.map((band) => {
          const curve = density(band.values, at).map((value, i) => `${x(at[i] as number).toFixed(1)} ${(band.bottom - value * 62).toFixed(1)}`);
          const sorted = [...band.values].sort((a, b) => a - b);
          const median = sorted[Math.floor(sorted.length / 2)] ?? 0;
          const rightHalf = x(sorted.at(-1) ?? median) + WORDS > width && x(sorted[0] ?? median) > WORDS;
          // Where neither side has room, above the curve's flat end.
          const isWide = !rightHalf && x(sorted.at(-1) ?? median) + WORDS > width;
          const beside = isWide ? PAD : rightHalf ? x(sorted[0] ?? median) - 34 : x(sorted.at(-1) ?? median) + 34;
          return (
            <g key={band.name}>
              <path class={`curve ${band.name}`} d={`M${curve.join("L")}L${x(to)} ${band.bottom}L${x(from)} ${band.bottom}Z`} />
              <line class={`median ${band.name}`} x1={x(median)} x2={x(median)} y1={band.bottom - 66} y2={band.bottom} />
              {band.values.map((value, i) => (
                <circle key={i} class={`dot ${band.name}`} r="1.8" cx={x(value)} cy={band.bottom + 6 + (i % 3) * 4} />
              ))}
              <text class="strong" x={beside} y={band.bottom - 50} text-anchor={rightHalf ? "end" : "start"}>{band.label}</text>
              <text x={beside} y={band.bottom - 36} text-anchor={rightHalf ? "end" : "start"}>
                median {fixed(median, decimals)}, σ {fixed(deviation(band.values), decimals)}
              </text>
            </g>
          );
        })}
      </svg>
      <p class="compare-note">{what}, ms. Dots are steps. {words}</p>
    </div>
  );
}

/** Own work of every host in both captures: a late host is a long line. */
import { useRef } from "preact/hooks";

import { useWidth } from "../../components/use-width";
import { columnDecimals, fixed, shortNames, signed, tickDecimals, ticks } from "../../format/numbers";
import type { HostChange } from "../../tools/compare";

const LEFT = 96;
const RIGHT = 16;
const ROW = 20;
const MOST = 64;

export function HostChanges({ hosts }: { hosts: readonly HostChange[] }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const change = (one: HostChange): number => Math.abs((one.other ?? 0) - (one.base ?? 0));
  const most = new Set([...hosts].sort((a, b) => change(b) - change(a)).slice(0, MOST));
  const shown = hosts.filter((one) => most.has(one));
  const names = shortNames(shown.map((one) => one.host));
  const values = shown.flatMap((one) => [one.base, one.other].filter((value): value is number => value !== null));
  const reach = Math.max(Math.max(...values) - Math.min(...values), Math.max(...values) * 1e-2, 1e-9);
  const [from, to] = [Math.max(0, Math.min(...values) - reach * 0.1), Math.max(...values) + reach * 0.1];
  const x = (value: number): number => LEFT + ((value - from) / (to - from)) * Math.max(width - LEFT - RIGHT, 1);
  const gaps = ticks(to - from, 4);
  const gap = (gaps[1] ?? 1) - (gaps[0] ?? 0);
  const marks = Array.from({ length: gaps.length + 1 }, (_, i) => (Math.ceil(from / gap) + i) * gap).filter((mark) => mark <= to);
  const height = shown.length * ROW + 30;
  const decimals = columnDecimals(values);
  return (
    <div class="chart host-changes chart-pad" ref={box}>
      <svg role="img" width={width} height={height} aria-label={`Own work of ${shown.length} hosts in both captures`}>
        {marks.map((mark) => (
          <g key={mark}>
            <line class="grid" x1={x(mark)} x2={x(mark)} y1={4} y2={height - 24} />
            <text x={x(mark)} y={height - 8} text-anchor="middle">{fixed(mark, tickDecimals(gap))}</text>
          </g>
        ))}
        {shown.map((one, at) => {
          const y = at * ROW + 14;
          const late = one.judgement === "significant" && (one.other ?? 0) > (one.base ?? 0);
          return (
            <g key={one.host}>
              <title>{`${one.host}: ${one.base === null ? "none" : fixed(one.base, decimals)} → ${one.other === null ? "none" : fixed(one.other, decimals)} ms`}</title>
              <text class={late ? "strong" : ""} x={LEFT - 10} y={y + 4} text-anchor="end">{names.get(one.host) ?? one.host}</text>
              {one.base !== null && one.other !== null && <line class={late ? "span late" : "span"} x1={x(one.base)} x2={x(one.other)} y1={y} y2={y} />}
              {one.base !== null && <circle class="a" r="3.5" cx={x(one.base)} cy={y} />}
              {one.other !== null && <circle class={late ? "late" : "b"} r="4" cx={x(one.other)} cy={y} />}
              {late && one.base !== null && one.other !== null && <text class="strong" x={(x(one.base) + x(one.other)) / 2} y={y - 5} text-anchor="middle">{signed(one.other - one.base, decimals)}</text>}
            </g>
          );
        })}
      </svg>
      {hosts.length > shown.length && <p class="compare-note">The {shown.length} hosts that changed most, of {hosts.length}.</p>}
    </div>
  );
}

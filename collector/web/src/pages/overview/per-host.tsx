/** One dot a host: own work per step, from the pod viewer's result. */
import { useRef } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { Panel } from "../../components/basics";
import { useWidth } from "../../components/use-width";
import { change, columnDecimals, fixed, plural, tickDecimals, ticks } from "../../format/numbers";
import { lateHosts, ownMeans, podSteps } from "../../tools/pod";
import { median } from "../../tools/steps";
import { toolPath } from "../../tools/pages";
import { go, href } from "../../url";
import type { ToolViewProps } from "../tool/page";

const HEIGHT = 96;
const AXIS = 66;
const RADIUS = 3.5;

interface Dot {
  readonly host: string;
  readonly ms: number;
  readonly x: number;
  readonly y: number;
}

/** Dots that would cover each other move up, as in a beeswarm. */
export function swarm(values: readonly { host: string; ms: number }[], x: (ms: number) => number): Dot[] {
  const placed: Dot[] = [];
  for (const value of [...values].sort((a, b) => a.ms - b.ms)) {
    const at = x(value.ms);
    let y = AXIS - RADIUS - 2;
    while (y > 26 && placed.some((dot) => Math.hypot(dot.x - at, dot.y - y) < 2 * RADIUS)) y -= 2 * RADIUS - 1;
    placed.push({ ...value, x: at, y });
  }
  return placed;
}

export function PerHost({ capture, tools, result }: ToolViewProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box) || 316;
  const wanted = result.scope.hosts.length > 1 && tools.some((tool) => tool.name === "pod_viewer");
  const pod = useResource(wanted ? `${capture.id} pod ${capture.analysis?.hosts_done ?? ""}` : null, (abort) => api.tool(capture.id, "pod_viewer", null, abort));
  if (!wanted || !pod.value.value) return null;
  const values = [...ownMeans(podSteps(pod.value.value))].map(([host, ms]) => ({ host, ms }));
  if (values.length < 2) return null;
  const middle = median(values.map((value) => value.ms));
  const [low, high] = [Math.min(...values.map((v) => v.ms)), Math.max(...values.map((v) => v.ms))];
  const room = Math.max((high - low) * 0.12, middle * 0.01, 1e-6);
  const [from, to] = [low - room, high + room];
  const x = (ms: number): number => 10 + ((ms - from) / (to - from)) * (width - 20);
  const late = new Set(lateHosts(pod.value.value).map((host) => host.host));
  const decimals = columnDecimals([high]);
  const step = ticks(to - from, 3)[1] ?? 1;
  const marks = Array.from({ length: 8 }, (_, i) => (Math.ceil(from / step) + i) * step).filter((mark) => mark <= to);
  const worst = values.reduce((a, b) => (b.ms > a.ms ? b : a));
  return (
    <Panel title="Own work per host" subtitle="ms a step, one dot a host">
      <div class="dots" ref={box}>
        <svg width={width} height={HEIGHT} role="img" aria-label={`Own work of ${plural(values.length, "host")}: median ${fixed(middle, decimals)} ms, longest ${fixed(worst.ms, decimals)} ms on ${worst.host}.`}>
          <line class="axis" x1="0" x2={width} y1={AXIS} y2={AXIS} />
          {marks.map((mark) => (
            <text key={mark} x={x(mark)} y={AXIS + 16} text-anchor="middle">{fixed(mark, tickDecimals(step))}</text>
          ))}
          <line class="reference" x1={x(middle)} x2={x(middle)} y1="16" y2={AXIS} />
          <text x={Math.min(x(middle) + 4, width - 90)} y="12">median {fixed(middle, decimals)}</text>
          {swarm(values, x).map((dot) => (
            <circle
              key={dot.host}
              class={late.has(dot.host) ? "dot-late" : "dot-host"}
              cx={dot.x}
              cy={dot.y}
              r={RADIUS}
              onClick={() => go(href(toolPath(capture.id, "pod_viewer"), { host: dot.host }))}
            >
              <title>{dot.host}, {fixed(dot.ms, decimals)} ms</title>
            </circle>
          ))}
          {late.has(worst.host) && (
            <text class="strong" x={Math.min(x(worst.ms), width - 2)} y={AXIS - 18} text-anchor="end">
              {worst.host}, {change(worst.ms / middle - 1)}
            </text>
          )}
        </svg>
      </div>
    </Panel>
  );
}

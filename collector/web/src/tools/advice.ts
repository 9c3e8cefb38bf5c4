/** How a result's advice and losses read. */
import type { Advice, Evidence, ToolResult } from "../api/types";
import { count, duration, fixed, memory, percent, plural, text } from "../format/numbers";

/** The page that says more about what a rule found. */
const TOOL_OF: Readonly<Record<string, string | null>> = {
  // The header tells of both.
  hosts_missing: null,
  events_dropped: null,
  straggler: "pod_viewer",
  slow_core: "pod_viewer",
  barrier_cores: "pod_viewer",
  sparse_core_bound: "pod_viewer",
  input_bound: "input_pipeline_analyzer",
  input_enqueue: "input_pipeline_analyzer",
  input_processing: "input_pipeline_analyzer",
  input_unobserved: "input_pipeline_analyzer",
  communication_bound: "pod_viewer",
  idle_between_steps: "pod_viewer",
  kernel_launch_bound: "kernel_stats",
  short_kernels: "kernel_stats",
  tensor_core_idle: "kernel_stats",
  padding: "op_profile",
  memory_near_limit: "memory_profile",
  memory_fragmentation: "memory_profile",
  memory_bound_ops: "roofline_model",
  memory_bandwidth_bound: "roofline_model",
  compute_bound: "roofline_model",
  low_flops: "roofline_model",
};

/** Null for what no page says more about. */
export const toolOf = ({ code }: Pick<Advice, "code">): string | null => (code in TOOL_OF ? (TOOL_OF[code] ?? null) : "framework_op_stats");

function figure(value: number, unit: string): string {
  if (unit === "ratio") return percent(value);
  if (unit === "us" || unit === "ms") return text(duration(unit === "us" ? value / 1000 : value, 3));
  if (unit === "bytes") return text(memory(value));
  return `${Number.isInteger(value) ? count(value) : fixed(value, 2)}${unit ? ` ${unit}` : ""}`;
}

/** "Input: 41.2% (threshold 20.0%)". */
export function evidenceWords({ name, value, unit, threshold }: Evidence): string {
  const words = name.replace(/_(?:ratio|us|ms|bytes)$/, "").replaceAll("_", " ");
  return `${words} ${figure(value, unit)}${threshold === null ? "" : ` (threshold ${figure(threshold, unit)})`}`;
}

const MAX_LOSSES = 3;

/** What the capture lost, in one sentence; null when it lost nothing. */
export function lossSentence(result: ToolResult): string | null {
  if (result.losses.length === 0) return null;
  const said = result.losses.slice(0, MAX_LOSSES).map(({ host, plane, kind, count: lost }) => {
    const what = kind.replaceAll("_", " ");
    if (kind === "host_missing") return `${host} is missing`;
    return `${host}${plane ? ` ${plane}` : ""}: ${lost > 0 ? `${count(lost)} ` : ""}${what}`;
  });
  const more = result.losses.length - said.length;
  return `${said.join("; ")}${more > 0 ? `; and ${plural(more, "more loss", "more losses")}` : ""}.`;
}

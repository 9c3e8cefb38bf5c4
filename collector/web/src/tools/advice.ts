/** How a result's advice and losses read. */
import type { Advice, Evidence, ToolResult } from "../api/types";
import { count, fixed, percent, plural } from "../format/numbers";

/** The page that says more about what a rule found. */
const TOOL_OF: Readonly<Record<string, string>> = {
  straggler: "pod_viewer",
  input_bound: "input_pipeline_analyzer",
  input_enqueue: "input_pipeline_analyzer",
  input_processing: "input_pipeline_analyzer",
  input_unobserved: "input_pipeline_analyzer",
  communication_bound: "pod_viewer",
  idle_between_steps: "pod_viewer",
  kernel_launch_bound: "kernel_stats",
  short_kernels: "kernel_stats",
  memory_near_limit: "memory_profile",
  memory_fragmentation: "memory_profile",
  memory_bound_ops: "roofline_model",
  memory_bandwidth_bound: "roofline_model",
  compute_bound: "roofline_model",
  low_flops: "roofline_model",
};

export const toolOf = (advice: Advice): string => TOOL_OF[advice.code] ?? "framework_op_stats";

const figure = (value: number, unit: string): string =>
  unit === "ratio" ? percent(value) : `${Number.isInteger(value) ? count(value) : fixed(value, 2)}${unit ? ` ${unit}` : ""}`;

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

/** Where each tool stands in the rail, and the key that opens it. */
import type { Capture } from "../api/types";
import type { IconName } from "../components/icons";
import { href } from "../url";

/** Fewer steps have no spread to judge by. */
const MIN_STEPS = 3;

export type ToolGroup = "Where time goes" | "Ops" | "Memory" | "Serving";

export interface ToolPlace {
  readonly title: string;
  readonly group: ToolGroup;
  readonly icon: IconName;
  readonly key?: string;
}

export const GROUPS: readonly ToolGroup[] = ["Where time goes", "Ops", "Memory", "Serving"];

/** In the order of the rail. */
export const PLACES: ReadonlyMap<string, ToolPlace> = new Map<string, ToolPlace>([
  ["overview_page", { title: "Overview", group: "Where time goes", icon: "overview_page", key: "o" }],
  ["pod_viewer", { title: "Pod viewer", group: "Where time goes", icon: "pod_viewer", key: "p" }],
  ["trace_viewer", { title: "Trace viewer", group: "Where time goes", icon: "captures", key: "t" }],
  ["input_pipeline_analyzer", { title: "Input pipeline", group: "Where time goes", icon: "input", key: "i" }],
  ["tf_data_bottleneck_analysis", { title: "tf.data", group: "Where time goes", icon: "input" }],
  ["op_profile", { title: "Op profile", group: "Ops", icon: "tree", key: "x" }],
  ["hlo_stats", { title: "HLO stats", group: "Ops", icon: "table", key: "h" }],
  ["framework_op_stats", { title: "Framework ops", group: "Ops", icon: "table" }],
  ["kernel_stats", { title: "Kernel stats", group: "Ops", icon: "table" }],
  ["roofline_model", { title: "Roofline", group: "Ops", icon: "chart", key: "r" }],
  ["graph_viewer", { title: "Graph viewer", group: "Ops", icon: "graph" }],
  ["megascale_stats", { title: "Slice transfers", group: "Where time goes", icon: "captures" }],
  ["utilization_viewer", { title: "Unit utilization", group: "Ops", icon: "chart" }],
  ["perf_counters", { title: "Counters", group: "Ops", icon: "table" }],
  ["memory_profile", { title: "Memory profile", group: "Memory", icon: "memory", key: "m" }],
  ["memory_viewer", { title: "Memory viewer", group: "Memory", icon: "memory", key: "v" }],
  ["smart_suggestion", { title: "Suggestions", group: "Where time goes", icon: "bolt" }],
  ["inference_profile", { title: "Inference", group: "Serving", icon: "bolt" }],
]);

export function placeOf(name: string, title?: string): ToolPlace {
  return PLACES.get(name) ?? { title: title ?? name, group: "Ops", icon: "table" };
}

/** The page of a tool; host and step go along, what belongs to one page only stays behind. */
export function toolPath(capture: string, tool: string): string {
  return `/captures/${encodeURIComponent(capture)}/${tool}`;
}

/** Two of a capture's hosts compared: the slow one with another, or the last with the first. */
export function comparisonOfHosts(capture: Capture, hosts: readonly string[]): string {
  const slow = capture.summary?.slow_host;
  const other = slow && hosts.includes(slow) ? slow : hosts.at(-1);
  const base = hosts.find((host) => host !== other);
  return href("/compare", { base: capture.id, capture: capture.id, base_host: base, host: other });
}

/**
 * The later steps of a capture compared with the earlier: from the chosen one on, or the second half.
 * Null where a side would have too few steps to judge by.
 */
export function comparisonOfSteps(capture: string, steps: readonly string[], chosen: string | null): string | null {
  const numbers = steps.map(Number).filter(Number.isInteger).sort((a, b) => a - b);
  const at = chosen === null ? Math.floor(numbers.length / 2) : numbers.indexOf(Number(chosen));
  if (at < MIN_STEPS || numbers.length - at < MIN_STEPS) return null;
  const range = (from: number, to: number): string => `${numbers[from]}-${numbers[to]}`;
  return href("/compare", { base: capture, capture, base_steps: range(0, at - 1), steps: range(at, numbers.length - 1) });
}

/** An instruction in its program's graph; null where no program is known. */
export function instructionPath(capture: string, program: string | null, instruction: string | null, host: string | null): string | null {
  if (!program || program === "0" || !instruction) return null;
  return href(toolPath(capture, "graph_viewer"), { host, program, node: instruction });
}

/** Reads the input pipeline's result into what its page shows. */
import type { ToolResult } from "../api/types";
import { readSteps, type StepTable } from "./steps";
import { type Fields, fieldsOf, numberOf, records, textOf } from "./tables";

export type InputClass = "host" | "both" | "device" | "unknown";

export interface Summary {
  readonly average: number;
  readonly deviation: number;
  readonly least: number;
  readonly most: number;
}

/** What the host's input time goes into, from the source to the device. */
export interface InputStage {
  readonly id: "demanded" | "advanced" | "preprocessing" | "unclassified" | "enqueue";
  readonly label: string;
  readonly us: number;
  /** Of the five together. */
  readonly ratio: number;
  /** What makes it shorter. */
  readonly action: string;
}

export interface StepInput {
  readonly step: string;
  readonly ratio: number;
  readonly least: number;
  readonly most: number;
  /** The core that waits longest, or its host where hosts have no cores of their own. */
  readonly longest: string;
}

export interface CoreInput {
  readonly key: string;
  readonly host: string;
  readonly core: string;
  readonly steps: number;
  readonly stepMs: number;
  readonly deviationMs: number;
  readonly leastMs: number;
  readonly mostMs: number;
  readonly ratio: number;
  readonly leastRatio: number;
  readonly mostRatio: number;
}

/** A core's name without its host's, beside which it stands. */
export function coreOfHost({ core, host }: Pick<CoreInput, "core" | "host">): string {
  return core.startsWith(`${host}:`) ? core.slice(host.length + 1) : core;
}

export interface InputOp {
  readonly name: string;
  readonly count: number;
  readonly ms: number;
  readonly ratio: number;
  readonly selfMs: number;
  readonly selfRatio: number;
  readonly stage: string;
}

export interface InputPipeline {
  readonly classification: InputClass;
  readonly statement: string;
  readonly outputStatement: string;
  readonly nextStep: string;
  readonly evidence: readonly string[];
  readonly warnings: readonly string[];
  readonly stepMs: Summary | null;
  readonly ratio: Summary | null;
  /** Null where no operation of an input pipeline was recorded. */
  readonly stages: readonly InputStage[] | null;
  readonly steps: StepTable;
  readonly series: readonly StepInput[];
  readonly cores: readonly CoreInput[];
  readonly coreCount: number;
  readonly hasCores: boolean;
  readonly ops: readonly InputOp[];
}

const STAGES: readonly (readonly [string, InputStage["id"], string, string])[] = [
  ["demanded_file_read", "demanded", "Reading files on demand", "Read ahead: prefetch and interleave the files, with a larger reader buffer."],
  ["advanced_file_read", "advanced", "Reading files ahead", "Tune how far ahead it reads: the prefetch's buffer, how many files are interleaved, the reader's buffer."],
  ["preprocessing", "preprocessing", "Preprocessing", "Run more calls of the map stage in parallel, or prepare the data offline."],
  ["unclassified", "unclassified", "Not told apart", "Use tf.data or annotate the stages, so that this time has a name."],
  ["enqueue", "enqueue", "Handing to the device", "Combine small chunks into fewer, larger ones."],
];

/** From here on a stage is worth advice of its own. */
export const STAGE_WORTH_ADVICE = 0.1;

export const HIGHLY_BOUND = 0.2;
export const MODERATELY_BOUND = 0.05;

function summary(value: unknown): Summary | null {
  const own = fieldsOf(value);
  const [average, deviation, least, most] = ["average", "standard_deviation", "minimum", "maximum"].map((name) => numberOf(own[name]));
  return average == null || deviation == null || least == null || most == null ? null : { average, deviation, least, most };
}

const sentences = (value: unknown): string[] => (Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : []);

/** The five stages in the order of the pipeline; null where nothing was recorded. */
export function inputStages(value: unknown): InputStage[] | null {
  if (value === null || value === undefined) return null;
  const own: Fields = fieldsOf(value);
  const times = STAGES.map(([name]) => Math.max(numberOf(own[name]) ?? 0, 0));
  const total = times.reduce((sum, us) => sum + us, 0);
  return STAGES.map(([, id, label, action], i) => ({ id, label, us: times[i] ?? 0, ratio: total > 0 ? (times[i] ?? 0) / total : 0, action }));
}

export function inputPipeline(result: ToolResult): InputPipeline {
  const own = fieldsOf(result.result);
  const classification = textOf(own["classification"]);
  const cores = records(own["cores"]).map((row): CoreInput => {
    const figure = (name: string): number => numberOf(row[name]) ?? 0;
    return {
      key: `${String(row["host"])} ${String(row["core_id"])}`,
      host: textOf(row["host"]) ?? "",
      core: textOf(row["core"]) ?? "",
      steps: figure("step_count"),
      stepMs: figure("step_time_ms"),
      deviationMs: figure("step_time_deviation_ms"),
      leastMs: figure("least_step_time_ms"),
      mostMs: figure("most_step_time_ms"),
      ratio: figure("input_ratio"),
      leastRatio: figure("least_input_ratio"),
      mostRatio: figure("most_input_ratio"),
    };
  });
  return {
    classification: classification === "host" || classification === "both" || classification === "device" ? classification : "unknown",
    statement: textOf(own["statement"]) ?? "",
    outputStatement: textOf(own["output_statement"]) ?? "",
    nextStep: textOf(own["next_step"]) ?? "",
    evidence: sentences(own["evidence"]),
    warnings: sentences(own["warnings"]),
    stepMs: summary(own["step_time_ms"]),
    ratio: summary(own["input_ratio"]),
    stages: inputStages(own["host_input_time_us"]),
    steps: readSteps(own["series"]),
    series: records(own["series"]).map((row): StepInput => ({
      step: String(row["step"]),
      ratio: numberOf(row["input_ratio"]) ?? 0,
      least: numberOf(row["least_input_ratio"]) ?? 0,
      most: numberOf(row["most_input_ratio"]) ?? 0,
      longest: textOf(row["input_core"]) ?? textOf(row["input_host"]) ?? "",
    })),
    cores,
    coreCount: numberOf(own["core_count"]) ?? cores.length,
    hasCores: cores.some((core) => core.core !== ""),
    ops: records(own["host_ops"]).map((row): InputOp => ({
      name: textOf(row["operation"]) ?? "",
      count: numberOf(row["count"]) ?? 0,
      ms: numberOf(row["time_ms"]) ?? 0,
      ratio: numberOf(row["time_ratio"]) ?? 0,
      selfMs: numberOf(row["self_time_ms"]) ?? 0,
      selfRatio: numberOf(row["self_time_ratio"]) ?? 0,
      stage: textOf(row["category"]) ?? "",
    })),
  };
}

/** The longest stage with a name; null without any time. */
export function longestStage(stages: readonly InputStage[] | null): InputStage | null {
  const longest = [...(stages ?? [])].sort((a, b) => b.us - a.us)[0];
  return longest && longest.us > 0 ? longest : null;
}

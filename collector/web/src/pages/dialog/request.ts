/** The request as the form holds it, what is wrong with it, and the same as a shell command. */
import type { CaptureRequest } from "../../api/types";

export interface RequestForm {
  readonly targets: string;
  readonly run: string;
  /** `key=value` pairs, separated by blanks or commas. */
  readonly labels: string;
  readonly durationMs: string;
  readonly delayMs: string;
  readonly attempts: string;
  readonly quorumKind: "any" | "all" | "count";
  readonly quorumCount: string;
  readonly hostTracer: string;
  readonly deviceTracer: string;
  readonly pythonTracer: string;
}

export const EMPTY_FORM: RequestForm = {
  targets: "",
  run: "",
  labels: "",
  durationMs: "2000",
  delayMs: "0",
  attempts: "3",
  quorumKind: "any",
  quorumCount: "",
  hostTracer: "2",
  deviceTracer: "1",
  pythonTracer: "0",
};

export interface TargetGuess {
  readonly address: string;
  /** What will not work, as far as the text alone can tell; the service has the last word. */
  readonly problem: string | null;
  /** It stands for hosts that are looked up when the capture begins. */
  readonly isLookup: boolean;
}

const MAX_EXPANSION = 4096;
// A bracket keeps its commas and blanks: `w-[0,2-5]:9999` is one item.
const ITEM = /(?:\[[^\][]*\]|[^\s,])+/g;

// As the service has it: `tpu:9999` is a machine called tpu.
const LOOKUP = /^(?:dns|k8s|jobset|tpu):(?![\d,[\]-]*$)/i;

export const splitTargets = (text: string): string[] => text.match(ITEM) ?? [];

/** The distinct addresses that a list names, its ranges opened. */
export function guessTargets(text: string): TargetGuess[] {
  const addresses = splitTargets(text).flatMap((item) =>
    LOOKUP.test(item) ? [item] : expand(withPort(item).replace(/^grpc:\/\//i, "").replace(/\/$/, "")),
  );
  return [...new Set(addresses)].map((address) => {
    const isLookup = LOOKUP.test(address);
    return { address, problem: isLookup ? null : problemOf(address), isLookup };
  });
}

/** `agent://host` has the agent's own port unless it names another. */
function withPort(item: string): string {
  const agent = /^agent:\/\/(.*?)\/?$/i.exec(item);
  if (!agent) return item;
  const host = agent[1] as string;
  return /[^\]]:\d+$|\]:\d+$/.test(host) ? host : `${host}:8466`;
}

/** `w-[0,2-5]:[9100-9101]` in every combination; an IPv6 address in brackets is none. */
function expand(item: string): string[] {
  const range = /\[([\d,\s-]+)\]/.exec(item);
  if (!range) return [item];
  const numbers: string[] = [];
  for (const part of (range[1] as string).split(",")) {
    const span = /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(part);
    if (!span) return [item];
    const [first, last] = [Number(span[1]), Number(span[2] ?? span[1])];
    if (last < first || last - first >= MAX_EXPANSION) return [item];
    const width = (span[1] as string).startsWith("0") ? (span[1] as string).length : 0;
    for (let n = first; n <= last; n++) numbers.push(String(n).padStart(width, "0"));
  }
  const [head, tail] = [item.slice(0, range.index), item.slice(range.index + range[0].length)];
  const tails = expand(tail);
  if (numbers.length * tails.length > MAX_EXPANSION) return [item];
  return numbers.flatMap((n) => tails.map((rest) => head + n + rest));
}

function problemOf(address: string): string | null {
  const parts = /^(\[[0-9a-f:.%]+\]|[^:[\]/]+):(\d+)$/i.exec(address);
  if (!parts) return /[[\]/]/.test(address) ? "not a host and port" : "the port is missing, as in host:9999";
  const port = Number(parts[2]);
  return port >= 1 && port <= 65_535 ? null : "the port must be 1 to 65535";
}

export type FormErrors = Partial<Record<keyof RequestForm, string>>;

function wholeNumber(text: string, from: number, to: number, unit: string): string | null {
  const value = Number(text);
  if (text.trim() === "" || !Number.isInteger(value)) return `A whole number of ${unit}.`;
  if (value < from || value > to) return `From ${from} to ${to} ${unit}.`;
  return null;
}

export function checkForm(form: RequestForm): FormErrors {
  const errors: FormErrors = {};
  const note = (field: keyof RequestForm, problem: string | null): void => {
    if (problem !== null) errors[field] = problem;
  };
  const targets = guessTargets(form.targets);
  const bad = targets.find((target) => target.problem !== null);
  if (targets.length === 0) note("targets", "At least one target, as in w-0:9999.");
  else if (bad) note("targets", `${bad.address}: ${bad.problem}.`);
  const parts = form.labels.split(/[\s,]+/).filter((part) => part !== "");
  const odd = parts.find((part) => !/^[^=]+=.+$/.test(part));
  note("labels", odd ? `${odd} is not key=value.` : null);
  note("durationMs", wholeNumber(form.durationMs, 1, 3_600_000, "ms"));
  note("delayMs", wholeNumber(form.delayMs, 0, 3_600_000, "ms"));
  note("attempts", wholeNumber(form.attempts, 1, 20, "attempts"));
  if (form.quorumKind === "count" && !/^\d+%?$/.test(form.quorumCount.trim())) {
    note("quorumCount", "A number of hosts, or a share such as 50%.");
  }
  return errors;
}

export function labelsOf(form: RequestForm): Record<string, string> {
  const labels: Record<string, string> = {};
  for (const part of form.labels.split(/[\s,]+/)) {
    const at = part.indexOf("=");
    if (at > 0) labels[part.slice(0, at)] = part.slice(at + 1);
  }
  if (form.run.trim()) labels["run"] = form.run.trim();
  return labels;
}

export const quorumOf = (form: RequestForm): string =>
  form.quorumKind === "count" ? form.quorumCount.trim() : form.quorumKind;

export function toRequest(form: RequestForm): CaptureRequest {
  return {
    targets: splitTargets(form.targets).join(","),
    duration_ms: Number(form.durationMs),
    attempts: Number(form.attempts),
    quorum: quorumOf(form),
    delay_ms: Number(form.delayMs),
    host_tracer_level: Number(form.hostTracer),
    device_tracer_level: Number(form.deviceTracer),
    python_tracer_level: Number(form.pythonTracer),
    labels: labelsOf(form),
  };
}

const quote = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** The command that takes the same capture through this service. */
export function shellCommand(form: RequestForm, origin: string): string {
  const targets = splitTargets(form.targets).join(",") || "HOST:PORT";
  const duration = Number(form.durationMs) % 1000 === 0 ? `${Number(form.durationMs) / 1000}s` : `${form.durationMs}ms`;
  const lines = [
    `podscope capture ${quote(targets)}`,
    `--duration ${duration} --attempts ${form.attempts} --quorum ${quote(quorumOf(form) || "any")}`,
    ...Object.entries(labelsOf(form)).map(([key, value]) => `--label ${quote(`${key}=${value}`)}`),
    `--url ${origin}`,
  ];
  return lines.join(" \\\n  ");
}

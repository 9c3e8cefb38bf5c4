/** The request as the form holds it, what is wrong with it, and the same as a shell command. */
import type { Capture, CaptureRequest } from "../../api/types";

export interface RequestForm {
  readonly targets: string;
  readonly run: string;
  /** `key=value` pairs, separated by blanks or commas. */
  readonly labels: string;
  readonly lengthKind: "time" | "steps";
  readonly durationMs: string;
  readonly steps: string;
  readonly delayMs: string;
  readonly attempts: string;
  readonly quorumKind: "any" | "all" | "count";
  readonly quorumCount: string;
  readonly hostTracer: string;
  readonly deviceTracer: string;
  readonly pythonTracer: string;
  readonly together: "no" | "yes";
  /** What one host's profile is taken for, in MB; empty: as in the run's last capture. */
  readonly hostMb: string;
  readonly requestedBy: string;
  /** What a host gets beyond delay and window, to collect and send. */
  readonly timeoutMs: string;
  readonly emptyHosts: "leave" | "longer";
  /** What a target without a port is. */
  readonly bareNames: "hosts" | "tpus";
  /** The tracers' own, `key=value`, one a line. */
  readonly options: string;
}

export const EMPTY_FORM: RequestForm = {
  targets: "",
  run: "",
  labels: "",
  lengthKind: "time",
  durationMs: "2000",
  steps: "10",
  delayMs: "0",
  attempts: "3",
  quorumKind: "any",
  quorumCount: "",
  hostTracer: "2",
  deviceTracer: "1",
  pythonTracer: "0",
  together: "no",
  hostMb: "",
  requestedBy: "",
  timeoutMs: "60000",
  emptyHosts: "leave",
  bareNames: "hosts",
  options: "",
};

export interface TargetGuess {
  readonly address: string;
  /** What will not work, as far as the text alone can tell; the service has the last word. */
  readonly problem: string | null;
  /** It stands for hosts that are looked up when the capture begins. */
  readonly isLookup: boolean;
}

/** As many as the service takes. */
const MAX_EXPANSION = 100_000;
// A bracket keeps its commas and blanks: `w-[0,2-5]:9999` is one item.
const ITEM = /(?:\[[^\][]*\]|[^\s,])+/g;

// As the service has it: `tpu:9999` is a machine called tpu.
const LOOKUP = /^(?:dns|k8s|jobset|tpu):(?![\d,[\]-]*$)/i;

export const splitTargets = (text: string): string[] => text.match(ITEM) ?? [];

/** The distinct addresses that a list names, its ranges opened. */
export function guessTargets(text: string, bareNames: RequestForm["bareNames"] = "hosts"): TargetGuess[] {
  const isLookup = (item: string): boolean => LOOKUP.test(item) || (bareNames === "tpus" && !item.includes(":"));
  const addresses = splitTargets(text).flatMap((item) => {
    if (isLookup(item)) return [item];
    const worker = bareNames === "tpus" ? ofTpuWorker(item) : item;
    return expand(withPort(worker).replace(/^grpc:\/\//i, "").replace(/\/$/, ""));
  });
  return [...new Set(addresses)].map((address) =>
    isLookup(address) ? { address, problem: null, isLookup: true } : { address, problem: problemOf(address), isLookup: false },
  );
}

/** A TPU's worker is profiled at 8466, wherever its runtime is named. */
function ofTpuWorker(item: string): string {
  const worker = /^grpc:\/\/(.*?)(?::(\d+))?\/?$/i.exec(item);
  if (!worker) return item;
  return `${worker[1]}:${worker[2] === undefined || worker[2] === "8470" ? "8466" : worker[2]}`;
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
  const targets = guessTargets(form.targets, form.bareNames);
  const bad = targets.find((target) => target.problem !== null);
  if (targets.length === 0) note("targets", "At least one target, as in w-0:9999.");
  else if (bad) note("targets", `${bad.address}: ${bad.problem}.`);
  const parts = form.labels.split(/[\s,]+/).filter((part) => part !== "");
  const odd = parts.find((part) => !/^[^=]+=.+$/.test(part));
  note("labels", odd ? `${odd} is not key=value.` : null);
  if (form.lengthKind === "time") note("durationMs", wholeNumber(form.durationMs, 1, 3_600_000, "ms"));
  else note("steps", wholeNumber(form.steps, 1, 100_000, "steps"));
  note("delayMs", wholeNumber(form.delayMs, 0, 600_000, "ms"));
  if (form.hostMb.trim() !== "") note("hostMb", wholeNumber(form.hostMb, 1, 2147, "MB"));
  note("timeoutMs", wholeNumber(form.timeoutMs, 1, 3_600_000, "ms"));
  const line = optionLines(form).find((one) => !/^[^=\s]+\s*=/.test(one));
  note("options", line ? `${line} is not key=value.` : null);
  if (form.requestedBy.length > 200) note("requestedBy", "At most 200 characters.");
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

const optionLines = (form: RequestForm): string[] => form.options.split("\n").map((line) => line.trim()).filter((line) => line !== "");

/** A value as its text looks: `true`, `12`, else a text; `"12"` is a text too. */
function optionValue(text: string): boolean | number | string {
  if (/^(true|false)$/i.test(text)) return text.toLowerCase() === "true";
  if (/^-?\d+$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  return /^"(.*)"$/.exec(text)?.[1] ?? text;
}

export function tracerOptions(form: RequestForm): Record<string, boolean | number | string> {
  return Object.fromEntries(
    optionLines(form).map((line) => {
      const at = line.indexOf("=");
      return [line.slice(0, at).trim(), optionValue(line.slice(at + 1).trim())];
    }),
  );
}

export const quorumOf = (form: RequestForm): string =>
  form.quorumKind === "count" ? form.quorumCount.trim() : form.quorumKind;

export function toRequest(form: RequestForm): CaptureRequest {
  return {
    targets: splitTargets(form.targets).join(","),
    ...(form.lengthKind === "steps" ? { steps: Number(form.steps) } : { duration_ms: Number(form.durationMs) }),
    attempts: Number(form.attempts),
    quorum: quorumOf(form),
    delay_ms: Number(form.delayMs),
    host_tracer_level: Number(form.hostTracer),
    device_tracer_level: Number(form.deviceTracer),
    python_tracer_level: Number(form.pythonTracer),
    labels: labelsOf(form),
    trigger: "manual",
    ...(form.together === "yes" ? { synchronized: true } : {}),
    ...(form.hostMb.trim() ? { expected_host_bytes: Number(form.hostMb) * 1e6 } : {}),
    ...(form.requestedBy.trim() ? { requested_by: form.requestedBy.trim() } : {}),
    ...(form.timeoutMs === EMPTY_FORM.timeoutMs ? {} : { timeout_ms: Number(form.timeoutMs) }),
    ...(form.emptyHosts === "longer" ? { retry_empty: true } : {}),
    ...(form.bareNames === "tpus" ? { is_tpu_name: true } : {}),
    ...(optionLines(form).length > 0 ? { advanced_configuration: tracerOptions(form) } : {}),
  };
}

export interface SizeEstimate {
  readonly bytes: number;
  readonly hostBytes: number;
  /** Where the size of a host is from. */
  readonly by: "request" | "last capture";
}

/** What the capture will bring; null where neither the form nor an earlier capture of the run tells. */
export function estimateSize(form: RequestForm, hosts: number, captures: readonly Capture[]): SizeEstimate | null {
  if (hosts === 0) return null;
  if (form.hostMb.trim() && Number(form.hostMb) > 0) {
    const hostBytes = Number(form.hostMb) * 1e6;
    return { bytes: hosts * hostBytes, hostBytes, by: "request" };
  }
  const run = form.run.trim() || "default";
  const last = captures.find((capture) => capture.run === run && capture.hosts_done > 0 && capture.bytes && capture.trigger !== "import");
  if (!last) return null;
  // A longer window brings more; of steps the length is not known.
  const longer = form.lengthKind === "steps" || last.steps ? 1 : Number(form.durationMs) / last.duration_ms;
  const hostBytes = ((last.bytes ?? 0) / last.hosts_done) * (longer > 0 ? longer : 1);
  return { bytes: hosts * hostBytes, hostBytes, by: "last capture" };
}

const quote = (word: string): string => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** The options of the advanced part that are not as they come. */
function optionsOf(form: RequestForm): string[] {
  const options = [
    form.hostTracer === "2" ? "" : `--host-tracer-level ${form.hostTracer}`,
    form.deviceTracer === "1" ? "" : `--device-tracer-level ${form.deviceTracer}`,
    form.pythonTracer === "0" ? "" : `--python-tracer-level ${form.pythonTracer}`,
    Number(form.delayMs) > 0 ? `--delay ${Number(form.delayMs)}ms` : "",
    form.together === "yes" ? "--synchronized" : "",
    form.hostMb.trim() ? `--expected-host-bytes ${Number(form.hostMb) * 1e6}` : "",
    form.timeoutMs === EMPTY_FORM.timeoutMs ? "" : `--timeout ${Number(form.timeoutMs)}ms`,
    form.emptyHosts === "longer" ? "--retry-empty" : "",
    form.bareNames === "tpus" ? "--is-tpu-name" : "",
    ...Object.entries(tracerOptions(form)).map(([key, value]) => `--option ${quote(`${key}=${value}`)}`),
  ].filter((option) => option !== "");
  return options.length > 0 ? [options.join(" ")] : [];
}

/** The command that takes the same capture through this service. */
export function shellCommand(form: RequestForm, origin: string): string {
  const targets = splitTargets(form.targets).join(",") || "HOST:PORT";
  const time = Number(form.durationMs) % 1000 === 0 ? `${Number(form.durationMs) / 1000}s` : `${form.durationMs}ms`;
  const lines = [
    `podscope capture ${quote(targets)}`,
    `${form.lengthKind === "steps" ? `--steps ${form.steps}` : `--duration ${time}`} --attempts ${form.attempts} --quorum ${quote(quorumOf(form) || "any")}`,
    ...optionsOf(form),
    ...Object.entries(labelsOf(form)).map(([key, value]) => `--label ${quote(`${key}=${value}`)}`),
    `--url ${origin}`,
  ];
  return lines.join(" \\\n  ");
}

/** What the service answers: docs/reference/rest-api.md. */

export type CaptureState = "pending" | "capturing" | "complete" | "partial" | "failed" | "cancelled";
export type AnalysisState = "pending" | "running" | "done" | "failed";
export type HostState =
  | "pending" | "connecting" | "armed" | "capturing" | "receiving" | "storing"
  | "done" | "empty" | "failed" | "skipped" | "cancelled";

export interface CaptureSummary {
  readonly device_type: string | null;
  readonly step_count: number | null;
  readonly step_time_ms: number | null;
  readonly duty_cycle_ratio: number | null;
  readonly flops_per_second: number | null;
  readonly breakdown: readonly { readonly category: string; readonly ratio: number }[] | null;
  readonly slow_host: string | null;
  readonly clock_check?: ClockCheck | null;
}

/** How far the hosts' clocks still are apart, by the ends of what they do together. */
export interface ClockCheck {
  readonly basis: "collective_ends" | "step_ends";
  readonly hosts: number;
  readonly ends: number;
  readonly residual_ns: number;
  readonly error_ns: number;
  /** What the pings promised; null when a clock was not measured. */
  readonly promised_ns: number | null;
  readonly ahead: string;
  readonly behind: string;
  readonly unplaced: readonly string[];
  /** Between the first start and the last by these ends. */
  readonly skew_ns: number | null;
}

/** How well the hosts started together. */
export interface Alignment {
  readonly hosts: number;
  readonly skew_ns: number;
  readonly error_ns: number | null;
  readonly common_ns: number | null;
  readonly outside: readonly string[];
}

export interface CaptureAnalysis {
  readonly state: AnalysisState;
  readonly hosts_done: number;
  readonly hosts_total: number;
  readonly error: string | null;
}

export interface Capture {
  readonly id: string;
  readonly session: string;
  readonly run: string | null;
  readonly state: CaptureState;
  readonly trigger: string;
  readonly requested_by: string | null;
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly duration_ms: number;
  /** The window was to hold so many; `duration_ms` is then the longest that it might be. */
  readonly steps: number | null;
  readonly attempts: number;
  readonly quorum: string;
  readonly labels: Readonly<Record<string, string>>;
  /** What the targets' lookups found and cannot be captured. */
  readonly left_out: readonly string[];
  readonly hosts_total: number;
  readonly hosts_done: number;
  readonly bytes: number | null;
  /** Why it failed as a whole. */
  readonly error: string | null;
  readonly analysis: CaptureAnalysis | null;
  readonly summary: CaptureSummary | null;
  readonly alignment: Alignment | null;
  readonly schedule_id: string | null;
}

export interface Host {
  readonly target: string;
  readonly host: string | null;
  readonly state: HostState;
  readonly reason: string | null;
  readonly message: string | null;
  readonly attempts: number;
  readonly bytes: number | null;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly timings_ms: Readonly<Record<string, number>> | null;
  readonly analysis: { readonly state: string; readonly error: string | null } | null;
}

export interface Tool {
  readonly name: string;
  readonly title: string;
  readonly scope: "host" | "all_hosts" | "both";
  readonly state: AnalysisState;
  /** Whether the result has something to show; null until it is there. */
  readonly status: "ok" | "empty" | null;
  readonly hosts: readonly string[];
}

export interface CaptureRequest {
  readonly targets: string;
  readonly duration_ms?: number;
  readonly steps?: number;
  readonly synchronized?: boolean;
  readonly expected_host_bytes?: number;
  readonly requested_by?: string;
  readonly trigger: "manual";
  readonly attempts: number;
  readonly quorum: string;
  readonly delay_ms: number;
  readonly host_tracer_level: number;
  readonly device_tracer_level: number;
  readonly python_tracer_level: number;
  readonly timeout_ms?: number;
  readonly retry_empty?: boolean;
  readonly is_tpu_name?: boolean;
  readonly advanced_configuration?: Readonly<Record<string, boolean | number | string>>;
  readonly labels: Readonly<Record<string, string>>;
}

/** Whom to look at before a capture of this length. */
export interface DoctorRequest {
  readonly targets: readonly string[];
  readonly is_tpu_name: boolean;
  readonly probe: boolean;
  readonly duration_ms?: number;
}

/** A capture that is taken again and again. */
export interface Schedule {
  readonly id: string;
  readonly name: string;
  readonly enabled: boolean;
  readonly every_s: number;
  readonly targets: readonly string[];
  readonly next_run_at: string;
  readonly last_run_at: string | null;
  readonly last_capture_id: string | null;
  readonly last_error: string | null;
}

export type Cell = string | number | boolean | null;

export interface Column {
  readonly id: string;
  readonly label: string;
  readonly type: "string" | "number" | "integer" | "boolean";
  readonly unit: string;
}

export interface Table {
  readonly columns: readonly Column[];
  readonly rows: readonly (readonly Cell[])[];
}

export interface Reason {
  readonly code: string;
  readonly message: string;
  readonly advice: string;
}

export interface Loss {
  readonly host: string;
  readonly plane: string;
  readonly kind: string;
  readonly count: number;
}

export interface Evidence {
  readonly name: string;
  readonly value: number;
  readonly unit: string;
  readonly threshold: number | null;
}

/** What to do about a capture, and the figures that say so. */
export interface Advice {
  readonly code: string;
  readonly severity: "high" | "medium" | "low";
  readonly title: string;
  readonly message: string;
  readonly action: string;
  readonly link: string;
  readonly evidence: readonly Evidence[];
}

export interface DoctorTarget {
  readonly target: string;
  readonly verdict: "ready" | "busy" | "not_ready";
  readonly kind: string;
  readonly round_trip_ms: number | null;
  readonly checks: readonly { readonly name: string; readonly state: string; readonly detail: string; readonly fix: string }[];
}

export interface DoctorReport {
  readonly targets: readonly DoctorTarget[];
  readonly left_out: readonly string[];
  readonly storage: { readonly root: string; readonly state: string; readonly detail: string } | null;
}

export interface ToolResult {
  readonly tool: string;
  readonly version: number;
  readonly scope: {
    readonly capture: string | null;
    readonly session: string | null;
    readonly hosts: readonly string[];
    readonly missing_hosts: readonly { readonly host: string; readonly reason: string }[];
  };
  readonly status: "ok" | "empty";
  readonly reasons: readonly Reason[];
  readonly losses: readonly Loss[];
  readonly advice: readonly Advice[];
  readonly result: Readonly<Record<string, unknown>>;
}

export interface ComparedSide {
  readonly scope: ToolResult["scope"];
  readonly device_type: string;
  readonly hosts: number;
  readonly device_core_count: number;
  readonly step_count: number;
  readonly steps: readonly [number, number] | null;
}

/** One side of a comparison: a capture, all of its hosts or one, all of its steps or some ("3-7"). */
export interface AskedSide {
  readonly capture: string;
  readonly host: string | null;
  readonly steps: string | null;
}

export interface AskedPair {
  readonly base: AskedSide;
  readonly other: AskedSide;
}

/** What changed from the base to the other: docs/reference/comparisons.md. */
export interface Comparison {
  readonly tool: string;
  readonly version: number;
  readonly status: "ok" | "not_comparable";
  readonly reasons: readonly Reason[];
  readonly notes: readonly Reason[];
  readonly base: ComparedSide;
  readonly other: ComparedSide;
  readonly basis: "step" | "capture";
  readonly summary: {
    readonly step_time?: Readonly<Record<string, unknown>> | null;
    readonly tables?: Readonly<Record<string, { readonly matched: number; readonly appeared: number; readonly vanished: number; readonly base_total: number | null; readonly other_total: number | null }>>;
  };
  readonly tables: Readonly<Record<string, Table>>;
}

/** Its hosts are still being captured. */
export const isRunning = (capture: Capture): boolean => capture.state === "pending" || capture.state === "capturing";

export const isLive = (capture: Capture): boolean =>
  isRunning(capture) ||
  ((capture.state === "complete" || capture.state === "partial") &&
    (capture.analysis?.state === "pending" || capture.analysis?.state === "running"));

const ENDED: ReadonlySet<string> = new Set(["done", "empty", "failed", "skipped", "cancelled"]);
export const hasEnded = (host: Host): boolean => ENDED.has(host.state);

/** Without those that a lookup found and that cannot be captured: no total counts them. */
export const countedHosts = (hosts: readonly Host[]): number => hosts.filter((host) => host.state !== "skipped").length;

/** A host's name as people know it: its own once it has answered, the address until then. */
export const hostName = (host: Host): string => host.host || host.target;

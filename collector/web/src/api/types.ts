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
  readonly created_at: string;
  readonly started_at: string | null;
  readonly finished_at: string | null;
  readonly duration_ms: number;
  readonly attempts: number;
  readonly quorum: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly hosts_total: number;
  readonly hosts_done: number;
  readonly bytes: number | null;
  /** Why it failed as a whole. */
  readonly error: string | null;
  readonly analysis: CaptureAnalysis | null;
  readonly summary: CaptureSummary | null;
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
  readonly duration_ms: number;
  readonly attempts: number;
  readonly quorum: string;
  readonly delay_ms: number;
  readonly host_tracer_level: number;
  readonly device_tracer_level: number;
  readonly python_tracer_level: number;
  readonly labels: Readonly<Record<string, string>>;
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
  readonly result: Readonly<Record<string, unknown>>;
}

export const isLive = (capture: Capture): boolean =>
  capture.state === "pending" ||
  capture.state === "capturing" ||
  ((capture.state === "complete" || capture.state === "partial") &&
    (capture.analysis?.state === "pending" || capture.analysis?.state === "running"));

const ENDED: ReadonlySet<string> = new Set(["done", "empty", "failed", "skipped", "cancelled"]);
export const hasEnded = (host: Host): boolean => ENDED.has(host.state);

/** A host's name as people know it: its own once it has answered, the address until then. */
export const hostName = (host: Host): string => host.host || host.target;

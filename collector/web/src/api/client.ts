/** Calls of the service. Every failure is a `ServiceError` whose message says what to do. */
import type { AskedPair, Capture, CaptureRequest, Comparison, DoctorReport, DoctorRequest, Host, Schedule, Tool, ToolResult } from "./types";

const BASE = "/api/v1";

export class ServiceError extends Error {
  constructor(
    message: string,
    readonly status: number,
    readonly code: string | null = null,
    readonly requestId: string | null = null,
  ) {
    super(message);
    this.name = "ServiceError";
  }
}

interface Problem {
  readonly title?: unknown;
  readonly detail?: unknown;
  readonly code?: unknown;
}

async function call<T>(route: string, init: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(BASE + route, { ...init, headers: { accept: "application/json", ...init.headers } });
  } catch (cause) {
    if (cause instanceof DOMException && cause.name === "AbortError") throw cause;
    throw new ServiceError("The service does not answer. Is podscope running?", 0);
  }
  if (!response.ok) throw await problemOf(response);
  if (response.status === 204) return undefined as T;
  try {
    return (await response.json()) as T;
  } catch {
    throw new ServiceError(`The service answered ${route} with something other than JSON.`, response.status);
  }
}

export async function problemOf(response: Response): Promise<ServiceError> {
  const requestId = response.headers.get("x-request-id");
  let problem: Problem = {};
  try {
    problem = (await response.json()) as Problem;
  } catch {
    // A proxy's page of HTML: the status has to do.
  }
  const said = [problem.detail, problem.title].find((part): part is string => typeof part === "string" && part !== "");
  const code = typeof problem.code === "string" ? problem.code : null;
  return new ServiceError(said ?? `The service answered ${response.status}.`, response.status, code, requestId);
}

const segment = encodeURIComponent;

export interface CapturePage {
  readonly items: readonly Capture[];
  readonly next: string | null;
}

export const api = {
  captures(signal?: AbortSignal, before?: string, limit = 100): Promise<CapturePage> {
    const rest = before ? `&before=${segment(before)}` : "";
    return call(`/captures?limit=${limit}${rest}`, signal ? { signal } : {});
  },
  capture: (id: string, signal?: AbortSignal): Promise<Capture> =>
    call(`/captures/${segment(id)}`, signal ? { signal } : {}),
  hosts: (id: string, signal?: AbortSignal): Promise<{ items: Host[] }> =>
    call(`/captures/${segment(id)}/hosts`, signal ? { signal } : {}),
  tools: (id: string, signal?: AbortSignal): Promise<{ items: Tool[] }> =>
    call(`/captures/${segment(id)}/tools`, signal ? { signal } : {}),
  tool: (id: string, tool: string, host: string | null, signal?: AbortSignal, parameters: Readonly<Record<string, string>> = {}): Promise<ToolResult> =>
    call(withParameters(toolRoute(id, tool, host), parameters), signal ? { signal } : {}),
  compare: (pair: AskedPair, tool: string, signal?: AbortSignal): Promise<Comparison> => call(comparisonRoute(pair, tool), signal ? { signal } : {}),
  start: (request: CaptureRequest): Promise<Capture> =>
    call("/captures", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request),
    }),
  doctor: (request: DoctorRequest, signal?: AbortSignal): Promise<DoctorReport> =>
    call("/doctor", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(request),
      ...(signal ? { signal } : {}),
    }),
  cancel: (id: string): Promise<Capture> => call(`/captures/${segment(id)}/cancel`, { method: "POST" }),
  retry: (id: string): Promise<Capture> => call(`/captures/${segment(id)}/retry`, { method: "POST" }),
  schedules: (signal?: AbortSignal): Promise<{ items: Schedule[] }> => call("/schedules", signal ? { signal } : {}),
  addSchedule: (schedule: CaptureRequest & { readonly name: string; readonly every_s: number }): Promise<Schedule> =>
    call("/schedules", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(schedule),
    }),
  removeSchedule: (id: string): Promise<void> => call(`/schedules/${segment(id)}`, { method: "DELETE" }),
};

function toolRoute(id: string, tool: string, host: string | null): string {
  return `/captures/${segment(id)}/tools/${segment(tool)}${host ? `?host=${segment(host)}` : ""}`;
}

function withParameters(route: string, parameters: Readonly<Record<string, string>>): string {
  const search = new URLSearchParams(parameters).toString();
  return search === "" ? route : `${route}${route.includes("?") ? "&" : "?"}${search}`;
}

/** The address of a download, for a link. */
export function downloadUrl(id: string, what: { host: string } | { tool: string; host: string | null; format: string }): string {
  if ("tool" in what) {
    const route = toolRoute(id, what.tool, what.host);
    return `${BASE}${route}${route.includes("?") ? "&" : "?"}format=${what.format}`;
  }
  return `${BASE}/captures/${segment(id)}/hosts/${segment(what.host)}/xspace`;
}

/** The kernel that a custom call carries, as text. */
export function kernelUrl(id: string, host: string | null, program: string, instruction: string): string {
  const asked = new URLSearchParams({ type: "custom_call", program_id: program, node_name: instruction });
  return `${downloadUrl(id, { tool: "graph_viewer", host, format: "xprof" })}&${asked.toString()}`;
}

export function comparisonRoute({ base, other }: AskedPair, tool: string): string {
  const asked = new URLSearchParams({ base: base.capture });
  const parts = { host: other.host, base_host: base.host, steps: other.steps, base_steps: base.steps };
  for (const [name, value] of Object.entries(parts)) if (value) asked.set(name, value);
  return `/captures/${segment(other.capture)}/tools/${segment(tool)}/diff?${asked.toString()}`;
}

export const comparisonUrl = (pair: AskedPair, tool: string, table: string): string =>
  `${BASE}${comparisonRoute(pair, tool)}&format=csv&table=${segment(table)}`;

export const eventsUrl = (id: string): string => `${BASE}/captures/${segment(id)}/events`;

/** A capture while it runs: a headline, a block per host, a line per host, then the analysis. */
import { useEffect, useState } from "preact/hooks";

import type { ServiceError } from "../../api/client";
import { useLiveCapture } from "../../api/live";
import { type Capture, countedHosts, hasEnded, type Host, hostName, isLive } from "../../api/types";
import { Bar, Failure, Loading, Status } from "../../components/basics";
import { duration, fileSize, fixed, ofTotal, plural, tickDecimals, ticks } from "../../format/numbers";
import { parseTime } from "../../format/time";
import { toolPath } from "../../tools/pages";
import { horizonMs, type PhaseSpan, phaseSpans } from "./timeline";

export interface CaptureProgress {
  readonly capture: Capture | null;
  readonly hosts: readonly Host[];
  readonly failed: readonly Host[];
  readonly error: ServiceError | null;
  readonly now: Date;
  readonly complete: boolean;
  /** Where its pages are, once there is something to see. */
  readonly opens: string | null;
}

export function useProgress(id: string, round: number): CaptureProgress {
  const live = useLiveCapture(id, round);
  const capture = live.capture.value;
  const [now, setNow] = useState(() => new Date());
  const running = capture === null || isLive(capture);
  useEffect(() => {
    if (!running) return undefined;
    const timer = setInterval(() => setNow(new Date()), 250);
    return () => clearInterval(timer);
  }, [running]);
  const hosts = live.hosts.value;
  const analysed = (capture?.analysis?.hosts_done ?? 0) > 0 || capture?.analysis?.state === "done";
  return {
    capture,
    hosts,
    failed: hosts.filter((host) => hasEnded(host) && host.state !== "done"),
    error: live.error.value,
    now,
    complete: capture?.analysis?.state === "done",
    opens: capture && analysed && capture.hosts_done > 0 ? toolPath(capture.id, "overview_page") : null,
  };
}

const STATE_WORDS: Readonly<Record<string, string>> = {
  pending: "Waiting",
  connecting: "Connecting",
  armed: "Armed",
  capturing: "Tracing",
  receiving: "Transferring",
  storing: "Storing",
  done: "Stored",
  empty: "Empty",
  failed: "Failed",
  skipped: "Skipped",
  cancelled: "Cancelled",
};

function HostState({ host }: { host: Host }) {
  const word = STATE_WORDS[host.state] ?? host.state;
  if (host.state === "done") return <Status tone="ok">{word}</Status>;
  if (host.state === "failed") return <Status tone="err">{word}</Status>;
  if (hasEnded(host)) return <Status tone="warn">{word}</Status>;
  return <span class={host.state === "pending" ? "quiet" : "running"}>{word}</span>;
}

const BLOCK_ORDER = ["done", "storing", "receiving", "capturing", "armed", "connecting", "pending", "skipped", "cancelled", "empty", "failed"];

/** How many hosts must be stored; null where the text is not a rule. */
export function quorumHosts(quorum: string, total: number): number | null {
  if (quorum === "any") return Math.min(1, total);
  if (quorum === "all") return total;
  const rule = /^(\d+)(%?)$/.exec(quorum);
  if (!rule) return null;
  return rule[2] ? Math.ceil((Number(rule[1]) / 100) * total) : Number(rule[1]);
}

function Blocks({ capture, hosts }: { capture: Capture; hosts: readonly Host[] }) {
  const sorted = [...hosts].sort((a, b) => BLOCK_ORDER.indexOf(a.state) - BLOCK_ORDER.indexOf(b.state));
  const width = 1000;
  const pitch = width / Math.max(sorted.length, 1);
  const gap = sorted.length > 200 ? 0 : 2;
  const counted = countedHosts(hosts);
  const quorum = quorumHosts(capture.quorum, counted);
  return (
    <div class="blocks">
      <svg viewBox={`0 0 ${width} 14`} preserveAspectRatio="none" role="img" aria-label={`one block a host, ${ofTotal(capture.hosts_done, capture.hosts_total)} stored`}>
        {sorted.map((host, i) => (
          <rect key={host.target} class={`block-${host.state}`} x={i * pitch} y="0" width={Math.max(pitch - gap, 0.5)} height="14" />
        ))}
        {quorum !== null && <line class="quorum" x1={quorum * pitch - gap / 2} x2={quorum * pitch - gap / 2} y1="0" y2="14" />}
      </svg>
      <p class="quiet">
        one block a host, by state
        <span class="spring" />
        quorum {capture.quorum === "all" || capture.quorum === "any" ? capture.quorum : `${quorum ?? capture.quorum} of ${counted}`}
      </p>
    </div>
  );
}

const MOST_LISTED = 200;

/** The hosts that have a line of their own; of very many those that failed or still run come first. */
export function listedHosts(hosts: readonly Host[]): { readonly host: Host; readonly at: number }[] {
  const all = hosts.map((host, at) => ({ host, at }));
  if (all.length <= MOST_LISTED) return all;
  return all.sort((a, b) => BLOCK_ORDER.indexOf(b.host.state) - BLOCK_ORDER.indexOf(a.host.state) || a.at - b.at).slice(0, MOST_LISTED);
}

function headline(progress: CaptureProgress, capture: Capture): string {
  const counts = new Map<string, number>();
  for (const host of progress.hosts) counts.set(host.state, (counts.get(host.state) ?? 0) + 1);
  const parts = [...counts]
    .filter(([state]) => state !== "done")
    .sort(([a], [b]) => BLOCK_ORDER.indexOf(a) - BLOCK_ORDER.indexOf(b))
    .map(([state, n]) => `${n} ${(STATE_WORDS[state] ?? state).toLowerCase()}`);
  const sentence = parts.length > 0 ? parts.join(", ") + ". " : "";
  if (capture.error) return sentence + capture.error;
  if (capture.state === "failed") return `${sentence}The quorum was not reached.`;
  if (capture.state === "partial") return `${sentence}The quorum is reached; the pages show the hosts that are there.`;
  return sentence;
}

export function Progress({ progress }: { progress: CaptureProgress }) {
  const { capture, hosts, now, error } = progress;
  if (error && !capture) return <Failure error={error} />;
  if (!capture) return <Loading what="Loading the capture" />;
  const spans = hosts.map((host) => phaseSpans(capture, host, now));
  const horizon = horizonMs(capture, spans);
  const listed = listedHosts(hosts);
  const received = hosts.reduce((sum, host) => sum + (host.bytes ?? 0), 0);
  const started = parseTime(capture.started_at) ?? parseTime(capture.created_at) ?? now;
  const ended = parseTime(capture.finished_at) ?? (isLive(capture) ? now : started);
  const elapsed = Math.max(0, ended.getTime() - started.getTime());
  const size = fileSize(received);
  const spent = duration(elapsed, 3);
  return (
    <div class="progress">
      <div class="progress-head">
        <div class="progress-line">
          <p class="headline">
            <b data-testid="stored-count">{ofTotal(capture.hosts_done, capture.hosts_total)} stored</b> {headline(progress, capture)}
          </p>
          <Blocks capture={capture} hosts={hosts} />
        </div>
        <div class="figure"><span>Received</span><b>{size.value} <small>{size.unit}</small></b></div>
        <div class="figure"><span>Elapsed</span><b>{spent.value} <small>{spent.unit}</small></b></div>
      </div>
      {error && <Failure error={error} />}
      <table class="data hosts-table">
        <colgroup><col class="w-host" /><col class="w-state" /><col class="w-attempt" /><col /><col class="w-size" /><col class="w-analysis" /><col class="w-note" /></colgroup>
        <thead>
          <tr>
            <th scope="col">Host</th>
            <th scope="col">State</th>
            <th scope="col" class="num">Attempt</th>
            <th scope="col"><Axis horizon={horizon} /></th>
            <th scope="col" class="num">Size</th>
            <th scope="col">Analysis</th>
            <th scope="col">Note</th>
          </tr>
        </thead>
        <tbody>
          {listed.map(({ host, at }) => (
            <tr key={host.target} class={host.state === "failed" ? "failed-row" : ""} data-host-state={host.state}>
              <td class="strong cut" title={host.target}>{hostName(host)}</td>
              <td><HostState host={host} /></td>
              <td class="num">{attemptsText(host.attempts, capture.attempts)}</td>
              <td class="gantt-cell"><Gantt spans={spans[at] ?? []} horizon={horizon} /></td>
              <td class="num">{host.bytes ? <Size bytes={host.bytes} /> : hasEnded(host) ? <span class="quiet">none</span> : ""}</td>
              <td><HostAnalysis host={host} /></td>
              <td class="quiet cut" title={noteOf(host)}>{noteOf(host)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {listed.length < hosts.length && <p class="more quiet">{plural(hosts.length - listed.length, "more host", "more hosts")}; those that failed or still run come first.</p>}
      <p class="gantt-legend">
        {LEGEND.map(([phase, words]) => <span key={phase}><i class={`swatch phase-${phase}`} />{words}</span>)}
      </p>
      <AnalysisBand capture={capture} />
    </div>
  );
}

const LEGEND: readonly (readonly [string, string])[] = [
  ["wait", "connect and wait"],
  ["trace", "trace"],
  ["transfer", "transfer"],
  ["store", "store"],
  ["failed", "failed"],
];

/** A busy host is asked more often than it may be tried, and a repeated capture counts on. */
export function attemptsText(begun: number, allowed: number): string {
  if (begun === 0) return "";
  return begun > allowed ? String(begun) : ofTotal(begun, allowed);
}

function Size({ bytes }: { bytes: number }) {
  const { value, unit } = fileSize(bytes);
  return <>{value} <small>{unit}</small></>;
}

function HostAnalysis({ host }: { host: Host }) {
  const state = host.analysis?.state;
  if (!state || host.state !== "done") return null;
  if (state === "done") return <span class="better">analysed</span>;
  if (state === "failed") return <Status tone="err">failed</Status>;
  return <span class="quiet">{state === "running" ? "decoding" : "queued"}</span>;
}

function noteOf(host: Host): string {
  return host.message ?? host.reason ?? host.analysis?.error ?? "";
}

function Axis({ horizon }: { horizon: number }) {
  const all = ticks(horizon / 1000, 5);
  const marks = all.filter((mark) => mark * 1000 <= horizon);
  const decimals = tickDecimals(all[1] ?? 1);
  return (
    <span class="gantt-axis">
      {marks.map((mark) => <span key={mark} style={{ left: `${((mark * 1000) / horizon) * 100}%` }}>{mark === 0 ? "0 s" : fixed(mark, decimals)}</span>)}
    </span>
  );
}

function Gantt({ spans, horizon }: { spans: readonly PhaseSpan[]; horizon: number }) {
  const words = spans.map((span) => `${span.phase} ${duration(span.toMs - span.fromMs, 3).value} ${duration(span.toMs - span.fromMs, 3).unit}`).join(", ");
  return (
    <svg class="gantt" viewBox="0 0 1000 12" preserveAspectRatio="none" role="img" aria-label={words || "not started"}>
      <title>{words}</title>
      {spans.map((span, i) => (
        <rect
          key={i}
          class={`phase-${span.phase}`}
          x={(span.fromMs / horizon) * 1000}
          width={Math.max(((span.toMs - span.fromMs) / horizon) * 1000 - 1, 1.5)}
          y="0"
          height="12"
        />
      ))}
    </svg>
  );
}

function AnalysisBand({ capture }: { capture: Capture }) {
  const analysis = capture.analysis;
  const total = analysis?.hosts_total || capture.hosts_done;
  const done = analysis?.hosts_done ?? 0;
  const combined = analysis?.state === "done";
  const waits = capture.state === "pending" || capture.state === "capturing";
  return (
    <section class="analysis-band" aria-label="Analysis">
      <b>Analysis</b>
      <div>
        <span>Decode and analyse per host</span>
        <span class="quiet">{total > 0 ? ofTotal(done, total) : "waits for hosts"}</span>
        <Bar ratio={total > 0 ? done / total : 0} class="accent" />
      </div>
      <div>
        <span>Combine</span>
        <span class="quiet">
          {analysis?.state === "failed" ? analysis.error ?? "failed" : combined ? "done" : waits ? "waits for the capture" : plural(Math.max(total - done, 0), "host") + " to go"}
        </span>
        <Bar ratio={combined ? 1 : 0} class="accent" />
      </div>
    </section>
  );
}

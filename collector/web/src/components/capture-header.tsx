/** What is open: run, capture, hosts; and below it what the result rests on and what it lost. */
import { useState } from "preact/hooks";

import { api, downloadUrl } from "../api/client";
import { asServiceError } from "../api/resource";
import { type Capture, hasEnded, type Host, hostName, isLive, isRunning, type Tool, type ToolResult } from "../api/types";
import { allCaptures } from "../captures-store";
import { count, fileSize, ofTotal, plural, text } from "../format/numbers";
import { ago, fullTime } from "../format/time";
import { runOf, startedAt } from "../pages/captures/filter";
import { statusOf } from "../pages/captures/status";
import { useShortcuts } from "../keys";
import { startedTogether } from "../tools/clocks";
import { toolPath } from "../tools/pages";
import { go, href, parameter, setQuery } from "../url";
import { Badge } from "./basics";
import { Combobox, type Option } from "./combobox";
import { CopyLink } from "./copy";
import { type HostMark, HostStrip } from "./host-strip";
import { Icon } from "./icons";
import { Popover } from "./popover";

const MAX_IN_SELECTOR = 50;

/** How a result's losses read: kinds are the analyzer's own. */
function lossWords(result: ToolResult): string | null {
  const [first, ...others] = result.losses;
  if (!first) return null;
  const where = first.host || first.plane;
  return `${plural(result.losses.length, "loss", "losses")}: ${first.kind.replaceAll("_", " ")} on ${where}${others.length > 0 ? " and others" : ""}`;
}

export function CaptureHeader(props: {
  capture: Capture;
  hosts: readonly Host[];
  tools: readonly Tool[];
  tool: Tool;
  /** The host whose result is shown; null for that of all hosts. */
  asked: string | null;
  result: ToolResult | null;
}) {
  const { capture, hosts, tool, result } = props;
  const host = parameter("host");
  const known = allCaptures.value.some((other) => other.id === capture.id) ? allCaptures.value : [capture, ...allCaptures.value];
  const opened = known.filter((other) => other.hosts_done > 0 || other.id === capture.id);
  const ofRun = opened.filter((other) => runOf(other) === runOf(capture)).slice(0, MAX_IN_SELECTOR);
  const newest = new Map<string, Capture>();
  for (const other of opened) if (!newest.has(runOf(other))) newest.set(runOf(other), other);
  const now = new Date();
  const started = startedAt(capture);

  const open = (id: string): void => go(href(toolPath(id, tool.name), { step: parameter("step") }));
  useShortcuts(
    [
      { keys: "y", what: "Copy link", run: () => document.querySelector<HTMLElement>("[data-copy-link]")?.click(), scope: "this page" },
      { keys: "h", what: "Choose a host", run: () => document.querySelector<HTMLElement>("[data-opener=host]")?.click(), scope: "this page" },
    ],
    [],
  );
  const names = result?.scope.hosts.length && result.scope.hosts.length >= hosts.length ? result.scope.hosts : hosts.filter((h) => h.state === "done").map(hostName);
  const hostOptions: Option[] = [
    ...(tool.scope === "host" ? [] : [{ value: "", text: "All hosts" }]),
    ...names.map((name) => ({ value: name, text: name })),
  ];
  const missing = hosts.filter((h) => hasEnded(h) && h.state !== "done");
  const marks: HostMark[] = hosts.map((h) =>
    h.state === "done" ? (capture.summary?.slow_host === hostName(h) ? "slow" : "stored") : h.state === "failed" ? "failed" : "missing",
  );
  const losses = result && lossWords(result);
  const summary = capture.summary;
  const together = startedTogether(capture);
  return (
    <header class="capture-header">
      <div class="capture-line">
        <Combobox
          label="Run"
          value={runOf(capture)}
          options={[...newest.keys()].map((run) => ({ value: run, text: run }))}
          onChange={(run) => open(newest.get(run)?.id ?? capture.id)}
        />
        <Combobox
          label="Capture"
          value={capture.id}
          options={ofRun.map((other) => ({ value: other.id, text: other.session, note: ago(startedAt(other), now) }))}
          onChange={open}
        />
        <Combobox label="Host" opener="host" value={host ?? props.asked ?? ""} options={hostOptions} onChange={(value) => setQuery({ host: value })} />
        <span class="spring" />
        <Downloads capture={capture} hosts={hosts} tool={tool} asked={props.asked} />
        <CopyLink />
      </div>
      <div class="capture-line facts">
        <span class="strong">{ofTotal(capture.hosts_done, capture.hosts_total)} hosts</span>
        <HostStrip marks={marks} label={`${ofTotal(capture.hosts_done, capture.hosts_total)} hosts stored`} />
        {missing.length > 0 && <Missing capture={capture} hosts={missing} />}
        {host !== null && props.asked === null && tool.name !== "pod_viewer" && <span>this page is of all hosts</span>}
        {summary?.device_type && <span>{summary.device_type}</span>}
        {summary?.step_count != null && <span><b>{count(summary.step_count)}</b> {summary.step_count === 1 ? "step" : "steps"}</span>}
        <span title={fullTime(started, now)}>{ago(started, now)}</span>
        {together && (together.isApart ? <Badge tone="warn" title={together.detail}>{together.words}</Badge> : <span title={together.detail}>{together.words}</span>)}
        <span class="spring" />
        {isRunning(capture) && <Act words="Cancel" act={() => api.cancel(capture.id)} />}
        {isLive(capture) && <Badge tone="info">{statusOf(capture).words}</Badge>}
        {result && (losses ? <Badge tone="warn" title={result.losses.map((l) => `${l.host} ${l.plane}: ${l.kind} ${l.count}`).join("\n")}>{losses}</Badge> : <Badge tone="ok">no events lost</Badge>)}
        {capture.bytes ? <span class="quiet">{text(fileSize(capture.bytes))}</span> : null}
      </div>
    </header>
  );
}

/** A button for what the service does to a capture; the page shows the outcome by itself. */
function Act({ words, act }: { words: string; act: () => Promise<Capture> }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const run = async (): Promise<void> => {
    setBusy(true);
    try {
      await act();
      location.reload();
    } catch (cause) {
      setProblem(asServiceError(cause).message);
      setBusy(false);
    }
  };
  return (
    <>
      <button type="button" class="button" disabled={busy} onClick={() => void run()}>{words}</button>
      {problem && <span role="alert" class="quiet">{problem}</span>}
    </>
  );
}

function Missing({ capture, hosts }: { capture: Capture; hosts: readonly Host[] }) {
  return (
    <Popover label={<Badge tone="err">{hosts.length} missing</Badge>}>
      <div class="missing">
        {!isRunning(capture) && <Act words={`Capture ${plural(hosts.length, "host", "hosts")} again`} act={() => api.retry(capture.id)} />}
        <table class="data">
          <thead><tr><th scope="col">Host</th><th scope="col">Why</th></tr></thead>
          <tbody>
            {hosts.slice(0, 200).map((host) => (
              <tr key={host.target}>
                <td class="mono">{hostName(host)}</td>
                <td class="wrap">{host.message ?? host.reason ?? host.state}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Popover>
  );
}

function Downloads({ capture, hosts, tool, asked }: { capture: Capture; hosts: readonly Host[]; tool: Tool; asked: string | null }) {
  const host = parameter("host");
  const stored = hosts.filter((h) => h.state === "done").map(hostName);
  const one = host ?? stored[0];
  return (
    <Popover class="button bare" label={<><Icon name="download" />Download<Icon name="chevron" /></>}>
      <div class="popover-list">
        <a download href={downloadUrl(capture.id, { tool: tool.name, host: asked, format: "csv" })}>{tool.title}, CSV</a>
        <a download href={downloadUrl(capture.id, { tool: tool.name, host: asked, format: "json" })}>{tool.title}, JSON</a>
        <a download href={downloadUrl(capture.id, { tool: tool.name, host: asked, format: "xprof" })}>{tool.title}, XProf JSON</a>
        {one && <a download href={downloadUrl(capture.id, { host: one })}>XSpace of {one}</a>}
      </div>
    </Popover>
  );
}

/** All captures by day, the running ones live. */
import { useEffect, useState } from "preact/hooks";

import type { Capture } from "../../api/types";
import { isLive } from "../../api/types";
import { allCaptures, captures, capturesError, hasOlder, loadOlder, refreshCaptures } from "../../captures-store";
import { BreakdownBar } from "../../components/breakdown-bar";
import { Badge, Failure, Loading, SearchField } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { HostStrip, marksFromCounts } from "../../components/host-strip";
import { Icon } from "../../components/icons";
import { change, columnDecimals, count, fileSize, fixed, ofTotal, plural, text } from "../../format/numbers";
import { ago, dayHeading, fullTime } from "../../format/time";
import { useShortcuts } from "../../keys";
import { toolPath } from "../../tools/pages";
import { go, href, parameter, setQuery } from "../../url";
import { CaptureDialog } from "../dialog/dialog";
import { Density } from "./density";
import { EmptyCaptures } from "./empty";
import { type Filter, matches, runOf, startedAt, stepTimeChanges } from "./filter";
import { StatusCell } from "./status";

const STATUSES = [
  { value: "", text: "Any" },
  { value: "live", text: "Running" },
  { value: "ready", text: "Ready" },
  { value: "partial", text: "Partial" },
  { value: "failed", text: "Failed" },
];
const TIMES = [
  { value: "", text: "All" },
  { value: "1", text: "Last hour" },
  { value: "24", text: "Last 24 hours" },
  { value: "168", text: "Last 7 days" },
];

export function captureLink(capture: Capture): string {
  const opens = !isLive(capture) && capture.hosts_done > 0;
  return opens ? toolPath(capture.id, "overview_page") : href("/captures", { watch: capture.id });
}

function useNow(everyMs: number): Date {
  const [now, setNow] = useState(() => new Date());
  useEffect(() => {
    const timer = setInterval(() => setNow(new Date()), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return now;
}

export function CapturesPage() {
  const now = useNow(captures.value?.some(isLive) ? 1000 : 10_000);
  const filter: Filter = {
    q: parameter("q") ?? "",
    run: parameter("run") ?? "",
    status: parameter("status") ?? "",
    trigger: parameter("trigger") ?? "",
    hours: parameter("hours") ?? "",
  };
  const all = allCaptures.value;
  const shown = all.filter((capture) => matches(capture, filter, now));
  const [focused, setFocused] = useState(-1);
  const openNew = (): void => setQuery({ new: 1 });
  const focus = (at: number): void => {
    const next = Math.min(Math.max(at, 0), shown.length - 1);
    setFocused(next);
    document.querySelectorAll(".captures-table tbody tr.row")[next]?.scrollIntoView({ block: "nearest" });
  };
  useShortcuts(
    [
      { keys: "j", what: "Row down", run: () => focus(focused + 1), scope: "this page" },
      { keys: "k", what: "Row up", run: () => focus(focused - 1), scope: "this page" },
      {
        keys: "enter",
        what: "Open the row",
        scope: "this page",
        run: () => {
          const capture = shown[focused];
          if (capture) go(captureLink(capture));
        },
      },
    ],
    [focused, shown.length],
  );

  const runs = [...new Set(all.map(runOf))].sort();
  const triggers = [...new Set(all.map((capture) => capture.trigger))].sort();
  const stored = all.reduce((sum, capture) => sum + (capture.bytes ?? 0), 0);
  const running = all.filter(isLive).length;
  return (
    <>
      <header class="page-head">
        <h1>Captures</h1>
        {capturesError.value ? (
          <Badge tone="err">not connected</Badge>
        ) : (
          captures.value && (
            <span class="badge tone-ok" title="The list follows the service">
              <i class="dot" />
              {running > 0 ? `live, ${running} running` : "live"}
            </span>
          )
        )}
        <span class="spring" />
        <button type="button" class="button primary" onClick={openNew} data-testid="new-capture">
          <Icon name="plus" />
          New capture <kbd>C</kbd>
        </button>
      </header>
      {all.length > 0 && (
        <>
          <div class="filters">
            <SearchField wide label="Run, label, session or host" value={filter.q} onInput={(q) => setQuery({ q }, "replace")} />
            <Combobox
              label="Run"
              value={filter.run}
              options={[{ value: "", text: `All ${runs.length}` }, ...runs.map((run) => ({ value: run, text: run }))]}
              onChange={(run) => setQuery({ run })}
            />
            <Combobox label="Status" value={filter.status} options={STATUSES} onChange={(status) => setQuery({ status })} />
            <Combobox
              label="Trigger"
              value={filter.trigger}
              options={[{ value: "", text: "Any" }, ...triggers.map((t) => ({ value: t, text: t }))]}
              onChange={(trigger) => setQuery({ trigger })}
            />
            <Combobox label="Time" value={filter.hours} options={TIMES} onChange={(hours) => setQuery({ hours })} />
            <span class="spring" />
            <span class="quiet">
              {plural(all.length, "capture")}, {text(fileSize(stored))} stored
            </span>
          </div>
          <Density captures={all} now={now} />
        </>
      )}
      <div class="page-scroll">
        {capturesError.value && <Failure error={capturesError.value} retry={() => void refreshCaptures()} />}
        {captures.value === null && !capturesError.value && <Loading what="Loading the captures" />}
        {captures.value !== null && all.length === 0 && <EmptyCaptures onNew={openNew} />}
        {all.length > 0 && <CapturesTable captures={shown} all={all} now={now} focused={focused} filtered={shown.length < all.length} />}
        {hasOlder.value && (
          <p class="more">
            <button type="button" class="button" onClick={() => void loadOlder()}>Load older captures</button>
          </p>
        )}
      </div>
      {(parameter("new") || parameter("watch")) && <CaptureDialog />}
    </>
  );
}

function CapturesTable(props: { captures: readonly Capture[]; all: readonly Capture[]; now: Date; focused: number; filtered: boolean }) {
  const changes = stepTimeChanges(props.all);
  const decimals = Math.min(columnDecimals(props.captures.map((capture) => capture.summary?.step_time_ms)), 3);
  let day = "";
  return (
    <table class="captures-table">
      <thead>
        <tr>
          <th scope="col">Run</th>
          <th scope="col" class="trigger-cell">Trigger</th>
          <th scope="col" aria-sort="descending">Started ↓</th>
          <th scope="col" class="strip-cell" aria-hidden="true" />
          <th scope="col" class="num">Hosts</th>
          <th scope="col" class="num">Step <small>ms</small></th>
          <th scope="col" class="num" title="Against the previous capture of the run">Δ <small>%</small></th>
          <th scope="col" class="num">Steps</th>
          <th scope="col">Breakdown</th>
          <th scope="col">Status</th>
          <th scope="col" class="num">Size</th>
        </tr>
      </thead>
      <tbody>
        {props.captures.flatMap((capture, at) => {
          const started = startedAt(capture);
          const heading = dayHeading(started, props.now);
          const rows = [];
          if (heading !== day) {
            rows.push(
              <tr class="day" key={heading}>
                <th scope="colgroup" colSpan={11}>{heading}</th>
              </tr>,
            );
            day = heading;
          }
          rows.push(
            <CaptureRow
              key={capture.id}
              capture={capture}
              now={props.now}
              delta={changes.get(capture.id)}
              decimals={decimals}
              focused={at === props.focused}
            />,
          );
          return rows;
        })}
        {props.captures.length === 0 && (
          <tr>
            <td colSpan={11} class="table-empty">
              No capture matches.{" "}
              <button type="button" class="link-button" onClick={() => go("/captures")}>Clear the filter</button>
            </td>
          </tr>
        )}
      </tbody>
    </table>
  );
}

function CaptureRow({ capture, now, delta, decimals, focused }: {
  capture: Capture;
  now: Date;
  delta: number | "first" | undefined;
  decimals: number;
  focused: boolean;
}) {
  const { summary } = capture;
  const live = isLive(capture);
  const started = startedAt(capture);
  const labels = Object.entries(capture.labels ?? {}).filter(([key]) => key !== "run");
  const to = captureLink(capture);
  const settled = !live && capture.hosts_done > 0;
  // Within one percent is noise of the clock and the sample; beyond, the colour helps to find it.
  const deltaTone = typeof delta !== "number" || Math.abs(delta) < 0.01 ? "quiet" : delta > 0 ? "worse" : "better";
  return (
    <tr class={`row ${focused ? "focused" : ""} ${live ? "live" : ""}`} onClick={(event) => !(event.target as Element).closest("a") && go(to)}>
      <td>
        <a class="row-link" href={to}>{runOf(capture)}</a>{" "}
        <span class="quiet" title={capture.session}>
          {labels.length > 0 ? labels.map(([key, value]) => `${key}=${value}`).join(" ") : capture.session}
        </span>
      </td>
      <td class="quiet trigger-cell">{capture.trigger}</td>
      <td class="quiet when" title={fullTime(started, now)}>{ago(started, now)}</td>
      <td class="strip-cell">
        <HostStrip
          marks={marksFromCounts(capture.hosts_done, capture.hosts_total, live)}
          label={`${ofTotal(capture.hosts_done, capture.hosts_total)} hosts stored`}
        />
      </td>
      <td class="num">{ofTotal(capture.hosts_done, capture.hosts_total)}</td>
      <td class="num strong">
        {summary?.step_time_ms != null ? fixed(summary.step_time_ms, decimals) : settled && <span class="quiet plain-weight">none</span>}
      </td>
      <td class={`num ${deltaTone}`}>{delta === undefined ? "" : delta === "first" ? "first" : change(delta)}</td>
      <td class="num quiet">{summary?.step_count != null ? count(summary.step_count) : ""}</td>
      <td>{summary?.breakdown && summary.breakdown.length > 0 && <BreakdownBar parts={summary.breakdown} />}</td>
      <td><StatusCell capture={capture} /></td>
      <td class="num quiet">{capture.bytes ? text(fileSize(capture.bytes)) : ""}</td>
    </tr>
  );
}

/** The pod viewer: who is late, in which steps, and with what. */
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { ToolResult } from "../../api/types";
import { NoData, Panel, SearchField, Segmented, Verdict, type VerdictParts } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { HeatCells, HeatMatrix, HeatScale } from "../../components/heat-map";
import { Icon } from "../../components/icons";
import { StackedColumns, StackTable, WithTable } from "../../components/stacked-columns";
import { byName, change, columnDecimals, count, duration, fixed, percent, plural, shortNames, text } from "../../format/numbers";
import { useShortcuts } from "../../keys";
import { CATEGORIES, type Category } from "../../tools/categories";
import { doWait, type LateHost, lateHosts, lateSteps, overMedian, ownMeans, podSteps, type PodSteps, slowCores, slowestOfStep, type Unit } from "../../tools/pod";
import { mean, median } from "../../tools/steps";
import { parameter, setQuery, withQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";
import { ArrivalsPanel } from "./arrivals";
import { HostCard } from "./card";
import { DevicesPanel } from "./devices";

const MAX_COLUMNS = 64;
const OUTLIER_RATIO = 0.06;
const MAX_MATRIX_STEPS = 400;

/** Own parts below, collectives on top, so that the own work is the height below them. */
function podOrder(categories: readonly Category[]): Category[] {
  const last = ["collective", "idle"];
  return CATEGORIES.filter((c) => categories.includes(c) && !last.includes(c.id)).concat(categories.filter((c) => c.id === "collective"), categories.filter((c) => c.id === "idle"));
}

function verdictOf(late: readonly LateHost[], pod: PodSteps, result: ToolResult): VerdictParts {
  const waits = doWait(result);
  const steps = plural(pod.stepCount, "step");
  const worst = late[0];
  const hosts = pod.hosts.length;
  const core = slowCores(result)[0];
  if (!worst && core) {
    const more = slowCores(result).length - 1;
    return {
      tone: "warn",
      clause: `Core ${core.core} of ${core.host} holds its host back.`,
      sentence: `It takes ${text(duration(core.latenessMs, 3))} of a typical step longer than the other cores of its host${core.latenessRatio === null ? "" : ` (${percent(core.latenessRatio)} of the step)`}${more > 0 ? `; so do ${plural(more, "more core")}` : ""}.`,
      ruledOut: hosts < 2 ? `One host, ${steps}: a late host shows only against others.` : "No host stands out.",
    };
  }
  if (!worst) {
    if (hosts < 2) return { tone: "info", clause: "One host.", sentence: `Its ${steps} are below; a late host shows only against others.` };
    const means = [...ownMeans(pod).values()];
    const spread = Math.max(...means) / Math.max(median(means), 1e-12) - 1;
    const slowest = slowestOfStep(result);
    return {
      tone: "ok",
      clause: "No host stands out.",
      sentence: `Mean own work is at most ${percent(Math.max(spread, 0))} above the median over ${steps}.${slowest ? ` The slowest host of a typical step, whichever it is, is ${text(duration(slowest.latenessMs, 3))} later than the others (${percent(slowest.latenessRatio)} of the step).` : ""}`,
      ruledOut: "Own work is step time less time in collectives: step times are equal because collectives synchronise hosts.",
    };
  }
  const own = ownMeans(pod).get(worst.host) ?? 0;
  const middle = mean(pod.steps.map((step) => median(pod.units.get(step)?.map((unit) => unit.ownMs) ?? [])));
  const later = worst.latenessMs ?? own - middle;
  const link = <a href={withQuery({ host: worst.host })}>{worst.host}</a>;
  const lateIn = lateSteps(worst, pod.stepCount);
  const persistence = lateIn === null ? "" : ` It is late in ${lateIn} steps.`;
  const [one, several] = waits ? ["holds the others back", "hold the others back"] : ["is slower than the others", "are slower than the others"];
  const clause = late.length > 1 ? `${late.length} of ${count(hosts)} hosts ${several}.` : `${worst.host} ${one}.`;
  return {
    tone: "warn",
    clause,
    sentence: (
      <>
        {late.length > 1 ? <>The worst, {link}, is</> : <>It is</>} {text(duration(later, 3))} late in a typical step{waits ? `, so ${plural(Math.max(hosts - late.length, 1), "host")} wait for it in collectives.` : "; no collective makes the others wait for it."}
      </>
    ),
    ruledOut: `${worst.evidence[0] ? worst.evidence[0].charAt(0).toUpperCase() + worst.evidence[0].slice(1) + "." : `Its own work takes ${text(duration(own))} against a median of ${text(duration(middle))}.`}${persistence}`,
  };
}

export function PodViewerPage({ result, capture, advice }: ToolViewProps) {
  // The verdict is over all steps; of many steps of many cores some are listed at a time.
  const from = parameter("from");
  const other = useResource(from === null ? null : `${capture.id} pod_viewer ${from}`, (abort) => api.tool(capture.id, "pod_viewer", null, abort, { first_step: from ?? "0" }));
  const listed = (from !== null && other.value.value) || result;
  // Reading tens of thousands of rows again for every step that is walked is felt.
  const pod = useMemo(() => podSteps(listed), [listed]);
  const late = useMemo(() => lateHosts(result), [result]);
  const first = pod.steps[0];
  const wantedStep = parameter("step");
  const step = wantedStep !== null && pod.units.has(wantedStep) ? wantedStep : (first ?? "");
  const at = pod.steps.indexOf(step);
  const go = (by: number): void => {
    const next = pod.steps[at + by];
    if (next !== undefined) setQuery({ step: next });
  };
  useShortcuts(
    [
      { keys: "arrowleft", what: "Previous step", run: () => go(-1), scope: "this page" },
      { keys: "arrowright", what: "Next step", run: () => go(1), scope: "this page" },
    ],
    [at, pod.steps.length],
  );
  if (first === undefined) {
    return <section class="panel"><NoData reasons={result.reasons} fallback="No steps: the pod viewer compares hosts step by step." /></section>;
  }
  const byCore = parameter("by") === "core";
  const units = (byCore ? pod.cores : pod.units).get(step) ?? [];
  const host = parameter("host") ?? late[0]?.host ?? slowest(pod.units.get(step) ?? [])?.host ?? null;
  const verdict = verdictOf(late, pod, result);
  const hasCores = [...pod.cores.values()].some((cores) => cores.length > (pod.hosts.length || 1));
  return (
    <>
      <Verdict {...verdict} />
      {result.reasons.length > 0 && <NoData reasons={result.reasons} fallback="" />}
      <div class="pod-controls">
        <Scrubber pod={pod} step={step} />
        <Pager pod={pod} />
        <span class="spring" />
        {hasCores && <Segmented label="Columns" options={[["host", "Per host"], ["core", "Per device"]]} value={byCore ? "core" : "host"} onChange={(by) => setQuery({ by: by === "core" ? "core" : null })} />}
        <Segmented label="Unit" options={[["ms", "ms"], ["share", "share"]]} value={parameter("unit") === "share" ? "share" : "ms"} onChange={(unit) => setQuery({ unit: unit === "share" ? unit : null })} />
        <Combobox
          label="Sort"
          value={parameter("order") ?? ""}
          options={[{ value: "", text: "Own work, slowest first" }, { value: "total", text: "Step time, longest first" }, { value: "name", text: "Name" }]}
          onChange={(order) => setQuery({ order })}
        />
      </div>
      <div class="columns">
        <div class="stack">
          {units.length <= MAX_COLUMNS ? (
            <Columns pod={pod} units={units} step={step} host={host} late={late} byCore={byCore} />
          ) : (
            <Many units={units} step={step} host={host} late={late} byCore={byCore} />
          )}
          <DevicesPanel result={result} pod={pod} step={step} host={host} late={late.map((candidate) => candidate.host)} />
          {pod.hosts.length <= MAX_COLUMNS && pod.hosts.length > 1 && <Matrix pod={pod} step={step} host={host} late={late} />}
          <ArrivalsPanel result={result} host={host} />
        </div>
        <div class="stack">
          {units.length > MAX_COLUMNS && <Outliers units={pod.units.get(step) ?? []} host={host} />}
          {host !== null && <HostCard capture={capture} pod={pod} step={step} host={host} late={late.find((candidate) => candidate.host === host) ?? null} />}
          {advice}
        </div>
      </div>
    </>
  );
}

function slowest(units: readonly Unit[]): Unit | undefined {
  return [...units].sort((a, b) => b.ownMs - a.ownMs)[0];
}

/** Other steps of a capture that has more than are listed at once. */
function Pager({ pod }: { pod: PodSteps }) {
  if (pod.first === 0 && pod.next === null) return null;
  const show = (from: number): void => setQuery({ from: from > 0 ? String(from) : null, step: null });
  return (
    <span class="pager">
      <button type="button" class="button" disabled={pod.first === 0} onClick={() => show(Math.max(pod.first - pod.steps.length, 0))}>Earlier steps</button>
      <button type="button" class="button" disabled={pod.next === null} onClick={() => show(pod.next ?? 0)}>Later steps</button>
      <span class="quiet">{count(pod.first + 1)} to {count(pod.first + pod.steps.length)} of {count(pod.stepCount)} steps</span>
    </span>
  );
}

function Scrubber({ pod, step }: { pod: PodSteps; step: string }) {
  const at = pod.steps.indexOf(step);
  const times = pod.steps.map((name) => Math.max(0, ...(pod.units.get(name) ?? []).map((unit) => unit.totalMs)));
  const largest = Math.max(...times, 1e-9);
  const pitch = Math.min(13, Math.max(260 / times.length, 1));
  const choose = (i: number): void => {
    const next = pod.steps[i];
    if (next !== undefined) setQuery({ step: next }, "replace");
  };
  return (
    <div class="scrubber">
      <b data-testid="step-label">Step {step}</b>
      <button type="button" class="button" aria-label="Previous step" disabled={at <= 0} onClick={() => choose(at - 1)}><Icon name="left" /></button>
      <span class="scrubber-bars" style={{ width: `${pitch * times.length}px` }}>
        <svg width={pitch * times.length} height="22" aria-hidden="true">
          {times.map((time, i) => {
            const height = Math.max((time / largest) * 20, 2);
            return <rect key={i} class={i === at ? "here" : ""} x={i * pitch} y={22 - height} width={Math.max(pitch - 2, 1)} height={height} rx="1" />;
          })}
        </svg>
        <input
          type="range"
          aria-label="Step"
          aria-valuetext={`step ${step}`}
          min="0"
          max={pod.steps.length - 1}
          value={at}
          onInput={(event) => choose(Number(event.currentTarget.value))}
        />
      </span>
      <button type="button" class="button" aria-label="Next step" disabled={at >= pod.steps.length - 1} onClick={() => choose(at + 1)}><Icon name="right" /></button>
      <span class="quiet"><kbd>←</kbd> <kbd>→</kbd> step</span>
    </div>
  );
}

function sorted(units: readonly Unit[]): Unit[] {
  const order = parameter("order");
  if (order === "name") return [...units].sort((a, b) => byName(a.key, b.key));
  return [...units].sort(order === "total" ? (a, b) => b.totalMs - a.totalMs : (a, b) => b.ownMs - a.ownMs);
}

function Columns(props: { pod: PodSteps; units: readonly Unit[]; step: string; host: string | null; late: readonly LateHost[]; byCore: boolean }) {
  const unit = parameter("unit") === "share" ? "share" : "ms";
  const order = podOrder(props.pod.categories);
  const shown = sorted(props.units);
  const middle = median(shown.map((row) => row.ownMs));
  const decimals = columnDecimals(shown.map((row) => row.totalMs));
  const over = overMedian(shown);
  const names = shortNames(props.pod.hosts);
  const columns = shown.map((row) => {
    const scale = unit === "share" && row.totalMs > 0 ? 100 / row.totalMs : 1;
    return {
      key: row.key,
      label: props.byCore && row.core !== null ? `${names.get(row.host)}/${row.core}` : (names.get(row.host) ?? row.host),
      title: props.byCore && row.core !== null ? `${row.host}, core ${row.core}` : row.host,
      sub: fixed(row.ownMs, decimals),
      total: row.totalMs * scale,
      parts: new Map([...row.parts].map(([id, ms]) => [id, ms * scale])),
    };
  });
  const worst = props.late[0];
  const marked = shown.find((row) => row.host === worst?.host);
  const what = props.byCore ? "device" : "host";
  const table = (): ComponentChildren => <StackTable columns={columns} categories={order} first={props.byCore ? "Device" : "Host"} unit={unit === "share" ? "%" : "ms"} />;
  return (
    <Panel
      title={`Step ${props.step} by ${what}`}
      subtitle={`${unit === "share" ? "% of the step" : "ms"}; the number under each ${what} is own work`}
      tools={<span class="legend-line">{order.map((category) => <span key={category.id}><i class={`swatch cat-${category.id}`} />{category.short}</span>)}</span>}
    >
      <WithTable label={`step ${props.step} by ${what}`} table={table}>
        <div class="chart-pad">
          <StackedColumns
            columns={columns}
            categories={order}
            unit={unit === "share" ? "%" : "ms"}
            height={330}
            sentence={`Step ${props.step} of ${plural(shown.length, what)}: median own work ${text(duration(middle))}, longest ${text(duration(shown[0]?.ownMs ?? 0))} on ${slowest(shown)?.key ?? ""}.`}
            selected={shown.find((row) => row.host === props.host)?.key ?? null}
            onSelect={(key) => setQuery({ host: shown.find((row) => row.key === key)?.host ?? null })}
            marked={marked ? { key: marked.key, label: `late, own work ${change(over.get(marked.key) ?? 0)}` } : null}
            line={unit === "ms" ? { value: middle, label: `median own work ${text(duration(middle))}` } : null}
          />
        </div>
      </WithTable>
    </Panel>
  );
}

function Matrix({ pod, step, host, late }: { pod: PodSteps; step: string; host: string | null; late: readonly LateHost[] }) {
  const steps = pod.steps.slice(0, MAX_MATRIX_STEPS);
  const values = new Map(steps.map((name) => [name, overMedian(pod.units.get(name) ?? [])]));
  const hottest = Math.max(OUTLIER_RATIO, ...[...values.values()].flatMap((row) => [...row.values()]));
  const hosts = [...pod.hosts].sort(byName);
  const rows = (): (string | number | null)[][] => hosts.map((name) => [name, ...steps.map((at) => values.get(at)?.get(name) ?? null)]);
  return (
    <Panel
      title="Is it always the same host?"
      subtitle="own work against the step's median, host × step"
      tools={
        <>
          <HeatScale low="0%" high={change(hottest)} />
          <CsvButton label="Host by step as CSV" file="pod_viewer-own-work" header={["host", ...steps]} rows={rows} />
        </>
      }
    >
      <WithTable
        label="own work against the median"
        table={() => (
          <table class="data">
            <thead><tr><th scope="col">Host</th>{steps.map((name) => <th scope="col" class="num" key={name}>{name}</th>)}</tr></thead>
            <tbody>
              {hosts.map((name) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  {steps.map((at) => <td class="num" key={at}>{values.get(at)?.has(name) ? change(values.get(at)?.get(name) ?? 0) : "absent"}</td>)}
                </tr>
              ))}
            </tbody>
          </table>
        )}
      >
        <div class="chart-pad">
          <HeatMatrix
            rows={hosts}
            names={shortNames(hosts)}
            columns={steps}
            columnWord="step"
            hottest={hottest}
            sentence={`Own work of ${plural(hosts.length, "host")} over ${plural(steps.length, "step")} against each step's median, at most ${change(hottest)}.`}
            cell={(row, column) => {
              const value = values.get(column)?.get(row);
              return value === undefined ? null : { row, column, value, text: change(value).replace(/\.\d%$/, "%") };
            }}
            selectedColumn={step}
            selectedRow={host}
            strongRows={new Set(late.map((candidate) => candidate.host))}
            onSelect={(row, column) => setQuery({ host: row, step: column })}
          />
        </div>
      </WithTable>
      {pod.steps.length > steps.length && <p class="no-data">The first {count(steps.length)} of {count(pod.steps.length)} steps.</p>}
    </Panel>
  );
}

function Many({ units, step, host, late, byCore }: { units: readonly Unit[]; step: string; host: string | null; late: readonly LateHost[]; byCore: boolean }) {
  const over = overMedian(units);
  const ordered = [...units].sort((a, b) => byName(a.key, b.key));
  const hottest = Math.max(OUTLIER_RATIO, ...over.values());
  const lateNames = new Set(late.map((candidate) => candidate.host));
  const outlined = new Set(ordered.filter((unit) => lateNames.has(unit.host) || (over.get(unit.key) ?? 0) > OUTLIER_RATIO).map((unit) => unit.key));
  const what = byCore ? "device" : "host";
  const middle = median(units.map((unit) => unit.ownMs));
  return (
    <Panel title="Own work against the median" subtitle={`step ${step}, ${plural(units.length, what)} in name order; median ${text(duration(middle))}`} tools={<HeatScale low="0%" high={change(hottest)} />}>
      <WithTable
        label="own work against the median"
        table={() => (
          <table class="data">
            <thead><tr><th scope="col">{byCore ? "Device" : "Host"}</th><th scope="col" class="num">Own work <small>ms</small></th><th scope="col" class="num">Over median</th></tr></thead>
            <tbody>{sorted(ordered).map((unit) => <tr key={unit.key}><th scope="row">{unit.key}</th><td class="num">{fixed(unit.ownMs, columnDecimals([middle]))}</td><td class="num">{change(over.get(unit.key) ?? 0)}</td></tr>)}</tbody>
          </table>
        )}
      >
        <div class="chart-pad">
          <HeatCells
            cells={ordered.map((unit) => ({ row: unit.key, column: step, value: over.get(unit.key) ?? 0, text: `${text(duration(unit.ownMs))}, ${change(over.get(unit.key) ?? 0)}` }))}
            hottest={hottest}
            outlined={outlined}
            selected={ordered.find((unit) => unit.host === host)?.key ?? null}
            sentence={`Own work of ${plural(units.length, what)} at step ${step}, ${plural(outlined.size, "outlier")}.`}
            onSelect={(key) => setQuery({ host: ordered.find((unit) => unit.key === key)?.host ?? null })}
          />
        </div>
      </WithTable>
    </Panel>
  );
}

const MAX_OUTLIERS = 12;

function Outliers({ units, host }: { units: readonly Unit[]; host: string | null }) {
  const over = overMedian(units);
  const search = parameter("q") ?? "";
  const ranked = [...units].sort((a, b) => b.ownMs - a.ownMs);
  const hits = search ? ranked.filter((unit) => unit.host.toLowerCase().includes(search.toLowerCase())) : ranked.filter((unit) => (over.get(unit.key) ?? 0) > OUTLIER_RATIO);
  return (
    <Panel title={search ? "Hosts" : "Outliers"} subtitle={search ? plural(hits.length, "hit") : `over ${change(OUTLIER_RATIO)}`}>
      <div class="no-data"><SearchField label="Find a host" value={search} onInput={(q) => setQuery({ q }, "replace")} /></div>
      <ul class="advice">
        {hits.slice(0, MAX_OUTLIERS).map((unit) => (
          <li key={unit.key} aria-selected={unit.host === host}>
            <p class="advice-title">
              <button type="button" onClick={() => setQuery({ host: unit.host })}>{unit.host}</button>
              <span class="worse">{change(over.get(unit.key) ?? 0)}</span>
            </p>
            <p>{text(duration(unit.ownMs))} own work</p>
          </li>
        ))}
        {hits.length === 0 && <li><p class="quiet">{search ? `No host matches ${search}.` : "No host is that far over the median in this step."}</p></li>}
      </ul>
    </Panel>
  );
}

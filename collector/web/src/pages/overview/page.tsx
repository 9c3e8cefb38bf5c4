/** The overview: what bounds a step, the figures it rests on, the steps, what to do first. */
import { useMemo, useState } from "preact/hooks";

import type { Reason } from "../../api/types";
import { AdviceList } from "../../components/advice-list";
import { Bar, KeyValues, NoData, Panel, Segmented, type TileParts, Tiles, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { StackedColumns, StackTable, WithTable } from "../../components/stacked-columns";
import { columnDecimals, count, duration, fixed, flops, percent, plural, text } from "../../format/numbers";
import { type CategoryShare, categoryShares, overviewSteps, topOps, topOpsPlace } from "../../tools/overview";
import { deviation, mean, type StepTable } from "../../tools/steps";
import { doWait, lateHosts } from "../../tools/pod";
import { fieldsOf, numberOf, textOf } from "../../tools/tables";
import { comparisonOfSteps, toolPath } from "../../tools/pages";
import { href, parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";
import { HostsPanel } from "./hosts";
import { hasRequests, InferencePanel, servingVerdict } from "./inference";
import { PerHost } from "./per-host";

/** From this share on a part is said to bound the step. */
const BOUND_RATIO = 0.2;
const BOUND_WORDS: Readonly<Record<string, string>> = {
  compute: "Compute bound.",
  d2d: "Bound by copies between devices.",
  collective: "Collectives bound.",
  host: "Host bound.",
  launch: "Launch bound.",
  input: "Input bound.",
  output: "Output bound.",
  compile: "Compilation in every step.",
  other: "Much of the step is neither compute nor input.",
  idle: "The devices are idle for much of the step.",
};

function useVerdict(props: ToolViewProps, steps: StepTable, shares: readonly CategoryShare[]) {
  const { capture, result } = props;
  const stepMs = mean(steps.rows.map((row) => row.totalMs));
  const late = lateHosts(result)[0];
  const slow = late?.host ?? capture.summary?.slow_host ?? null;
  const to = slow ? href(toolPath(capture.id, "pod_viewer"), { host: slow }) : "";
  // What is not compute comes first: compute is where the time should go.
  const worst = [...shares].filter((share) => share.category.id !== "compute").sort((a, b) => b.ratio - a.ratio)[0];
  const compute = shares.find((share) => share.category.id === "compute");
  const input = shares.find((share) => share.category.id === "input");
  const bound = worst && worst.ratio >= BOUND_RATIO ? worst : compute;
  const ruledOut = [
    input && bound?.category.id !== "input" ? `Input takes ${percent(input.ratio)} of step time.` : "",
    `${plural(steps.rows.length, "complete step")} on ${plural(result.scope.hosts.length, "host")}.`,
  ].join(" ");
  const told = fieldsOf(result.result["bottleneck"]);
  if (textOf(told["classification"]) === "unknown" && !slow) {
    return { tone: "info" as const, clause: "What bounds the steps cannot be told.", sentence: textOf(told["statement"]) ?? "", ruledOut };
  }
  const waits = late === undefined || doWait(result);
  const clause = slow ? `${slow} ${waits ? "holds the others back" : "is slower than the others"}.` : bound ? (BOUND_WORDS[bound.category.id] ?? "") : "Steps measured.";
  const sentence = (
    <>
      {bound ? `${percent(bound.ratio)} of each ${text(duration(stepMs))} step is ${bound.category.label.toLowerCase()}` : `A step takes ${text(duration(stepMs))}`}
      {slow ? <>{waits ? ", and the hosts wait for " : "; "}<a href={to}>{slow}</a>{late?.latenessMs != null && `${waits ? ", which is" : " is"} ${text(duration(late.latenessMs, 3))} late in a typical step`}{late?.latenessMs == null && !waits && " is late"}.</> : "."}
    </>
  );
  return { tone: slow || (bound && bound.category.id !== "compute") ? ("warn" as const) : ("ok" as const), clause, sentence, ruledOut };
}

function tilesOf(props: ToolViewProps, steps: StepTable): TileParts[] {
  const { result, capture, tools } = props;
  const used = fieldsOf(result.result["utilization"]);
  const figure = (name: string): number | null => numberOf(used[name]);
  const stepMs = numberOf(fieldsOf(result.result["step_time_ms"])["average"]) ?? (steps.rows.length > 0 ? mean(steps.rows.map((row) => row.totalMs)) : null);
  const device = textOf(fieldsOf(result.result["run_environment"])["device_type"]) ?? "";
  const noDevice = /^cpu$/i.test(device) ? "a CPU run has no device trace" : "the tracer does not say it";
  const share = (label: string, name: string, absent: string, context = ""): TileParts => {
    const value = figure(name);
    return { label, value: value === null ? null : { value: fixed(value * 100, 1), unit: "%" }, absent, context };
  };
  const [rate, peak] = [figure("flops_per_second"), figure("peak_flops_per_second")];
  const ofPeak = rate === null ? "" : peak === null ? text(flops(rate)) : `${text(flops(rate))} of ${text(flops(peak))}`;
  const wide = figure("compute_32bit_ratio");
  const idle = figure("device_idle_ratio");
  const spread = deviation(steps.rows.map((row) => row.totalMs));
  const hasPod = tools.some((tool) => tool.name === "pod_viewer");
  return [
    {
      label: "Step time, mean",
      value: stepMs === null ? null : duration(stepMs),
      absent: "no steps",
      context: steps.rows.length > 0 ? `σ ${text(duration(spread, 3))} over ${plural(steps.rows.length, "step")}` : "",
      ...(hasPod ? { to: toolPath(capture.id, "pod_viewer") } : {}),
    },
    share("FLOPS utilisation", "flops_utilization_ratio", noDevice, ofPeak),
    share("Device duty cycle", "duty_cycle_ratio", noDevice, idle === null ? "" : `idle ${percent(idle)}`),
    figure("hbm_utilization_ratio") === null
      ? share("Memory bandwidth", "memory_bandwidth_ratio", noDevice, "of the hardware's limit, by the operations")
      : share("HBM bandwidth", "hbm_utilization_ratio", noDevice, "of the hardware's limit"),
    figure("compute_16bit_ratio") === null
      ? share("Program efficiency", "program_efficiency_ratio", noDevice, "time needed at peak rates, of the time taken")
      : share("16-bit compute", "compute_16bit_ratio", noDevice, wide === null ? "" : `${percent(wide)} in 32-bit`),
    share("Host idle", "host_idle_ratio", "no framework op on the hosts"),
  ];
}

export function OverviewPage(props: ToolViewProps) {
  const { result, capture } = props;
  const { steps, cut } = useMemo(() => overviewSteps(result), [result]);
  const shares = categoryShares(steps);
  const verdict = useVerdict(props, steps, shares);
  const hasSteps = steps.rows.length > 0;
  const why: Reason | undefined = result.reasons[0];
  return (
    <>
      {hasSteps ? <Verdict {...verdict} /> : hasRequests(result) ? <Verdict tone="info" {...servingVerdict(result)} /> : <Verdict tone="info" clause={why ? why.message : "No steps in this capture."} sentence={why?.advice} />}
      <Tiles tiles={tilesOf(props, steps)} />
      <div class="columns">
        <div class="stack">
          {hasSteps && <StepPanel capture={capture.id} steps={steps} cut={cut} shares={shares} hosts={result.scope.hosts.length} />}
          {(!hasSteps || hasRequests(result)) && <InferencePanel result={result} capture={capture.id} />}
          <TopOps {...props} />
          <HostsPanel result={result} capture={capture} />
        </div>
        <div class="stack">
          <WhatToDo {...props} />
          <PerHost {...props} />
          <Panel title="Run environment"><KeyValues rows={environment(props)} /></Panel>
        </div>
      </div>
    </>
  );
}

function StepPanel({ capture, steps, cut, shares, hosts }: { capture: string; steps: StepTable; cut: number; shares: readonly CategoryShare[]; hosts: number }) {
  const [dimmed, setDimmed] = useState<string | null>(null);
  const [isolated, setIsolated] = useState<string | null>(null);
  const unit = parameter("unit") === "share" ? "share" : "ms";
  const selected = parameter("step");
  const totals = steps.rows.map((row) => row.totalMs);
  const average = mean(totals);
  const decimals = columnDecimals(totals);
  const columns = steps.rows.map((row) => {
    const scale = unit === "share" && row.totalMs > 0 ? 100 / row.totalMs : 1;
    return {
      key: row.step,
      label: row.step,
      total: row.totalMs * scale,
      parts: new Map([...row.parts].filter(([id]) => isolated === null || id === isolated).map(([id, ms]) => [id, ms * scale])),
    };
  });
  const categories = isolated === null ? steps.categories : steps.categories.filter((category) => category.id === isolated);
  const longest = steps.rows.reduce((a, b) => (b.totalMs > a.totalMs ? b : a));
  const odd = longest.totalMs > average + 3 * deviation(totals) && unit === "ms";
  const unitWord = unit === "share" ? "%" : "ms";
  const comparable = comparisonOfSteps(capture, steps.rows.map((row) => row.step), selected);
  return (
    <Panel
      title="Step time by category"
      subtitle={`${unit === "share" ? "% of the step" : "ms"}${hosts > 1 ? `, the longest of ${plural(hosts, "host")}` : ""}${cut > 0 ? `; ${plural(cut, "step")} cut by the capture's ends left out` : ""}`}
      tools={
        <>
          <Segmented label="Unit" options={[["ms", "ms"], ["share", "share"]]} value={unit} onChange={(value) => setQuery({ unit: value === "share" ? "share" : null })} />
          {comparable && <a href={comparable}>{selected === null ? "Compare halves →" : `Compare with those before step ${selected} →`}</a>}
          <CsvButton
            label="Steps as CSV"
            file="overview_page-steps"
            header={["step", "total_ms", ...steps.categories.map((c) => `${c.id}_ms`)]}
            rows={() => steps.rows.map((row) => [row.step, row.totalMs, ...steps.categories.map((c) => row.parts.get(c.id) ?? 0)])}
          />
        </>
      }
    >
      <div class="step-panel">
        <WithTable label="step time by category" table={() => <StackTable columns={columns} categories={categories} first="Step" unit={unitWord} />}>
          <StackedColumns
            columns={columns}
            categories={categories}
            unit={unitWord}
            sentence={`Step time by category over ${plural(steps.rows.length, "step")}, mean ${text(duration(average))}, longest ${text(duration(longest.totalMs))} in step ${longest.step}.`}
            caption="Step number"
            selected={selected}
            onSelect={(key) => setQuery({ step: key === selected ? null : key })}
            marked={odd && longest.step !== selected ? { key: longest.step, label: fixed(longest.totalMs, decimals) } : null}
            line={unit === "ms" && isolated === null ? { value: average, label: `mean ${fixed(average, decimals)}` } : null}
            dimmed={dimmed}
          />
        </WithTable>
        <table class="legend">
          <thead>
            <tr>
              <th scope="col">Category</th>
              <th scope="col" class="num">Mean <small>ms</small></th>
              <th scope="col" class="num">σ <small>ms</small></th>
              <th scope="col" class="num">Share</th>
            </tr>
          </thead>
          <tbody>
            {shares.map(({ category, meanMs, deviationMs, ratio }) => (
              <tr
                key={category.id}
                onPointerEnter={() => setDimmed(category.id)}
                onPointerLeave={() => setDimmed(null)}
                aria-selected={isolated === category.id}
              >
                <td>
                  <button type="button" aria-pressed={isolated === category.id} onClick={() => setIsolated(isolated === category.id ? null : category.id)}>
                    <i class={`swatch cat-${category.id}`} />{category.label}
                  </button>
                </td>
                <td class="num" data-category={category.id}>{fixed(meanMs, decimals)}</td>
                <td class="num quiet">{fixed(deviationMs, decimals)}</td>
                <td class="num">{percent(ratio)}</td>
              </tr>
            ))}
            <tr class="strong">
              <td>Step time</td>
              <td class="num" data-testid="step-mean">{fixed(average, decimals)}</td>
              <td class="num quiet">{fixed(deviation(totals), decimals)}</td>
              <td class="num">100%</td>
            </tr>
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function TopOps({ result, capture }: ToolViewProps) {
  const ops = topOps(result);
  const to = toolPath(capture.id, "framework_op_stats");
  const largest = ops[0]?.selfRatio ?? 1;
  const covered = ops.at(-1)?.cumulativeRatio;
  const hasFlops = ops.some((op) => op.flopsPerSecond !== null && op.flopsPerSecond > 0);
  const hasTensorCores = ops.some((op) => op.tensorCores !== null);
  // On a CPU run the compiled programs' operations ran on threads of the hosts.
  const [kind, whose] = topOpsPlace(result) === "host_execution" ? ["host", "the host threads'"] : ["device", "device"];
  return (
    <Panel title={ops.length > 0 ? `Top ${ops.length} ${kind} ops` : `Top ${kind} ops`} subtitle={covered != null ? `cover ${percent(covered)} of ${whose} time` : ""} tools={<a href={to}>Open framework ops →</a>}>
      {ops.length === 0 ? (
        <NoData reasons={[]} fallback="No operation ran on a device in this capture. Framework ops lists what the host did." />
      ) : (
        <div class="table-scroll">
          <table class="data">
            <thead>
              <tr>
                <th scope="col" class="num">#</th>
                <th scope="col">Op</th>
                <th scope="col">Category</th>
                <th scope="col" class="num">Self time <small>of {whose} time</small> ↓</th>
                <th scope="col" class="num">Cumulative</th>
                {hasFlops && <th scope="col" class="num">FLOP rate</th>}
                {hasTensorCores && <th scope="col">Tensor cores</th>}
              </tr>
            </thead>
            <tbody>
              {ops.map((op, i) => (
                <tr key={`${i}-${op.name}`}>
                  <td class="num quiet">{i + 1}</td>
                  <td class="op-name rest"><a class="mono" href={href(to, { q: op.name })} title={op.name}>{op.name}</a></td>
                  <td>{op.category}</td>
                  <td class="num">{op.selfRatio !== null && <span class="with-bar"><Bar ratio={largest > 0 ? op.selfRatio / largest : 0} /><span class="bar-number">{percent(op.selfRatio)}</span></span>}</td>
                  <td class="num quiet">{op.cumulativeRatio !== null && percent(op.cumulativeRatio)}</td>
                  {hasFlops && <td class="num">{op.flopsPerSecond ? text(flops(op.flopsPerSecond)) : <span class="quiet">no FLOPs</span>}</td>}
                  {hasTensorCores && <td>{op.tensorCores === "not used" ? <b>not used</b> : (op.tensorCores ?? <span class="quiet">not eligible</span>)}</td>}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function WhatToDo({ result, capture, tools }: ToolViewProps) {
  return (
    <AdviceList
      title="What to do first"
      advice={result.advice}
      capture={capture.id}
      tools={tools}
      open="overview_page"
      nothing="Nothing stands out: no late host, no part of the step that asks for a change."
    />
  );
}

function environment({ result, capture }: ToolViewProps): [string, string][] {
  const own = fieldsOf(result.result["run_environment"]);
  const counted = (name: string): string | null => ((n) => (n === null ? null : count(n)))(numberOf(own[name]));
  const place = fieldsOf(result.result["op_placement"]);
  const [host, device] = [numberOf(place["host_ratio"]), numberOf(place["device_ratio"])];
  const rows: [string, string | null][] = [
    ["Device", textOf(own["device_type"])],
    ["Cores", counted("device_core_count")],
    ["Hosts, tasks", [counted("host_count"), counted("task_count")].filter((n) => n !== null).join(", ")],
    ["Kind", own["is_training"] === true ? "training" : own["is_training"] === false ? "not known to train" : null],
    ["Steps", counted("step_count")],
    ["Op placement", host !== null && device !== null && host + device > 0 ? `host ${percent(host)}, device ${percent(device)}` : null],
    ["Captured", `${capture.session}, ${capture.steps ? plural(capture.steps, "step") : text(duration(capture.duration_ms))}`],
    ["Asked by", capture.requested_by ? `${capture.requested_by} (${capture.trigger})` : null],
  ];
  return rows.filter((row): row is [string, string] => row[1] !== null && row[1] !== "");
}

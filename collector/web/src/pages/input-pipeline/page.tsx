/** The input pipeline: how long the steps wait for input, who waits, and where the host's time goes. */
import type { Reason } from "../../api/types";
import { AdviceList } from "../../components/advice-list";
import { Bar, NoData, Panel, SearchField, Segmented, type TileParts, Tiles, Verdict, type VerdictParts } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { DataTable, formatSort, parseSort, type TableColumn } from "../../components/data-table";
import { RangeChart } from "../../components/range-chart";
import { StackedColumns, StackTable, WithTable } from "../../components/stacked-columns";
import { columnDecimals, count, duration, durationUnit, fixed, percent, plural, text } from "../../format/numbers";
import { useShortcuts } from "../../keys";
import { coreOfHost, type CoreInput, HIGHLY_BOUND, type InputOp, type InputPipeline, inputPipeline, type InputStage, longestStage, MODERATELY_BOUND, STAGE_WORTH_ADVICE } from "../../tools/input-pipeline";
import { mean } from "../../tools/steps";
import { toolPath } from "../../tools/pages";
import { href, parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

const MANY_ROWS = 12;

/** The analyzer's statement opens with its clause: "The program is HIGHLY input-bound: 36.9% …". */
function verdictOf(pipeline: InputPipeline, why: Reason | undefined): VerdictParts {
  const clauses = {
    host: "Highly input-bound.",
    both: /POTENTIALLY/.test(pipeline.statement) ? "Potentially input-bound." : "Moderately input-bound.",
    device: "Not input-bound.",
    unknown: pipeline.steps.rows.length > 0 ? "Whether the steps wait for input cannot be told." : pipeline.ops.length > 0 ? "The input ran, but no step says how long it was waited for." : (why?.message ?? "No steps in this capture."),
  } as const;
  const tones = { host: "warn", both: "warn", device: "ok", unknown: "info" } as const;
  if (pipeline.classification === "unknown") return { tone: "info", clause: clauses.unknown, sentence: why?.advice ?? pipeline.nextStep };
  const rest = pipeline.statement.replace(/^[^:]*: /, "");
  return {
    tone: tones[pipeline.classification],
    clause: clauses[pipeline.classification],
    sentence: `${rest.charAt(0).toUpperCase()}${rest.slice(1)}`,
    ruledOut: [...pipeline.evidence, pipeline.outputStatement].filter(Boolean).join(" ") || undefined,
  };
}

function tilesOf(pipeline: InputPipeline): TileParts[] {
  const { ratio, stepMs, series, cores, stages } = pipeline;
  const share = (value: number): { value: string; unit: string } => ({ value: fixed(value * 100, 1), unit: "%" });
  const inputMs = pipeline.steps.rows.map((row) => row.parts.get("input") ?? 0);
  const most = [...series].sort((a, b) => b.ratio - a.ratio)[0];
  const core = cores[0];
  const hostUs = (stages ?? []).reduce((sum, stage) => sum + stage.us, 0);
  const worst = longestStage(stages);
  // Steps of which nothing else was recorded have no input to show, and not 0 of it.
  const isKnown = pipeline.classification !== "unknown";
  const absent = isKnown || !stepMs ? "no steps" : "not recorded";
  return [
    {
      label: "Waiting for input, mean",
      value: ratio && share(ratio.average),
      absent,
      context: ratio ? `of a step, σ ${fixed(ratio.deviation * 100, 1)} points` : "",
    },
    { label: "Input of a step, mean", value: isKnown && inputMs.length > 0 ? duration(mean(inputMs)) : null, absent, context: "on the host with the longest step" },
    {
      label: "Step time, mean",
      value: stepMs && duration(stepMs.average),
      absent: "no steps",
      context: stepMs ? `σ ${text(duration(stepMs.deviation, 3))}, ${text(duration(stepMs.least, 3))} to ${text(duration(stepMs.most, 3))}` : "",
    },
    { label: "Step that waits most", value: isKnown && most ? share(most.ratio) : null, absent, context: isKnown && most ? `step ${most.step}` : "" },
    {
      label: pipeline.hasCores ? "Core that waits most" : "Host that waits most",
      value: isKnown && core ? share(core.ratio) : null,
      absent,
      context: isKnown && core ? `${core.core || core.host}, ${percent(core.leastRatio)} to ${percent(core.mostRatio)}` : "",
    },
    {
      label: "Input work of the hosts",
      value: stages && hostUs > 0 ? duration(hostUs / 1e3) : null,
      absent: "no input op recorded",
      context: worst ? `${percent(worst.ratio)} ${worst.label.toLowerCase()}` : "",
    },
  ];
}

export function InputPipelinePage({ result, capture, tools }: ToolViewProps) {
  const pipeline = inputPipeline(result);
  const steps = pipeline.series.map((one) => one.step);
  const at = steps.indexOf(parameter("step") ?? "");
  const go = (by: number): void => {
    const next = steps[at < 0 ? (by > 0 ? 0 : steps.length - 1) : at + by];
    if (next !== undefined) setQuery({ step: next });
  };
  useShortcuts(
    [
      { keys: "arrowleft", what: "Previous step", run: () => go(-1), scope: "this page" },
      { keys: "arrowright", what: "Next step", run: () => go(1), scope: "this page" },
    ],
    [at, steps.length],
  );
  if (result.status === "empty") {
    return <section class="panel"><NoData reasons={result.reasons} fallback="Neither steps nor operations of an input pipeline were recorded." /></section>;
  }
  const noSteps = result.reasons.find((reason) => /step/.test(reason.code));
  return (
    <>
      <Verdict {...verdictOf(pipeline, noSteps)} />
      <Tiles tiles={tilesOf(pipeline)} />
      <div class="columns">
        <div class="stack">
          {steps.length > 0 ? <SeriesPanel pipeline={pipeline} hosts={result.scope.hosts.length} /> : (
            <Panel title="Step time and waiting for input"><NoData reasons={noSteps ? [noSteps] : []} fallback="No step was recorded from begin to end: capture for longer." /></Panel>
          )}
          <OpsPanel pipeline={pipeline} reasons={result.reasons} />
          {pipeline.cores.length > 0 && <CoresPanel pipeline={pipeline} />}
        </div>
        <div class="stack">
          <StagesPanel stages={pipeline.stages} reasons={result.reasons} />
          <NextPanel pipeline={pipeline} capture={capture.id} hasTfData={tools.some((tool) => tool.name === "tf_data_bottleneck_analysis" && tool.status === "ok")} />
          {result.advice.length > 0 && <AdviceList title="What the rules say" advice={result.advice} capture={capture.id} tools={tools} open="input_pipeline_analyzer" />}
        </div>
      </div>
    </>
  );
}

function SeriesPanel({ pipeline, hosts }: { pipeline: InputPipeline; hosts: number }) {
  const unit = parameter("unit") === "share" ? "share" : "ms";
  const selected = parameter("step");
  const { steps, series } = pipeline;
  const totals = steps.rows.map((row) => row.totalMs);
  const average = mean(totals);
  const columns = steps.rows.map((row) => {
    const scale = unit === "share" && row.totalMs > 0 ? 100 / row.totalMs : 1;
    return { key: row.step, label: row.step, title: `Step ${row.step}${hosts > 1 ? `, ${row.host ?? ""}` : ""}`, total: row.totalMs * scale, parts: new Map([...row.parts].map(([id, ms]) => [id, ms * scale])) };
  });
  const unitWord = unit === "share" ? "%" : "ms";
  const select = (key: string): void => setQuery({ step: key === selected ? null : key });
  const whole = pipeline.ratio?.average ?? mean(series.map((one) => one.ratio));
  const isRange = series.some((one) => one.most > one.least);
  const who = pipeline.hasCores ? "cores" : "hosts";
  const rows = (): (string | number)[][] => series.map((one, i) => [one.step, totals[i] ?? 0, ...steps.categories.map((c) => steps.rows[i]?.parts.get(c.id) ?? 0), one.ratio, one.least, one.most, one.longest]);
  return (
    <Panel
      title="Step time and waiting for input"
      subtitle={`${unit === "share" ? "% of the step" : "ms"}${hosts > 1 ? `, the longest of ${plural(hosts, "host")}` : ""}`}
      tools={
        <>
          <span class="legend-line">{steps.categories.map((category) => <span key={category.id}><i class={`swatch cat-${category.id}`} />{category.short}</span>)}</span>
          <Segmented label="Unit" options={[["ms", "ms"], ["share", "share"]]} value={unit} onChange={(value) => setQuery({ unit: value === "share" ? "share" : null })} />
          <CsvButton label="Steps as CSV" file="input_pipeline_analyzer-series" header={["step", "step_time_ms", ...steps.categories.map((c) => `${c.id}_ms`), "input_ratio", "least_input_ratio", "most_input_ratio", "waits_longest"]} rows={rows} />
        </>
      }
    >
      <div class="chart-pad">
        <WithTable label="step time and waiting for input" table={() => <StackTable columns={columns} categories={steps.categories} first="Step" unit={unitWord} />}>
          <StackedColumns
            columns={columns}
            categories={steps.categories}
            unit={unitWord}
            height={250}
            sentence={`Step time over ${plural(steps.rows.length, "step")}, mean ${text(duration(average))}, of which ${percent(whole)} waits for input.`}
            selected={selected}
            onSelect={select}
            line={unit === "ms" ? { value: average, label: `mean ${text(duration(average))}` } : null}
          />
        </WithTable>
        <h3 class="chart-title">Waiting for input <small>% of the step{isRange ? `; mean of the ${who}, and their range` : ""}</small></h3>
        <WithTable
          label="share of input by step"
          table={() => (
            <table class="data">
              <thead><tr><th scope="col">Step</th><th scope="col" class="num">Mean</th><th scope="col" class="num">Least</th><th scope="col" class="num">Most</th><th scope="col">Waits longest</th></tr></thead>
              <tbody>
                {series.map((one) => (
                  <tr key={one.step}><th scope="row">{one.step}</th><td class="num">{percent(one.ratio)}</td><td class="num">{percent(one.least)}</td><td class="num">{percent(one.most)}</td><td>{one.longest}</td></tr>
                ))}
              </tbody>
            </table>
          )}
        >
          <RangeChart
            points={series.map((one) => ({ key: one.step, value: one.ratio, least: one.least, most: one.most, title: one.longest }))}
            thresholds={[{ value: HIGHLY_BOUND, label: "highly bound from 20%" }, { value: MODERATELY_BOUND, label: "moderately from 5%" }]}
            sentence={`Waiting for input in ${plural(series.length, "step")}: mean ${percent(whole)}, from ${percent(Math.min(...series.map((one) => one.least)))} to ${percent(Math.max(...series.map((one) => one.most)))}.`}
            caption="Step number"
            selected={selected}
            onSelect={select}
          />
        </WithTable>
      </div>
    </Panel>
  );
}

function StagesPanel({ stages, reasons }: { stages: readonly InputStage[] | null; reasons: readonly Reason[] }) {
  const total = (stages ?? []).reduce((sum, stage) => sum + stage.us, 0);
  if (!stages || total === 0) {
    return <Panel title="Where the hosts' input time goes"><NoData reasons={reasons.filter((reason) => reason.code === "no_host_ops")} fallback="No operation of an input pipeline was recorded." /></Panel>;
  }
  const { unit, factor } = durationUnit(Math.max(...stages.map((stage) => stage.us)) / 1e3);
  const decimals = columnDecimals(stages.map((stage) => stage.us / 1e3 / factor));
  const sentence = stages.filter((stage) => stage.us > 0).map((stage) => `${stage.label} ${percent(stage.ratio)}`).join(", ");
  let before = 0;
  return (
    <Panel title="Where the hosts' input time goes" subtitle={text(duration(total / 1e3))}>
      <div class="stage-part" data-testid="stages">
        <svg class="stage-bar" role="img" aria-label={`Input time of the hosts: ${sentence}.`} viewBox="0 0 1000 22" preserveAspectRatio="none">
          {stages.map((stage) => {
            const from = before;
            before += stage.ratio * 1000;
            return stage.us > 0 && <rect key={stage.id} class={`stage-${stage.id}`} x={from} width={Math.max(stage.ratio * 1000 - 2, 1)} y="0" height="22"><title>{`${stage.label}, ${percent(stage.ratio)}`}</title></rect>;
          })}
        </svg>
        <table class="legend">
          <thead><tr><th scope="col">From the source to the device</th><th scope="col" class="num">Time <small>{unit}</small></th><th scope="col" class="num">Share</th></tr></thead>
          <tbody>
            {stages.map((stage) => (
              <tr key={stage.id} data-stage={stage.id}>
                <td><i class={`swatch stage-${stage.id}`} />{stage.label}</td>
                <td class="num">{fixed(stage.us / 1e3 / factor, decimals)}</td>
                <td class="num">{percent(stage.ratio)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function NextPanel({ pipeline, capture, hasTfData }: { pipeline: InputPipeline; capture: string; hasTfData: boolean }) {
  const isBound = pipeline.classification === "host" || pipeline.classification === "both";
  const worth = isBound ? [...(pipeline.stages ?? [])].filter((stage) => stage.ratio >= STAGE_WORTH_ADVICE).sort((a, b) => b.us - a.us) : [];
  const core = pipeline.cores[0];
  const uneven = core && pipeline.evidence.some((said) => said.includes(" waits for input in ")) ? core : null;
  return (
    <Panel title="What to do next">
      <ul class="advice">
        {uneven && (
          <li>
            <p class="advice-title">Look at {uneven.host} first</p>
            <p>It waits longer than the others: its source, its disk or its loaders. <a href={href(toolPath(capture, "pod_viewer"), { host: uneven.host })}>Pod viewer{"\u00a0"}→</a></p>
          </li>
        )}
        {worth.map((stage) => (
          <li key={stage.id}>
            <p class="advice-title">{stage.label}<span>{percent(stage.ratio)}</span></p>
            <p>{stage.action}</p>
          </li>
        ))}
        <li>
          <p>{pipeline.nextStep || "Annotate the steps, so that waiting can be told from working."}</p>
          {hasTfData && isBound && <p><a href={toolPath(capture, "tf_data_bottleneck_analysis")}>Which stage the loaders wait for{"\u00a0"}→</a></p>}
        </li>
        {pipeline.warnings.map((said) => <li key={said}><p class="quiet">{said}</p></li>)}
      </ul>
    </Panel>
  );
}

const opColumns = (ops: readonly InputOp[]): TableColumn<InputOp>[] => {
  const decimals = columnDecimals(ops.map((op) => op.ms));
  const most = Math.max(...ops.map((op) => op.selfRatio), 1e-12);
  return [
    { id: "operation", label: "Operation", value: (op) => op.name, cell: (op) => <span class="mono" title={op.name}>{op.name}</span>, class: "rest" },
    { id: "count", label: "Count", numeric: true, value: (op) => op.count, cell: (op) => count(op.count) },
    { id: "time_ms", label: "Total", unit: "ms", numeric: true, value: (op) => op.ms, cell: (op) => fixed(op.ms, decimals) },
    { id: "time_ratio", label: "Total, share", numeric: true, title: "Of the self time of all input operations; what is nested counts more than once.", value: (op) => op.ratio, cell: (op) => percent(op.ratio) },
    { id: "self_time_ms", label: "Self", unit: "ms", numeric: true, value: (op) => op.selfMs, cell: (op) => fixed(op.selfMs, decimals) },
    { id: "self_time_ratio", label: "Self, share", numeric: true, value: (op) => op.selfRatio, cell: (op) => <span class="with-bar"><Bar ratio={op.selfRatio / most} /><span class="bar-number">{percent(op.selfRatio)}</span></span> },
    { id: "category", label: "What it does", value: (op) => op.stage, class: "bounded" },
  ];
};

function OpsPanel({ pipeline, reasons }: { pipeline: InputPipeline; reasons: readonly Reason[] }) {
  const query = parameter("q") ?? "";
  const wanted = query.toLowerCase();
  const ops = wanted ? pipeline.ops.filter((op) => `${op.name} ${op.stage}`.toLowerCase().includes(wanted)) : pipeline.ops;
  const columns = opColumns(pipeline.ops);
  if (pipeline.ops.length === 0) {
    return <Panel title="Input operations"><NoData reasons={reasons.filter((reason) => reason.code === "no_host_ops")} fallback="No operation of an input pipeline was recorded." /></Panel>;
  }
  return (
    <Panel
      title="Input operations"
      subtitle={`${plural(pipeline.ops.length, "operation")} on the hosts' threads`}
      tools={
        <>
          {pipeline.ops.length > MANY_ROWS && <SearchField label="Find an operation" value={query} onInput={(q) => setQuery({ q: q || null }, "replace")} />}
          <CsvButton file="input_pipeline_analyzer-host_ops" header={columns.map((column) => column.id)} rows={() => ops.map((op) => columns.map((column) => column.value(op)))} />
        </>
      }
    >
      <DataTable<InputOp>
        label="Input operations"
        columns={columns}
        rows={ops}
        rowKey={(op) => `${op.name}\n${op.stage}`}
        sort={parseSort(parameter("sort") ?? "-self_time_ms")}
        onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
        empty={`No operation matches ${query}.`}
      />
    </Panel>
  );
}

const coreColumns = (pipeline: InputPipeline): TableColumn<CoreInput>[] => {
  const decimals = columnDecimals(pipeline.cores.map((core) => core.mostMs));
  const most = Math.max(...pipeline.cores.map((core) => core.mostRatio), 1e-12);
  const ms = (id: string, label: string, of: (core: CoreInput) => number): TableColumn<CoreInput> => ({ id, label, unit: "ms", numeric: true, value: of, cell: (core) => fixed(of(core), decimals) });
  return [
    { id: "host", label: "Host", value: (core) => core.host },
    ...(pipeline.hasCores ? [{ id: "core", label: "Core", value: (core: CoreInput) => core.core, cell: (core: CoreInput) => <span title={core.core}>{coreOfHost(core)}</span> }] : []),
    { id: "input_ratio", label: "Waiting for input", numeric: true, value: (core) => core.ratio, cell: (core) => <span class="with-bar"><Range least={core.leastRatio / most} value={core.ratio / most} most={core.mostRatio / most} /><span class="bar-number">{percent(core.ratio)}</span></span> },
    { id: "least_input_ratio", label: "Least", numeric: true, value: (core) => core.leastRatio, cell: (core) => percent(core.leastRatio) },
    { id: "most_input_ratio", label: "Most", numeric: true, value: (core) => core.mostRatio, cell: (core) => percent(core.mostRatio) },
    ms("step_time_ms", "Step time", (core) => core.stepMs),
    ms("step_time_deviation_ms", "σ", (core) => core.deviationMs),
    ms("least_step_time_ms", "Shortest", (core) => core.leastMs),
    ms("most_step_time_ms", "Longest", (core) => core.mostMs),
    { id: "step_count", label: "Steps", numeric: true, value: (core) => core.steps, cell: (core) => count(core.steps) },
  ];
};

const RANGE = 72;

/** From the least to the most of the steps, the mean marked. */
function Range({ least, value, most }: { least: number; value: number; most: number }) {
  return (
    <svg class="range-bar" width={RANGE} height="12" aria-hidden="true">
      <rect class="ground" width={RANGE} height="12" rx="2" />
      <rect class="span" x={least * RANGE} width={Math.max((most - least) * RANGE, 2)} y="3" height="6" rx="2" />
      <rect class="mark" x={Math.min(value * RANGE, RANGE - 2)} width="2" height="12" />
    </svg>
  );
}

function CoresPanel({ pipeline }: { pipeline: InputPipeline }) {
  const columns = coreColumns(pipeline);
  const listed = pipeline.cores.length;
  const what = pipeline.hasCores ? "core" : "host";
  const chosen = parameter("host");
  return (
    <Panel
      title={pipeline.hasCores ? "By core" : "By host"}
      subtitle={`${plural(pipeline.coreCount, what)}${listed < pipeline.coreCount ? `, the ${count(listed)} that wait longest` : ""}; the bar spans the steps`}
      tools={<CsvButton file="input_pipeline_analyzer-cores" header={columns.map((column) => column.id)} rows={() => pipeline.cores.map((core) => columns.map((column) => column.value(core)))} />}
    >
      <DataTable<CoreInput>
        label={pipeline.hasCores ? "Cores" : "Hosts"}
        columns={columns}
        rows={pipeline.cores}
        rowKey={(core) => core.key}
        selected={pipeline.hasCores ? null : (pipeline.cores.find((core) => core.host === chosen)?.key ?? null)}
        sort={parseSort(parameter("cores") ?? "-input_ratio")}
        onSort={(keys) => setQuery({ cores: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

/** Inference: how long requests take and why, how full the batches are, and the requests themselves. */
import type { Cell, Table } from "../../api/types";
import { KeyValues, NoData, Panel, Segmented, type TileParts, Tiles, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { DataTable, formatSort, parseSort } from "../../components/data-table";
import { resultColumns } from "../../components/result-columns";
import { StackedColumns, StackTable, WithTable } from "../../components/stacked-columns";
import { columnDecimals, duration, durationUnit, fixed, percent, plural, significant, text } from "../../format/numbers";
import { longestPart, type Model, models, ofModel, type Percentile, REQUEST_PARTS, REST } from "../../tools/inference";
import { fieldsOf } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

type Row = readonly Cell[];

const ALL = "all requests";
/** From this share of the median on, the slow end is worth a word. */
const TAIL = 2;

const at = (model: Model, percentile: number): Percentile | undefined => model.percentiles.find((one) => one.percentile === percentile);

function verdictOf(model: Model) {
  const [median, slow] = [at(model, 50), at(model, 99)];
  if (!median || !slow) return { tone: "info" as const, clause: "No request took any time." };
  const part = longestPart(slow);
  const ratio = median.latencyMs > 0 ? slow.latencyMs / median.latencyMs : 1;
  const filled = model.efficiency === null ? "" : ` Batches are ${percent(model.efficiency)} full.`;
  return {
    tone: ratio >= TAIL ? ("warn" as const) : ("ok" as const),
    clause: ratio >= TAIL ? `One request in a hundred takes ${significant(ratio, 2)} times the median.` : "Slow requests take little longer than the median.",
    sentence: `Half are answered in ${text(duration(median.latencyMs))}, 99% in ${text(duration(slow.latencyMs))}${part ? `; ${percent(part.ratio)} of that is ${part.category.label.toLowerCase()}` : ""}.`,
    ruledOut: `${plural(model.requests, "request")}${model.perSecond === null ? "" : `, ${significant(model.perSecond, 3)} a second`}.${filled}`,
  };
}

function tilesOf(model: Model): TileParts[] {
  const time = (label: string, ms: number | null | undefined, context = ""): TileParts => ({ label, value: ms == null ? null : duration(ms), absent: "no requests", context });
  const rate = (label: string, value: number | null, context: string, absent: string): TileParts => ({ label, value: value === null ? null : { value: significant(value, 3), unit: "/s" }, absent, context });
  return [
    rate("Requests", model.perSecond, plural(model.requests, "request"), "all at one moment"),
    time("Latency, mean", model.averageMs),
    time("Latency, median", at(model, 50)?.latencyMs),
    time("Latency, 99%", at(model, 99)?.latencyMs, `longest ${text(duration(at(model, 100)?.latencyMs ?? 0))}`),
    rate("Batches", model.batches > 0 ? model.batchesPerSecond : null, plural(model.batches, "batch", "batches"), "no batching"),
    { label: "Batches without padding", value: model.efficiency === null ? null : { value: fixed(model.efficiency * 100, 1), unit: "%" }, absent: model.batches > 0 ? "padding not recorded" : "no batching" },
  ];
}

export function InferencePage({ result, advice }: ToolViewProps) {
  const every = models(result);
  const wanted = parameter("model");
  const model = every.find((one) => one.name === wanted) ?? every[0];
  if (!model) {
    return <section class="panel"><NoData reasons={result.reasons} fallback="No request was recorded." /></section>;
  }
  const own = fieldsOf(result.result);
  return (
    <>
      <Verdict {...verdictOf(model)} />
      {every.length > 1 && (
        <div class="pod-controls">
          <Combobox label="Model" value={model.name} options={every.map((one) => ({ value: one.name, text: one.name || ALL }))} onChange={(name) => setQuery({ model: name })} />
        </div>
      )}
      <Tiles tiles={tilesOf(model)} />
      {advice}
      <div class="columns">
        <div class="stack">
          <LatencyPanel model={model} isSampled={own["is_sampled"] === true} />
          <ResultTable tool={result.tool} name="requests" title="Requests" subtitle="at percentiles of the latency" table={ofModel(own["requests"], model.name)} sort="-latency_us" />
          <ResultTable tool={result.tool} name="batches" title="Batches" subtitle="at percentiles of the latency" table={ofModel(own["batches"], model.name)} sort="-latency_us" />
          <ResultTable tool={result.tool} name="tensors" title="Tensors brought into another layout" table={ofModel(own["tensors"], model.name)} sort="-p99_us" />
        </div>
        <div class="stack">
          <ResultTable tool={result.tool} name="batch_averages" title="Batches by size" table={bySize(ofModel(own["batch_averages"], model.name))} sort="batch_size" />
          {model.parameters.length > 0 && <Panel title="Batching, as the server was told"><KeyValues rows={model.parameters} /></Panel>}
          {result.reasons.length > 0 && <Panel title="Not recorded"><NoData reasons={result.reasons} fallback="" /></Panel>}
        </div>
      </div>
    </>
  );
}

/** Without the row of all sizes, which the figures above show. */
function bySize(table: Table | null): Table | null {
  return table && { ...table, rows: table.rows.filter((row) => row[0] !== null) };
}

function LatencyPanel({ model, isSampled }: { model: Model; isSampled: boolean }) {
  const unit = parameter("unit") === "share" ? "share" : "ms";
  const scaled = durationUnit(Math.max(...model.percentiles.map((one) => one.latencyMs)));
  const columns = model.percentiles.map((one) => {
    const scale = unit === "share" && one.latencyMs > 0 ? 100 / one.latencyMs : 1 / scaled.factor;
    return { key: one.label, label: one.label, total: one.latencyMs * scale, parts: new Map([...one.parts].map(([id, ms]) => [id, ms * scale])) };
  });
  const occurring = [...REQUEST_PARTS.map(({ category }) => category), REST].filter((category) => model.percentiles.some((one) => (one.parts.get(category.id) ?? 0) > 0));
  const shown = model.percentiles.filter((one) => [50, 99].includes(one.percentile));
  const decimals = columnDecimals(model.percentiles.map((one) => one.latencyMs / scaled.factor));
  const unitWord = unit === "share" ? "%" : scaled.unit;
  return (
    <Panel
      title="Latency by percentile"
      subtitle={`${unit === "share" ? "% of the request" : scaled.unit}, and what the request at that percentile spent it on${isSampled ? "; below the median a sample of many requests" : ""}`}
      tools={<Segmented label="Unit" options={[["ms", scaled.unit], ["share", "share"]]} value={unit} onChange={(value) => setQuery({ unit: value === "share" ? "share" : null })} />}
    >
      <div class="step-panel">
        <WithTable label="latency by percentile" table={() => <StackTable columns={columns} categories={occurring} first="Percentile" unit={unitWord} />}>
          <StackedColumns
            columns={columns}
            categories={occurring}
            unit={unitWord}
            sentence={`Latency of requests${model.name ? ` of ${model.name}` : ""}: ${model.percentiles.map((one) => `${one.label} ${text(duration(one.latencyMs))}`).join(", ")}.`}
            caption="Percentile of the requests"
          />
        </WithTable>
        <table class="legend">
          <thead>
            <tr>
              <th scope="col">Spent on</th>
              {shown.map((one) => <th scope="col" class="num" key={one.label}>{one.label} <small>{scaled.unit}</small></th>)}
            </tr>
          </thead>
          <tbody>
            {occurring.map((category) => (
              <tr key={category.id}>
                <td><i class={`swatch cat-${category.id}`} /> {category.label}</td>
                {shown.map((one) => <td class="num" key={one.label}>{fixed((one.parts.get(category.id) ?? 0) / scaled.factor, decimals)}</td>)}
              </tr>
            ))}
            <tr class="strong">
              <td>Latency</td>
              {shown.map((one) => <td class="num" key={one.label}>{fixed(one.latencyMs / scaled.factor, decimals)}</td>)}
            </tr>
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function ResultTable(props: { tool: string; name: string; title: string; subtitle?: string; table: Table | null; sort: string }) {
  const { table } = props;
  if (!table || table.rows.length === 0) return null;
  // What the capture does not say of any row takes no room.
  const columns = resultColumns(table);
  const sortName = `sort.${props.name}`;
  return (
    <Panel
      title={props.title}
      subtitle={[plural(table.rows.length, "row"), props.subtitle].filter(Boolean).join(", ")}
      tools={
        <CsvButton file={`${props.tool}-${props.name}`} header={table.columns.map((column) => column.id)} rows={() => table.rows} />
      }
    >
      <DataTable<Row>
        label={props.title}
        columns={columns}
        rows={table.rows}
        rowKey={(row) => String(table.rows.indexOf(row))}
        sort={parseSort(parameter(sortName) ?? props.sort)}
        onSort={(keys) => setQuery({ [sortName]: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

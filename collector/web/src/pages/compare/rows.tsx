/** What changed most, of one tool's table. */
import { comparisonUrl } from "../../api/client";
import type { AskedPair, Comparison } from "../../api/types";
import { Badge, NoData, Panel, Segmented } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { DataTable, formatSort, parseSort, type TableColumn } from "../../components/data-table";
import { Icon } from "../../components/icons";
import { change, columnDecimals, count, durationUnit, fixed, memoryUnit, plural, signed } from "../../format/numbers";
import { LISTS_STEPS, type RowChange, rowChanges, rowTables, stepRowChanges } from "../../tools/compare";
import { PLACES, placeOf } from "../../tools/pages";
import { parameter, setQuery } from "../../url";

const BAR = 72;
const NOT_COMPARED = new Set(["graph_viewer", "trace_viewer"]);
const TO_MS: Readonly<Record<string, number>> = { us: 1e-3, ms: 1 };

export function ChangedRows(props: {
  comparison: Comparison | null;
  tool: string;
  pair: AskedPair;
  /** Whether ranges of steps are compared: then the times by step are the rows. */
  asksSteps: boolean;
  why?: string;
}) {
  const { comparison, tool, pair, asksSteps } = props;
  const steps = comparison?.tables["steps"];
  const tables = comparison === null ? [] : asksSteps ? (steps && steps.rows.length > 0 ? [["steps", steps] as const] : []) : rowTables(comparison);
  const name = tables.some(([one]) => one === parameter("table")) ? (parameter("table") as string) : ((tables.find(([one]) => one === "ops") ?? tables[0])?.[0] ?? "");
  const table = tables.find(([one]) => one === name)?.[1];
  const choose = (
    <Combobox
      label="Tool"
      value={tool}
      options={[...PLACES].filter(([one]) => !NOT_COMPARED.has(one) && (!asksSteps || LISTS_STEPS.has(one) || one === tool)).map(([one, place]) => ({ value: one, text: place.title }))}
      onChange={(one) => setQuery({ tool: one, table: null, sort: null })}
    />
  );
  if (!table || !comparison) {
    return (
      <Panel title="What changed most" tools={choose}>
        <NoData reasons={comparison?.reasons ?? []} fallback={props.why ?? `${placeOf(tool).title} lists nothing to compare.`} />
      </Panel>
    );
  }
  const { unit, rows } = asksSteps ? stepRowChanges(table) : rowChanges(table);
  const counts = comparison.summary.tables?.[name];
  const subtitle = counts ? [`${count(counts.matched)} in both`, counts.appeared > 0 && `${count(counts.appeared)} added`, counts.vanished > 0 && `${count(counts.vanished)} removed`].filter(Boolean).join(", ") : plural(rows.length, "row");
  return (
    <Panel
      class="grow"
      title="What changed most"
      subtitle={`${subtitle}; ${comparison.basis === "step" && unit in TO_MS ? "of a step of one core or host" : "of the whole captures"}`}
      tools={
        <>
          {choose}
          {tables.length > 1 && <Segmented label="Table" options={tables.map(([one]) => [one, one.replaceAll("_", " ")] as const)} value={name} onChange={(one) => setQuery({ table: one, sort: null })} />}
          <a class="button bare" download href={comparisonUrl(pair, tool, name)}><Icon name="download" />CSV</a>
        </>
      }
    >
      <DataTable<RowChange>
        label="What changed most"
        columns={columnsOf(unit, rows)}
        rows={rows}
        rowKey={(row) => row.key}
        sort={parseSort(parameter("sort"))}
        onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
        fill
      />
    </Panel>
  );
}

function columnsOf(unit: string, rows: readonly RowChange[]): TableColumn<RowChange>[] {
  const largest = rows.reduce((max, row) => Math.max(max, Math.abs(row.base ?? 0), Math.abs(row.other ?? 0)), 0);
  const widest = rows.reduce((max, row) => Math.max(max, Math.abs(row.change)), 0);
  const ms = TO_MS[unit];
  const scale = ms !== undefined ? { unit: durationUnit(largest * ms).unit, factor: ms / durationUnit(largest * ms).factor } : unit === "bytes" ? { unit: memoryUnit(largest).unit, factor: 1 / memoryUnit(largest).factor } : { unit: unit === "ratio" ? "%" : unit, factor: unit === "ratio" ? 100 : 1 };
  const decimals = columnDecimals([largest * scale.factor]);
  const shown = (value: number | null) => (value === null ? <span class="quiet">none</span> : fixed(value * scale.factor, decimals));
  const hasKind = rows.some((row) => row.kind !== "");
  const hasCount = rows.some((row) => row.baseCount !== null || row.otherCount !== null);
  return [
    {
      id: "name",
      label: "Row",
      width: 230,
      class: "compare-op cut",
      value: (row) => row.name,
      cell: (row) => <span title={`${row.name} ${row.about}`}><span class="mono">{row.name}</span>{row.about && <small>{row.about}</small>}</span>,
    },
    ...(hasKind ? [{ id: "kind", label: "Category", width: 110, value: (row: RowChange) => row.kind, cell: (row: RowChange) => <span class="cut" title={row.kind}>{row.kind}</span> }] : []),
    { id: "base", label: "A", unit: scale.unit, numeric: true, width: 70, value: (row) => row.base, cell: (row) => shown(row.base) },
    { id: "other", label: "B", unit: scale.unit, numeric: true, width: 70, value: (row) => row.other, cell: (row) => shown(row.other) },
    {
      id: "change",
      label: "Δ",
      unit: scale.unit,
      numeric: true,
      width: 146,
      value: (row) => Math.abs(row.change),
      cell: (row) => {
        const long = widest > 0 ? (Math.abs(row.change) / widest) * (BAR / 2) : 0;
        return (
          <span class="change-cell">
            <svg width={BAR} height="12" aria-hidden="true">
              <line class="from" x1={BAR / 2} x2={BAR / 2} y1="0" y2="12" />
              <rect class={row.judgement === "within_noise" ? "change-noise" : row.change > 0 ? "change-worse" : "change-better"} x={row.change > 0 ? BAR / 2 : BAR / 2 - long} y="1" width={long} height="10" rx="1" />
            </svg>
            {row.judgement === "within_noise" ? <span class="quiet" title="Within noise">{signed(row.change * scale.factor, decimals)}</span> : <b title={row.judgement}>{signed(row.change * scale.factor, decimals)}</b>}
          </span>
        );
      },
    },
    {
      id: "ratio",
      label: "Δ %",
      numeric: true,
      width: 98,
      value: (row) => row.ratio,
      cell: (row) => (row.match === "appeared" ? <Badge tone="warn" icon={false}>added</Badge> : row.match === "vanished" ? <Badge tone="ok" icon={false}>removed</Badge> : row.ratio === null ? "" : change(row.ratio)),
    },
    ...(hasCount
      ? [{
          id: "count",
          label: "Count",
          numeric: true,
          width: 92,
          value: (row: RowChange) => row.otherCount,
          cell: (row: RowChange) => (row.baseCount === row.otherCount ? count(row.otherCount ?? 0) : `${count(row.baseCount ?? 0)} → ${count(row.otherCount ?? 0)}`),
        }]
      : []),
  ];
}

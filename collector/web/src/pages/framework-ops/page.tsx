/** All operations of host and device: ranked bars that filter, and the long table. */
import { useMemo } from "preact/hooks";

import type { Cell, Table } from "../../api/types";
import { Bar, NoData, Panel, SearchField, Segmented, Switch, Verdict } from "../../components/basics";
import { DataTable, formatSort, parseSort, sortRows, type TableColumn } from "../../components/data-table";
import { Icon } from "../../components/icons";
import { csv, save } from "../../format/csv";
import { bandwidth, columnDecimals, count, duration, durationUnit, fixed, flops, percent, plural, text } from "../../format/numbers";
import { columnAt, filterOps, isRatio, OPERATION, opTables, rankBy, type Ranked, SELF_TIME, sideOf, TYPE } from "../../tools/framework-ops";
import { msFactor } from "../../tools/steps";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

type Row = readonly Cell[];

/** The row's place says it. */
const HIDDEN = /^rank$/;
const WIDTHS: readonly (readonly [RegExp, number])[] = [
  [OPERATION, 360],
  [TYPE, 150],
  [/^host_or_device$/, 110],
];

export function opColumns(table: Table): TableColumn<Row>[] {
  // The name comes first: it stays in view while the rest scrolls.
  const order = table.columns.map((column, at) => ({ column, at })).sort((a, b) => Number(OPERATION.test(b.column.id)) - Number(OPERATION.test(a.column.id)));
  return order.flatMap(({ column, at }): TableColumn<Row>[] => {
    const values = table.rows.map((row) => row[at] as number | null);
    if (HIDDEN.test(column.id) || values.every((value) => value === null)) return [];
    const numeric = column.type === "number" || column.type === "integer";
    const factor = numeric ? msFactor(column) : null;
    const width = WIDTHS.find(([pattern]) => pattern.test(column.id))?.[1] ?? (numeric ? 132 : 110);
    const shared = { id: column.id, label: column.label, numeric, width, value: (row: Row): Cell => row[at] ?? null };
    if (factor !== null) {
      const largest = values.reduce<number>((max, value) => Math.max(max, Math.abs(value ?? 0)), 0) * factor;
      const unit = durationUnit(largest);
      const decimals = columnDecimals([largest / unit.factor]);
      const label = column.label.replace(/\s*\((us|µs|ms|ps|ns|s)\)$/, "");
      return [{ ...shared, label, unit: unit.unit, cell: (row) => (typeof row[at] === "number" ? fixed(((row[at] as number) * factor) / unit.factor, decimals) : <span class="quiet">none</span>) }];
    }
    if (numeric && isRatio(column)) {
      const bar = /^(device|host|host_execution)_total_self_time/.test(column.id);
      return [
        {
          ...shared,
          width: bar ? 160 : 150,
          cell: (row) => {
            const value = row[at];
            if (typeof value !== "number") return <span class="quiet">none</span>;
            return bar ? <span class="with-bar"><Bar ratio={value} /><span class="bar-number">{percent(value)}</span></span> : percent(value);
          },
        },
      ];
    }
    const rate = column.unit === "flops/s" ? flops : column.unit === "bytes/s" ? bandwidth : null;
    if (rate) {
      return [{ ...shared, width: 120, cell: (row) => (typeof row[at] === "number" ? text(rate(row[at] as number)) : <span class="quiet">{column.unit === "flops/s" ? "no FLOPs" : "none"}</span>) }];
    }
    if (numeric) {
      const decimals = column.type === "integer" ? 0 : columnDecimals(values);
      return [{ ...shared, ...(column.unit ? { unit: column.unit.replaceAll("_", " ") } : {}), cell: (row) => (typeof row[at] === "number" ? fixed(row[at] as number, decimals) : <span class="quiet">none</span>) }];
    }
    const mono = OPERATION.test(column.id);
    return [{ ...shared, class: mono ? "mono" : "", cell: (row) => <span title={String(row[at] ?? "")}>{row[at] === null ? "" : String(row[at])}</span> }];
  });
}

function RankedBars(props: { title: string; rows: readonly Ranked[]; chosen: string; onChoose: (name: string) => void; mono?: boolean }) {
  return (
    <section class="ranked">
      <h2>{props.title}</h2>
      <ol>
        {props.rows.map((row) => (
          <li key={row.name}>
            <button type="button" aria-pressed={props.chosen === row.name} onClick={() => props.onChoose(props.chosen === row.name ? "" : row.name)} title={row.name}>
              <span class={`cut ${props.mono ? "mono" : ""}`}>{row.name}</span>
              <Bar ratio={row.ratio} />
              <span class="num">{percent(row.ratio)}</span>
            </button>
          </li>
        ))}
      </ol>
    </section>
  );
}

export function FrameworkOpsPage({ result }: ToolViewProps) {
  const tables = opTables(result);
  const idle = parameter("idle") === "1";
  const table = idle ? tables.withIdle : (tables.withoutIdle ?? tables.withIdle);
  const side = parameter("side") ?? "";
  const search = parameter("q") ?? "";
  const rows = useMemo(() => (table ? filterOps(table, side, search) : []), [table, side, search]);
  const columns = useMemo(() => (table ? opColumns(table) : []), [table]);
  if (!table || table.rows.length === 0) {
    return <section class="panel"><NoData reasons={result.reasons} fallback="No operation was recorded." /></section>;
  }
  const where = sideOf(table);
  const time = columnAt(table, SELF_TIME);
  const timeColumn = table.columns[time];
  const sum = (of: Table["rows"]): number => of.reduce((total, row) => total + (typeof row[time] === "number" ? (row[time] as number) : 0), 0) * ((timeColumn && msFactor(timeColumn)) ?? 1);
  const device = table.rows.filter((row) => where(row) === "Device");
  const host = table.rows.filter((row) => where(row) === "Host");
  const program = table.rows.filter((row) => where(row) === "Program");
  const [mainSide, main] = device.length > 0 ? (["Device", device] as const) : program.length > 0 ? (["Program", program] as const) : (["Host", host] as const);
  const first = rankBy(table, main, OPERATION, 1)[0];
  const sort = parseSort(parameter("sort") ?? `-${timeColumn?.id ?? ""}`);
  const shownSide = side || mainSide;
  const rankRows = table.rows.filter((row) => where(row) === shownSide);
  const exportCsv = (): void => {
    const sorted = sortRows(rows, columns, sort);
    save(`framework_op_stats${side ? `-${side.toLowerCase()}` : ""}.csv`, csv(table.columns.map((column) => column.id), sorted));
  };
  return (
    <>
      {first && (
        <Verdict
          tone="info"
          clause={`${first.name} takes ${percent(first.ratio)} of the ${mainSide.toLowerCase()}'s self time.`}
          sentence={`${program.length > 0 ? `${plural(program.length, "program op")} on host threads` : plural(device.length, "device op")} in ${text(duration(sum(program.length > 0 ? program : device)))}, ${plural(host.length, "host op")} in ${text(duration(sum(host)))}.`}
          ruledOut={`Times are sums over cores and hosts. ${idle ? "Idle time is a row of its own." : "Idle time is left out."}`}
        />
      )}
      <section class="panel ranked-pair">
        <RankedBars title={`${shownSide} self time by type`} rows={rankBy(table, rankRows, TYPE, 8)} chosen={search} onChoose={(q) => setQuery({ q })} />
        <RankedBars mono title={`${shownSide} self time by operation`} rows={rankBy(table, rankRows, OPERATION, 8)} chosen={search} onChoose={(q) => setQuery({ q })} />
      </section>
      <Panel
        class="grow"
        title="Operations"
        subtitle={`${count(rows.length)} of ${count(table.rows.length)}`}
        tools={
          <>
            <SearchField label="Find an op or a type" value={search} onInput={(q) => setQuery({ q }, "replace")} />
            <Segmented label="Side" options={[["", "all"], program.length > 0 ? ["Program", "program"] : ["Device", "device"], ["Host", "host"]]} value={side} onChange={(value) => setQuery({ side: value })} />
            <Switch label="Idle" on={idle} onChange={(on) => setQuery({ idle: on ? 1 : null })} />
            <button type="button" class="button bare" onClick={exportCsv}><Icon name="download" />CSV</button>
          </>
        }
      >
        <DataTable<Row>
          fill
          label="Operations"
          columns={columns}
          rows={rows}
          rowKey={(row) => String(table.rows.indexOf(row))}
          sort={sort}
          onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
          selected={parameter("sel")}
          onSelect={(row) => setQuery({ sel: String(table.rows.indexOf(row)) }, "replace")}
          empty={
            <>
              No op matches <i>{search}</i>.{" "}
              <button type="button" class="link-button" onClick={() => setQuery({ q: null, side: null })}>Clear the filter</button>
            </>
          }
        />
      </Panel>
    </>
  );
}

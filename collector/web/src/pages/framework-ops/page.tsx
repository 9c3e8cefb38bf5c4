/** All operations of host and device: ranked bars that filter, and the long table. */
import { useMemo } from "preact/hooks";

import type { Cell, Table } from "../../api/types";
import { NoData, Panel, SearchField, Segmented, Switch, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { DataTable, formatSort, parseSort, sortRows, type TableColumn } from "../../components/data-table";
import { RankedBars } from "../../components/ranked-bars";
import { resultColumns } from "../../components/result-columns";
import { count, duration, percent, plural, text } from "../../format/numbers";
import { columnAt, filterOps, OPERATION, opTables, rankBy, SELF_TIME, sharesOf, SIDES, sideOf, TYPE } from "../../tools/framework-ops";
import { msFactor } from "../../tools/steps";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

type Row = readonly Cell[];

const WIDTHS: readonly (readonly [RegExp, number])[] = [
  [OPERATION, 360],
  [TYPE, 150],
];

/** Columns of a table of operations that fills the page; names lead to where ``opens`` says. */
export function opColumns(table: Table, opens?: (row: Row) => string | null): TableColumn<Row>[] {
  return resultColumns(table, {
    names: OPERATION,
    bars: /^(device|host|host_execution)_total_self_time/,
    widths: WIDTHS,
    // The row's place says it.
    hidden: /^rank$/,
    ...(opens ? { opens } : {}),
  });
}

export function FrameworkOpsPage({ result, advice }: ToolViewProps) {
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
  const shownSide = SIDES.find((known) => known === side) ?? mainSide;
  const shares = idle ? tables.sharesWithIdle : tables.sharesWithoutIdle;
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
      {advice}
      <section class="panel ranked-pair">
        <RankedBars title={`${shownSide} self time by type`} rows={sharesOf(shares, shownSide, "type", 8)} chosen={search} onChoose={(q) => setQuery({ q })} />
        <RankedBars mono title={`${shownSide} self time by operation`} rows={sharesOf(shares, shownSide, "operation", 8)} chosen={search} onChoose={(q) => setQuery({ q })} />
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
            <CsvButton file={`framework_op_stats${side ? `-${side.toLowerCase()}` : ""}`} header={table.columns.map((column) => column.id)} rows={() => sortRows(rows, columns, sort)} />
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
      {tables.annotations && tables.annotations.rows.length > 0 && <Annotations table={tables.annotations} />}
    </>
  );
}

function Annotations({ table }: { table: Table }) {
  const sort = parseSort(parameter("annotations") ?? "");
  return (
    <Panel title="Annotations on host threads" subtitle={plural(table.rows.length, "name")}>
      <DataTable<Row>
        label="Annotations"
        columns={opColumns(table)}
        rows={table.rows}
        rowKey={(row) => String(row[0])}
        sort={sort}
        onSort={(keys) => setQuery({ annotations: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

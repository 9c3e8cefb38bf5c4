/** All operations of host and device: ranked bars that filter, and the long table. */
import { useMemo } from "preact/hooks";

import type { Cell, Table } from "../../api/types";
import { Bar, NoData, Panel, SearchField, Segmented, Switch, Verdict } from "../../components/basics";
import { DataTable, formatSort, parseSort, sortRows, type TableColumn } from "../../components/data-table";
import { Icon } from "../../components/icons";
import { RankedBars } from "../../components/ranked-bars";
import { csv, save } from "../../format/csv";
import { bandwidth, columnDecimals, count, duration, durationUnit, fixed, flops, percent, plural, text } from "../../format/numbers";
import { columnAt, filterOps, isRatio, OPERATION, opTables, rankBy, SELF_TIME, sharesOf, SIDES, sideOf, TYPE } from "../../tools/framework-ops";
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

/** Columns of a table of operations; names lead to where ``opens`` says. */
export function opColumns(table: Table, opens?: (row: Row) => string | null): TableColumn<Row>[] {
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
    const shown = (row: Row) => <span title={String(row[at] ?? "")}>{row[at] === null ? "" : String(row[at])}</span>;
    const linked = (row: Row) => {
      const to = opens?.(row) ?? null;
      return to === null ? shown(row) : <a href={to} title={String(row[at] ?? "")}>{String(row[at] ?? "")}</a>;
    };
    return [{ ...shared, class: mono ? "mono" : "", cell: mono ? linked : shown }];
  });
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
  const shownSide = SIDES.find((known) => known === side) ?? mainSide;
  const shares = idle ? tables.sharesWithIdle : tables.sharesWithoutIdle;
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

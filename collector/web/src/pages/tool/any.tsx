/** A tool without a page of its own: its tables as they are, its single fields beside them. */
import { useState } from "preact/hooks";

import type { Cell, Column, Table } from "../../api/types";
import { KeyValues, NoData, Panel, SearchField } from "../../components/basics";
import { DataTable, formatSort, parseSort, type TableColumn } from "../../components/data-table";
import { Icon } from "../../components/icons";
import { csv, save } from "../../format/csv";
import { columnDecimals, count, fixed, percent, plural } from "../../format/numbers";
import { fieldsOf, tablesIn } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "./page";

type Row = readonly Cell[];

const words = (name: string): string => {
  const text = name.replaceAll("_", " ").replaceAll(".", ", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

export function genericColumns(table: Table): TableColumn<Row>[] {
  return table.columns.map((column: Column, at) => {
    const numeric = column.type === "number" || column.type === "integer";
    const decimals = column.type === "number" ? columnDecimals(table.rows.map((row) => row[at] as number | null)) : 0;
    return {
      id: column.id,
      label: column.label,
      numeric,
      ...(column.unit && column.unit !== "ratio" ? { unit: column.unit } : {}),
      class: numeric ? "" : "bounded",
      value: (row) => row[at] ?? null,
      cell: (row) => {
        const value = row[at] ?? null;
        if (value === null) return <span class="quiet">none</span>;
        if (typeof value === "number") return column.unit === "ratio" ? percent(value) : fixed(value, decimals);
        return <span title={String(value)}>{String(value)}</span>;
      },
    };
  });
}

export function AnyToolPage({ result }: ToolViewProps) {
  const tables = tablesIn(result.result);
  const single = Object.entries(fieldsOf(result.result)).filter(
    ([, value]) => ["string", "number", "boolean"].includes(typeof value) && value !== "",
  );
  return (
    <>
      {(result.status === "empty" || result.reasons.length > 0) && (
        <section class="panel"><NoData reasons={result.reasons} fallback="This tool has nothing to show for this capture." /></section>
      )}
      {single.length > 0 && (
        <Panel title="Figures">
          <KeyValues rows={single.map(([key, value]) => [words(key), typeof value === "number" ? (key.endsWith("_ratio") ? percent(value) : Number.isInteger(value) ? count(value) : String(value)) : String(value)])} />
        </Panel>
      )}
      {tables.map(({ path, table }) => <AnyTable key={path} name={path} tool={result.tool} table={table} />)}
    </>
  );
}

export function AnyTable({ name, tool, table }: { name: string; tool: string; table: Table }) {
  const [filter, setFilter] = useState("");
  const sortName = `sort.${name}`;
  const wanted = filter.toLowerCase();
  const rows = wanted ? table.rows.filter((row) => row.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(wanted))) : table.rows;
  return (
    <Panel
      title={words(name)}
      subtitle={plural(rows.length, "row")}
      tools={
        <>
          {table.rows.length > 12 && <SearchField label="Find" value={filter} onInput={setFilter} />}
          <button type="button" class="button bare" onClick={() => save(`${tool}-${name}.csv`, csv(table.columns.map((column) => column.id), rows))}>
            <Icon name="download" />CSV
          </button>
        </>
      }
    >
      <DataTable<Row>
        label={words(name)}
        columns={genericColumns(table)}
        rows={rows}
        rowKey={(row) => String(table.rows.indexOf(row))}
        sort={parseSort(parameter(sortName))}
        onSort={(keys) => setQuery({ [sortName]: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

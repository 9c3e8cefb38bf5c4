/** A tool without a page of its own: its tables as they are, its single fields beside them. */
import { useState } from "preact/hooks";

import type { Cell, Table } from "../../api/types";
import { KeyValues, NoData, Panel, SearchField } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { DataTable, formatSort, parseSort } from "../../components/data-table";
import { resultColumns } from "../../components/result-columns";
import { count, percent, plural } from "../../format/numbers";
import { fieldsOf, tablesIn } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "./page";

type Row = readonly Cell[];

const words = (name: string): string => {
  const text = name.replaceAll("_", " ").replaceAll(".", ", ");
  return text.charAt(0).toUpperCase() + text.slice(1);
};

export function AnyToolPage({ result, advice }: ToolViewProps) {
  // An empty table has nothing to add to the reason that stands above it.
  const tables = tablesIn(result.result).filter(({ table }) => table.rows.length > 0);
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
      {advice}
      {tables.map(({ path, table }) => <AnyTable key={path} name={path} tool={result.tool} table={table} />)}
    </>
  );
}

export function AnyTable({ name, tool, table, hidden }: { name: string; tool: string; table: Table; hidden?: RegExp }) {
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
          <CsvButton file={`${tool}-${name}`} header={table.columns.map((column) => column.id)} rows={() => rows} />
        </>
      }
    >
      <DataTable<Row>
        label={words(name)}
        columns={resultColumns(table, hidden ? { hidden } : {})}
        rows={rows}
        rowKey={(row) => String(table.rows.indexOf(row))}
        sort={parseSort(parameter(sortName))}
        onSort={(keys) => setQuery({ [sortName]: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

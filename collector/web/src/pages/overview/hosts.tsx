/** Where each host ran, and what it recorded. */
import type { Capture, Cell, ToolResult } from "../../api/types";
import { Panel } from "../../components/basics";
import { DataTable, formatSort, parseSort } from "../../components/data-table";
import { resultColumns } from "../../components/result-columns";
import { plural } from "../../format/numbers";
import { isTable, records } from "../../tools/tables";
import { comparisonOfHosts } from "../../tools/pages";
import { parameter, setQuery } from "../../url";

type Row = readonly Cell[];

export function HostsPanel({ result, capture }: { result: ToolResult; capture: Capture }) {
  const table = result.result["hosts"];
  if (!isTable(table) || table.rows.length < 2) return null;
  const isNamedTwice = records(table).every((row) => row["host"] === row["host_name"]);
  const columns = resultColumns(table, isNamedTwice ? { hidden: /^host_name$/ } : {});
  return (
    <Panel title="Hosts" subtitle={plural(table.rows.length, "host")} tools={<a href={comparisonOfHosts(capture, table.rows.map((row) => String(row[0])))}>Compare two hosts →</a>}>
      <DataTable<Row>
        label="Hosts"
        columns={columns}
        rows={table.rows}
        rowKey={(row) => String(row[0])}
        sort={parseSort(parameter("hosts") ?? "host")}
        onSort={(keys) => setQuery({ hosts: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

/** Where each host ran, and what it recorded. */
import type { Cell, ToolResult } from "../../api/types";
import { Panel } from "../../components/basics";
import { DataTable, formatSort, parseSort } from "../../components/data-table";
import { plural } from "../../format/numbers";
import { isTable } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import { genericColumns } from "../tool/any";

type Row = readonly Cell[];

export function HostsPanel({ result }: { result: ToolResult }) {
  const table = result.result["hosts"];
  if (!isTable(table) || table.rows.length < 2) return null;
  const columns = genericColumns(table).filter((_, at) => table.rows.some((row) => row[at] !== null));
  return (
    <Panel title="Hosts" subtitle={plural(table.rows.length, "host")}>
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

/** Who comes late to the collectives, and what tells it: clocks that were measured, or how long each waits. */
import type { ToolResult } from "../../api/types";
import { Panel } from "../../components/basics";
import { DataTable, formatSort, parseSort, type TableColumn } from "../../components/data-table";
import { columnDecimals, duration, fixed, ofTotal, plural, signed, text } from "../../format/numbers";
import { type HostArrival, hostArrivals } from "../../tools/pod";
import { fieldsOf, numberOf } from "../../tools/tables";
import { parameter, setQuery } from "../../url";

export function ArrivalsPanel({ result, host }: { result: ToolResult; host: string | null }) {
  const arrivals = hostArrivals(result);
  if (arrivals.length < 2) return null;
  const decimals = columnDecimals(arrivals.map((one) => one.latenessMs));
  const clocks = fieldsOf(result.result["clocks"]);
  const error = numberOf(clocks["largest_error_us"]);
  const byClock = arrivals.filter((one) => one.errorMs !== null).length;
  const apart = numberOf(clocks["apart_us"]);
  const said =
    error === null
      ? "by how long each waits; the capture measured no clocks"
      : `${ofTotal(byClock, arrivals.length)} by the hosts' clocks, right to within ${text(duration(error / 1e3, 3))}${apart === null ? "" : `; they were ${text(duration(apart / 1e3, 3))} apart`}`;
  const columns: TableColumn<HostArrival>[] = [
    { id: "host", label: "Host", value: (one) => one.host },
    { id: "lateness", label: "Later than the others", unit: "ms", numeric: true, value: (one) => one.latenessMs, cell: (one) => signed(one.latenessMs, decimals) },
    { id: "error", label: "Right to within", unit: "ms", numeric: true, title: "Error of the clocks; none is needed where durations tell the lateness.", value: (one) => one.errorMs, cell: (one) => (one.errorMs === null ? <span class="quiet">no clock needed</span> : fixed(one.errorMs, Math.max(decimals, 2))) },
    { id: "last", label: "Last to arrive", numeric: true, value: (one) => one.last, cell: (one) => `${ofTotal(one.last, one.collectives)}` },
  ];
  return (
    <Panel title="Arrival at the collectives" subtitle={`${plural(arrivals.length, "host")}; ${said}`}>
      <DataTable<HostArrival>
        label="Arrival at the collectives"
        columns={columns}
        rows={arrivals}
        rowKey={(one) => one.host}
        selected={host}
        onSelect={(one) => setQuery({ host: one.host })}
        sort={parseSort(parameter("arrivals") ?? "-lateness")}
        onSort={(keys) => setQuery({ arrivals: formatSort(keys) }, "replace")}
      />
    </Panel>
  );
}

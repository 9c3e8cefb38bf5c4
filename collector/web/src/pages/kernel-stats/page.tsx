/** GPU kernels: which take the time, which leave tensor cores unused, and every launch shape. */
import { useMemo } from "preact/hooks";

import { NoData, Panel, SearchField, Segmented, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { DataTable, formatSort, parseSort, sortRows } from "../../components/data-table";
import { RankedBars } from "../../components/ranked-bars";
import { resultColumns } from "../../components/result-columns";
import { count, duration, percent, plural, text } from "../../format/numbers";
import { rankBy } from "../../tools/framework-ops";
import { byTensorCores, DURATION, filterKernels, KERNEL, KERNEL_OP, type KernelRow, kernelStats, tellsTensorCores, type TensorCores } from "../../tools/kernel-stats";
import { parameter, setQuery } from "../../url";
import { AnyTable } from "../tool/any";
import type { ToolViewProps } from "../tool/page";

const MOST = 8;
const WIDTHS: readonly (readonly [RegExp, number])[] = [
  [KERNEL, 360],
  [KERNEL_OP, 300],
];
const CORES: readonly (readonly [TensorCores, string])[] = [["", "all"], ["used", "tensor cores"], ["unused", "could use them"]];

/** Without its parameters: those are in the list. */
const shortKernel = (name: string): string => name.replace(/^void /, "").replace(/[(<].*$/, "");

export function KernelStatsPage({ result, advice }: ToolViewProps) {
  const stats = useMemo(() => kernelStats(result), [result]);
  const search = parameter("q") ?? "";
  const cores = CORES.find(([id]) => id === parameter("cores"))?.[0] ?? "";
  const rows = useMemo(() => filterKernels(stats, search, cores), [stats, search, cores]);
  const { table } = stats;
  const columns = useMemo(() => (table ? resultColumns(table, { names: KERNEL, early: /^(occurrences|(total|avg)_duration_us)$/, widths: WIDTHS, hidden: /^rank$/ }) : []), [table]);
  if (!table || table.rows.length === 0) return <section class="panel"><NoData reasons={result.reasons} fallback="No kernel of a GPU was recorded." /></section>;
  const total = stats.totalUs(table.rows);
  const names = rankBy(table, table.rows, KERNEL, MOST, DURATION);
  const unused = stats.totalUs(byTensorCores(stats, table.rows, "unused"));
  const used = stats.totalUs(byTensorCores(stats, table.rows, "used"));
  const isTold = tellsTensorCores(stats);
  const untold = stats.totalUs(table.rows.filter((row) => stats.at(row, "is_kernel_using_tensor_core") === null));
  const sort = parseSort(parameter("sort") ?? "-total_duration_us");
  const key = (row: KernelRow): string => String(stats.at(row, "rank"));
  return (
    <>
      <Verdict
        tone={unused > used && unused > 0 ? "warn" : "info"}
        clause={`${shortKernel(names[0]?.name ?? "")} takes ${percent(names[0]?.ratio ?? 0)} of the kernels' time.`}
        sentence={`${plural(table.rows.length, "kernel")} ran for ${text(duration(total / 1000))}${isTold ? `, ${untold > 0 ? "at least " : ""}${percent(total > 0 ? used / total : 0)} of it on tensor cores` : ""}.`}
        ruledOut={untold > 0 && unused === 0 ? `${result.reasons[0]?.message ?? ""} Times are sums over GPUs.` : unused > 0 ? `${percent(unused / total)} of the time is in kernels that leave tensor cores unused although their operation could run there. Times are sums over GPUs.` : "No operation that could use tensor cores leaves them unused. Times are sums over GPUs."}
      />
      {advice}
      <section class="panel ranked-pair">
        <RankedBars mono title="Time by kernel" rows={names} chosen={search} onChoose={(q) => setQuery({ q: q || null })} />
        <RankedBars mono title="Time by operation" rows={rankBy(table, table.rows, KERNEL_OP, MOST, DURATION)} chosen={search} onChoose={(q) => setQuery({ q: q || null })} />
      </section>
      <Panel
        class="grow"
        title="Kernels"
        subtitle={`${count(rows.length)} of ${count(table.rows.length)}`}
        tools={
          <>
            <SearchField label="Find a kernel or an op" value={search} onInput={(q) => setQuery({ q }, "replace")} />
            <Segmented label="Tensor cores" options={CORES} value={cores} onChange={(value) => setQuery({ cores: value || null })} />
            <CsvButton file="kernel_stats-kernels" header={table.columns.map((column) => column.id)} rows={() => sortRows(rows, columns, sort)} />
          </>
        }
      >
        <DataTable<KernelRow>
          fill
          label="Kernels"
          columns={columns}
          rows={rows}
          rowKey={key}
          sort={sort}
          onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
          selected={parameter("sel")}
          onSelect={(row) => setQuery({ sel: key(row) }, "replace")}
          empty={
            <>
              No kernel matches.{" "}
              <button type="button" class="link-button" onClick={() => setQuery({ q: null, cores: null })}>Clear the filter</button>
            </>
          }
        />
      </Panel>
      {stats.operations && stats.operations.rows.length > 0 && <AnyTable name="operations" tool={result.tool} table={stats.operations} />}
    </>
  );
}

/** Every HLO instruction: who takes the time by category, and the long table, of one program or all. */
import { useMemo } from "preact/hooks";

import type { Cell } from "../../api/types";
import { NoData, Panel, SearchField, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { DataTable, formatSort, parseSort, sortRows } from "../../components/data-table";
import { RankedBars } from "../../components/ranked-bars";
import { count, duration, percent, text } from "../../format/numbers";
import { rankBy } from "../../tools/framework-ops";
import { filterInstructions, hloStats } from "../../tools/hlo-stats";
import { instructionPath } from "../../tools/pages";
import { numberOf, textOf } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import { opColumns } from "../framework-ops/page";
import type { ToolViewProps } from "../tool/page";

type Row = readonly Cell[];

const MOST = 8;

export function HloStatsPage({ capture, result, advice }: ToolViewProps) {
  const stats = useMemo(() => hloStats(result), [result]);
  const filter = { program: parameter("program") ?? "", category: parameter("category") ?? "", search: parameter("q") ?? "" };
  const rows = useMemo(() => filterInstructions(stats, filter), [stats, filter.program, filter.category, filter.search]);
  const places = useMemo(() => new Map(stats.table?.rows.map((row, at) => [row, at])), [stats]);
  const host = parameter("host");
  const columns = useMemo(
    () => (stats.table ? opColumns(stats.table, (row) => instructionPath(capture.id, textOf(stats.at(row, "program_id")), textOf(stats.at(row, "hlo_op_name")), host)) : []),
    [stats, capture.id, host],
  );
  const { table } = stats;
  if (!table || table.rows.length === 0) return <section class="panel"><NoData reasons={result.reasons} fallback="No instruction was recorded." /></section>;
  const ofProgram = filterInstructions(stats, { ...filter, category: "", search: "" });
  const self = (of: readonly Row[]): number => of.reduce((sum, row) => sum + (numberOf(stats.at(row, "total_self_time_us")) ?? 0), 0);
  const longest = [...ofProgram].sort((a, b) => self([b]) - self([a]))[0];
  const total = self(ofProgram);
  const sort = parseSort(parameter("sort") ?? "-total_self_time_us");
  const key = (row: Row): string => String(places.get(row) ?? "");
  // What a link names is marked among what else matches.
  const linked = rows.find((row) => stats.at(row, "hlo_op_name") === filter.search.trim());
  const options = (all: string, values: readonly string[]) => [{ value: "", text: all }, ...values.map((value) => ({ value, text: value }))];
  return (
    <>
      {longest && (
        <Verdict
          tone="info"
          clause={`${stats.at(longest, "hlo_op_name") ?? ""} takes ${percent(total > 0 ? self([longest]) / total : 0)} of the instructions' self time.`}
          sentence={`${count(ofProgram.length)} instructions took ${text(duration(total / 1000))} of their own.`}
          ruledOut={stats.at(longest, "place") === "host_execution" ? "Times are sums over host threads." : "Times are sums over cores and hosts; idle time is left out."}
        />
      )}
      {advice}
      <div class="pod-controls">
        {stats.programs.length > 1 && <Combobox label="Program" value={filter.program} options={options("All programs", stats.programs)} onChange={(program) => setQuery({ program: program || null })} />}
        <Combobox label="Category" value={filter.category} options={options("All", stats.categories)} onChange={(category) => setQuery({ category: category || null })} />
        <span class="spring" />
        <SearchField wide label="Instruction, text, framework name or source" value={filter.search} onInput={(q) => setQuery({ q }, "replace")} />
      </div>
      <section class="panel ranked-pair">
        <RankedBars title="Self time by category" rows={rankBy(table, ofProgram, /^category$/, MOST)} chosen={filter.category} onChoose={(category) => setQuery({ category: category || null })} />
        <RankedBars mono title="Self time by instruction" rows={rankBy(table, filterInstructions(stats, { ...filter, search: "" }), /^hlo_op_name$/, MOST)} chosen={filter.search} onChoose={(q) => setQuery({ q: q || null })} />
      </section>
      <Panel
        class="grow"
        title="Instructions"
        subtitle={`${count(rows.length)} of ${count(table.rows.length)}`}
        tools={<CsvButton file="hlo_stats" header={table.columns.map((column) => column.id)} rows={() => sortRows(rows, columns, sort)} />}
      >
        <DataTable<Row>
          fill
          label="Instructions"
          columns={columns}
          rows={rows}
          rowKey={key}
          sort={sort}
          onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
          selected={parameter("sel") ?? (linked ? key(linked) : null)}
          onSelect={(row) => setQuery({ sel: key(row) }, "replace")}
          empty={
            <>
              No instruction matches.{" "}
              <button type="button" class="link-button" onClick={() => setQuery({ q: null, category: null, program: null })}>Clear the filters</button>
            </>
          }
        />
      </Panel>
    </>
  );
}

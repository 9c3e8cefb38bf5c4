/** How near to the device's limits the programs and operations come: the chart, and the table under it. */
import { useMemo } from "preact/hooks";

import type { Cell } from "../../api/types";
import { NoData, Panel, SearchField, Segmented, Switch, Tiles, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { DataTable, formatSort, parseSort, sortRows } from "../../components/data-table";
import { bandwidth, count, flops, percent, significant } from "../../format/numbers";
import { instructionPath } from "../../tools/pages";
import { boundWords, drawable, isWithin, regionOf, regionText, roofline } from "../../tools/roofline";
import { parameter, setQuery } from "../../url";
import { opColumns } from "../framework-ops/page";
import type { ToolViewProps } from "../tool/page";
import { RooflineChart } from "./chart";

export function RooflinePage({ capture, result, advice }: ToolViewProps) {
  const withFeeds = parameter("feeds") !== "0";
  const model = useMemo(() => roofline(result, withFeeds), [result, withFeeds]);
  const host = parameter("host");
  const columns = useMemo(() => {
    if (!model.table) return [];
    const byRow = new Map(model.points.map((point) => [point.row, point]));
    return opColumns(model.table, (row) => {
      const point = byRow.get(row);
      return point?.kind === "op" ? instructionPath(capture.id, point.program, point.name, host) : null;
    });
  }, [model, capture.id, host]);
  const level = parameter("level") === "steps" ? "steps" : "ops";
  const [bound, category, search] = [parameter("bound") ?? "", parameter("category") ?? "", (parameter("q") ?? "").toLowerCase()];
  const program = parameter("program") ?? "";
  const region = regionOf(parameter("area"));
  const ofLevel = model.points.filter((point) => (level === "ops" ? point.kind === "op" : point.kind !== "op"));
  const wanted = ofLevel.filter((point) => (program === "" || point.program === program) && (bound === "" || point.boundBy === bound) && (category === "" || point.category === category) && point.name.toLowerCase().includes(search));
  const points = region ? wanted.filter((point) => isWithin(region, point)) : wanted;
  const total = model.points.find((point) => point.kind === "program");
  if (!model.table || !total) return <section class="panel"><NoData reasons={result.reasons} fallback="No operation of a device was recorded." /></section>;
  const hasSteps = model.points.some((point) => point.kind === "step");
  const longest = [...model.points].filter((point) => point.kind === "op").sort((a, b) => b.selfRatio - a.selfRatio)[0];
  const hbm = model.ceilings.find((ceiling) => ceiling.name === "hbm");
  const sort = parseSort(parameter("sort") ?? "-total_self_time_us");
  const titles = new Map(model.points.flatMap((point) => (point.kind === "program" && point.program !== "0" ? [[point.program, point.name] as const] : [])));
  const programs = [...new Set(ofLevel.map((point) => point.program))].filter((id) => id !== "0" && id !== "").sort();
  const byRow = new Map<readonly Cell[], (typeof points)[number]>(points.map((point) => [point.row, point]));
  const rows = points.map((point) => point.row);
  const distinct = (values: readonly string[]): string[] => [...new Set(values)].sort();
  const options = (all: string, values: readonly string[], words = (value: string) => value) => [{ value: "", text: all }, ...distinct(values).map((value) => ({ value, text: words(value) }))];
  const placed = drawable(wanted).length;
  const without = wanted.length - placed;
  return (
    <>
      <Verdict
        tone="info"
        clause={`All operations together reach ${percent(total.efficiency)} of their roof, bound by ${boundWords(total.boundBy)}.`}
        sentence={longest ? `The longest, ${longest.name} (${percent(longest.selfRatio)} of the time), reaches ${percent(longest.efficiency)}, bound by ${boundWords(longest.boundBy)}.` : ""}
        ruledOut={withFeeds ? "Infeeds and outfeeds count." : "Infeeds and outfeeds are left out."}
      />
      <Tiles
        tiles={[
          { label: "Roofline efficiency", value: { value: significant(total.efficiency * 100, 3), unit: "%" }, context: `bound by ${boundWords(total.boundBy)}` },
          { label: "Rate", value: flops(total.flopsPerSecond), context: "all operations, idle time included" },
          { label: "Intensity", value: { value: significant(total.intensity, 3), unit: "FLOP/byte" }, context: "of what bounds them" },
          { label: "Peak FLOPS", value: model.peakFlops ? flops(model.peakFlops) : null, absent: "the capture does not tell", context: model.deviceType },
          { label: "Peak HBM", value: hbm ? bandwidth(hbm.bytesPerSecond) : null, absent: "the capture does not tell", context: "of one device" },
          { label: "HBM ridge", value: hbm && hbm.ridge > 0 ? { value: significant(hbm.ridge, 3), unit: "FLOP/byte" } : null, absent: "needs both peaks", context: "from there on compute is the limit" },
        ]}
      />
      {advice}
      <div class="pod-controls">
        {hasSteps && <Segmented label="Points" options={[["ops", "Operations"], ["steps", "Program and steps"]]} value={level} onChange={(value) => setQuery({ level: value === "steps" ? value : null })} />}
        <Combobox label="Bound by" value={bound} options={options("All", ofLevel.map((point) => point.boundBy), boundWords)} onChange={(value) => setQuery({ bound: value || null })} />
        <Combobox label="Category" value={category} options={options("All", ofLevel.map((point) => point.category))} onChange={(value) => setQuery({ category: value || null })} />
        {(programs.length > 1 || program !== "") && <Combobox label="Program" value={program} options={[{ value: "", text: "All" }, ...programs.map((id) => ({ value: id, text: titles.get(id) ?? id }))]} onChange={(value) => setQuery({ program: value || null })} />}
        <Switch label="Infeed and outfeed" on={withFeeds} onChange={(on) => setQuery({ feeds: on ? null : 0 })} />
        <span class="spring" />
        <SearchField label="Find an op" value={parameter("q") ?? ""} onInput={(q) => setQuery({ q }, "replace")} />
      </div>
      <Panel
        title="Roofline"
        subtitle={without > 0 ? `${count(without)} of ${count(wanted.length)} have no known flops or bytes and no place here` : `${count(wanted.length)} points; area is time, hollow is bound by memory`}
        tools={region ? <button type="button" class="button bare" onClick={() => setQuery({ area: null })}>Clear the selection</button> : <span class="quiet">Drag over points to select them</span>}
      >
        <RooflineChart model={model} points={wanted} chosen={parameter("sel")} region={region} onChoose={(point) => setQuery({ sel: point.key }, "replace")} onRegion={(area) => setQuery({ area: area && regionText(area) }, "replace")} />
      </Panel>
      <Panel
        class="grow"
        title={level === "ops" ? "Operations" : "Program and steps"}
        subtitle={`${count(points.length)} of ${count(ofLevel.length)}`}
        tools={<CsvButton file="roofline_model" header={model.table.columns.map((column) => column.id)} rows={() => sortRows(rows, columns, sort)} />}
      >
        <DataTable<readonly Cell[]>
          fill
          label="Records"
          columns={columns}
          rows={rows}
          rowKey={(row) => byRow.get(row)?.key ?? ""}
          sort={sort}
          onSort={(keys) => setQuery({ sort: formatSort(keys) }, "replace")}
          selected={parameter("sel")}
          onSelect={(row) => setQuery({ sel: byRow.get(row)?.key ?? null }, "replace")}
          empty={<>No operation matches.</>}
        />
      </Panel>
    </>
  );
}

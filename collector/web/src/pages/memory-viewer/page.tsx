/** What a program needs of memory: the heap over its order, where buffers lie, and what the peak is made of. */
import { useRef } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { ToolResult } from "../../api/types";
import { Bar, Failure, KeyValues, Loading, NoData, Panel, SearchField, Segmented, Tiles, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { DataTable } from "../../components/data-table";
import { Icon } from "../../components/icons";
import { LevelChart } from "../../components/level-chart";
import { useWidth } from "../../components/use-width";
import { count, fixed, memory, percent, plural, text } from "../../format/numbers";
import { bufferOf, type BufferOrder, figures, heapPoints, padding, type PeakBuffer, peakBuffers } from "../../tools/memory";
import { isTable, numberOf, records, textOf } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

const ORDERS: readonly (readonly [BufferOrder, string])[] = [["size", "By size"], ["program", "Program order"], ["padding", "By padding"]];

export function MemoryViewerPage({ capture, result: first, advice }: ToolViewProps) {
  const host = first.scope.hosts[0] ?? null;
  const wanted: Record<string, string> = {};
  const [program, space] = [parameter("program"), parameter("space")];
  if (program) wanted["program_id"] = program;
  if (space) wanted["memory_space"] = space;
  const given = Object.keys(wanted).length > 0;
  const loaded = useResource(given ? `${capture.id} ${host ?? ""} ${JSON.stringify(wanted)}` : null, (abort) => api.tool(capture.id, "memory_viewer", host, abort, wanted));
  const error = given ? loaded.error.value : null;
  const result = given ? loaded.value.value : first;
  const programs = records(first.result["programs"]);
  const shownId = program ?? textOf(programs[0]?.["program_id"]) ?? "";
  const spaces = records((result ?? first).result["memory_spaces"]);
  return (
    <>
      <div class="pod-controls">
        <Combobox
          label="Program"
          value={shownId}
          options={programs.map((row) => ({ value: String(row["program_id"]), text: textOf(row["program"]) ?? "" }))}
          onChange={(value) => setQuery({ program: value, buffer: null })}
        />
        {spaces.length > 1 && (
          <Segmented
            label="Memory space"
            options={spaces.map((row) => [String(row["memory_space"]), textOf(row["name"]) ?? ""] as const)}
            value={space ?? "0"}
            onChange={(value) => setQuery({ space: value === "0" ? null : value, buffer: null })}
          />
        )}
        <span class="spring" />
        <SearchField label="Buffer, op or source" value={parameter("q") ?? ""} onInput={(q) => setQuery({ q: q || null }, "replace")} />
      </div>
      {error ? <Failure error={error} retry={loaded.reload} /> : result ? <Shown result={result} /> : <Loading what="Replaying the heap" />}
      {advice}
    </>
  );
}

function Shown({ result }: { result: ToolResult }) {
  const figure = figures(result, "summary");
  const peak = figure("peak_bytes");
  if (peak === null || result.status === "empty") return <section class="panel"><NoData reasons={result.reasons} fallback="No program with buffers was captured." /></section>;
  const order = (parameter("order") ?? "size") as BufferOrder;
  const search = (parameter("q") ?? "").toLowerCase();
  const all = peakBuffers(result, order);
  const chosen = bufferOf(result, parameter("buffer"));
  const largest = peakBuffers(result, "size").find((buffer) => buffer.id !== null);
  const rows = search ? all.filter((buffer) => `${buffer.name} ${buffer.op} ${buffer.source}`.toLowerCase().includes(search)) : all;
  const base = figure("indefinite_bytes") ?? 0;
  const fragmentation = figure("fragmentation_ratio");
  const points = heapPoints(result);
  const lowest = points.reduce((least, point) => Math.min(least, point.most), Infinity);
  return (
    <>
      <Verdict
        tone="info"
        clause={`The peak is ${text(memory(peak))}.`}
        sentence={largest ? `${largest.name}, ${largest.shape}, is ${percent(largest.bytes / Math.max(peak, 1))} of it.` : ""}
        ruledOut="By the compiler's own plan, the same in every run of the program."
      />
      <Tiles
        tiles={[
          { label: "Peak heap", value: memory(peak), context: `at heap event ${count(figure("peak_position") ?? 0)} of ${count(figure("positions") ?? 0)}` },
          { label: "Arguments", value: memory(figure("parameter_bytes") ?? 0), context: `always live ${text(memory(base))}` },
          { label: "Temporaries", value: memory(Math.max(figure("temporary_at_peak_bytes") ?? 0, 0)), context: `${text(memory(figure("temporary_bytes") ?? 0))} with fragmentation` },
          { label: "Fragmentation", value: fragmentation === null ? null : { value: fixed(fragmentation * 100, 1), unit: "%" }, absent: "no temporaries", context: "of the temporary memory" },
          { label: "Padding", value: memory(figure("padding_bytes") ?? 0), context: `peak unpadded ${text(memory(figure("peak_unpadded_bytes") ?? 0))}` },
          { label: "Outputs, may be live", value: memory(figure("live_out_bytes") ?? 0), context: "" },
        ]}
      />
      {points.length > 0 ? (
        <Panel title="Heap over the program" subtitle="with padding; dashed without">
          <LevelChart
            points={points}
            base={Math.min(base, lowest)}
            sentence={`The heap over ${plural(points.length, "position")}: at most ${text(memory(peak))}.`}
            caption="Heap event, program order"
            formatX={(x) => count(Math.round(x))}
            peak={{ x: points.reduce((most, point) => (point.most > most.most ? point : most)).x, value: peak }}
            span={chosen && chosen.begin !== null && chosen.end !== null ? { begin: chosen.begin, end: chosen.end, label: `${chosen.name} lives ${chosen.begin} to ${chosen.end}` } : null}
          />
        </Panel>
      ) : (
        <section class="panel"><NoData reasons={[]} fallback="The compiler recorded no heap trace for this memory space." /></section>
      )}
      <div class={isTable(result.result["blocks"]) && result.result["blocks"].rows.length > 0 ? "columns" : "stack"}>
        <div class="stack"><BufferMap result={result} chosen={chosen?.id ?? null} /></div>
        <div class="stack">{chosen ? <Card buffer={chosen} peak={peak} /> : <Categories result={result} />}</div>
      </div>
      <Panel
        title="Buffers at the peak"
        subtitle={plural(rows.length, "row")}
        tools={
          <>
            <Segmented label="Order" options={ORDERS} value={order} onChange={(value) => setQuery({ order: value === "size" ? null : value })} />
            <CsvButton file="memory_viewer-peak_buffers" header={["buffer", "shape", "category", "size_bytes", "unpadded_bytes", "op_name", "source"]} rows={() => rows.map((row) => [row.name, row.shape, row.category, row.bytes, row.unpadded, row.op, row.source])} />
          </>
        }
      >
        <DataTable<PeakBuffer>
          label="Buffers at the peak"
          rows={rows}
          rowKey={(row) => String(row.order)}
          selected={chosen ? String(chosen.order) : null}
          onSelect={(row: PeakBuffer) => row.id !== null && setQuery({ buffer: row.id === chosen?.id ? null : row.id })}
          columns={[
            { id: "buffer", label: "Buffer", value: (row) => row.name, cell: (row) => <span class="mono" title={row.name}>{row.name}</span>, class: "rest" },
            { id: "shape", label: "Shape", value: (row) => row.shape, cell: (row) => <span class="mono quiet" title={row.shape}>{row.shape}</span>, class: "rest" },
            { id: "category", label: "Group", value: (row) => row.category },
            { id: "size", label: "Size", numeric: true, value: (row) => row.bytes, cell: (row) => <span class="with-bar"><Bar ratio={row.bytes / Math.max(largest?.bytes ?? 1, 1)} /><span class="bar-number">{text(memory(row.bytes))}</span></span> },
            { id: "padding", label: "Padding", numeric: true, value: padding, cell: (row) => (row.unpadded === null ? <span class="quiet">none</span> : percent(padding(row) / Math.max(row.bytes, 1))) },
            { id: "op", label: "Framework op", value: (row) => row.op, cell: (row) => <span title={row.op}>{row.op}</span>, class: "rest" },
            { id: "live", label: "Live", numeric: true, value: (row) => row.begin, cell: (row) => (row.begin === null ? "all" : `${count(row.begin)} to ${count(row.end ?? 0)}`) },
          ]}
        />
      </Panel>
    </>
  );
}

function Card({ buffer, peak }: { buffer: PeakBuffer; peak: number }) {
  return (
    <Panel title={<span class="mono">{buffer.name}</span>} subtitle={buffer.category} tools={<button type="button" class="icon-button" aria-label="Close" onClick={() => setQuery({ buffer: null })}><Icon name="close" /></button>}>
      <KeyValues
        rows={[
          ["Size", text(memory(buffer.bytes, 4))],
          ["Of the peak", percent(buffer.bytes / Math.max(peak, 1))],
          ["Unpadded", buffer.unpadded === null ? "not known" : `${text(memory(buffer.unpadded, 4))}, ratio ${fixed(buffer.bytes / Math.max(buffer.unpadded, 1), 2)}`],
          ["Shape", <span class="mono">{buffer.shape}</span>],
          ["Allocated, freed", buffer.begin === null ? "live all the time" : `${count(buffer.begin)} to ${count(buffer.end ?? 0)}`],
          ["Buffer", String(buffer.id ?? "")],
          ["Opcode", buffer.opcode],
          ["Framework op", buffer.op || "none"],
          ["Source", buffer.source || "not known"],
        ]}
      />
    </Panel>
  );
}

function Categories({ result }: { result: ToolResult }) {
  const rows = records(result.result["peak_categories"]);
  return (
    <Panel title="The peak by category" subtitle="click a buffer for its card">
      <KeyValues
        rows={rows.map((row) => [
          textOf(row["category"]) ?? "",
          <span class="with-bar"><Bar ratio={numberOf(row["peak_ratio"]) ?? 0} /><span class="bar-number">{text(memory(numberOf(row["size_bytes"]) ?? 0))}</span></span>,
        ])}
      />
    </Panel>
  );
}

const MAP_LEFT = 52;
const MAP_HEIGHT = 220;
const MAP_MOST = 3000;

/** Addresses by positions: every buffer where it lies as long as it lives. */
function BufferMap({ result, chosen }: { result: ToolResult; chosen: number | null }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const table = result.result["blocks"];
  if (!isTable(table) || table.rows.length === 0) return null;
  const blocks = records(table);
  const containers = blocks.filter((row) => row["buffer_id"] === null);
  const top = containers.reduce((most, row) => Math.max(most, (numberOf(row["offset_bytes"]) ?? 0) + (numberOf(row["size_bytes"]) ?? 0)), 1);
  const end = containers.reduce((most, row) => Math.max(most, numberOf(row["end_position"]) ?? 0), 1);
  const plot = Math.max(width - MAP_LEFT - 12, 1);
  const x = (value: number): number => MAP_LEFT + (value / end) * plot;
  const y = (value: number): number => MAP_HEIGHT - 20 - (value / top) * (MAP_HEIGHT - 30);
  const drawn = blocks.filter((row) => row["buffer_id"] !== null).slice(0, MAP_MOST);
  return (
    <Panel title="Where buffers lie" subtitle={`${text(memory(top))} of addresses by heap event`}>
      <div class="chart buffer-map" ref={box}>
        <svg role="img" aria-label={`Where ${plural(drawn.length, "buffer")} lie in ${text(memory(top))}`} width={width} height={MAP_HEIGHT}>
          {drawn.map((row) => {
            const [offset, size] = [numberOf(row["offset_bytes"]) ?? 0, numberOf(row["size_bytes"]) ?? 0];
            const [begin, until] = [numberOf(row["begin_position"]) ?? 0, numberOf(row["end_position"]) ?? 0];
            const id = numberOf(row["buffer_id"]);
            return (
              <rect
                key={`${id} ${offset}`}
                class={id === chosen ? "chosen" : ""}
                x={x(begin)}
                width={Math.max(x(until) - x(begin), 1)}
                y={y(offset + size)}
                height={Math.max(y(offset) - y(offset + size), 1)}
                onClick={() => setQuery({ buffer: id === chosen ? null : id })}
              >
                <title>{`${textOf(row["name"]) ?? ""} ${textOf(row["shape"]) ?? ""}: ${text(memory(size))} at ${text(memory(offset))}, ${begin} to ${until}`}</title>
              </rect>
            );
          })}
          <text class="tick" x={MAP_LEFT - 6} y={y(top) + 8} text-anchor="end">{text(memory(top))}</text>
          <text class="tick" x={MAP_LEFT - 6} y={y(0)} text-anchor="end">0</text>
          <text class="tick" x={MAP_LEFT} y={MAP_HEIGHT - 4}>0</text>
          <text class="tick" x={MAP_LEFT + plot} y={MAP_HEIGHT - 4} text-anchor="end">{count(end)}</text>
        </svg>
      </div>
    </Panel>
  );
}

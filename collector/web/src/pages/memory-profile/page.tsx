/** What an allocator did: how much was in use when, what the peak was made of, what grows, what ran out. */
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { ToolResult } from "../../api/types";
import { Bar, Failure, NoData, Panel, Tiles, Verdict } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { LevelChart, type LevelPoint } from "../../components/level-chart";
import { fixed, memory, percent, plural, significant, text, traceTime } from "../../format/numbers";
import { programRuns, timelinePoints } from "../../tools/memory";
import { fieldsOf, isTable, numberOf, records, textOf } from "../../tools/tables";
import { parameter, setQuery } from "../../url";
import { AnyTable } from "../tool/any";
import type { ToolViewProps } from "../tool/page";

const POINTS = "600";
const DETAILS = ["to_shrink", "survivors", "growth", "shortages"] as const;

/** Whether a moment is in the part of the timeline that is shown. */
const isWithin = (ms: number, points: readonly LevelPoint[]): boolean => ms >= (points[0]?.x ?? Infinity) && ms <= (points.at(-1)?.x ?? -Infinity);

export function MemoryProfilePage({ capture, result, advice }: ToolViewProps) {
  const host = result.scope.hosts[0] ?? null;
  const allocators = records(result.result["allocators"]);
  const name = parameter("allocator") ?? textOf(allocators.reduce<Record<string, unknown>>((a, b) => ((numberOf(b["peak_bytes"]) ?? 0) > (numberOf(a["peak_bytes"]) ?? -1) ? b : a), {})["allocator"]) ?? "";
  const [begin, end] = [parameter("from"), parameter("to")];
  const zoomed = begin !== null && end !== null;
  const at = parameter("at");
  const closer = useResource(
    name ? `${capture.id} ${host ?? ""} ${name} ${begin ?? ""} ${end ?? ""} ${at ?? ""}` : null,
    (abort) => api.tool(capture.id, "memory_profile", host, abort, { allocator: name, points: POINTS, ...(zoomed ? { start_ms: begin, end_ms: end } : {}), ...(at ? { at_ms: at } : {}) }),
  );
  const row = allocators.find((one) => one["allocator"] === name);
  if (!row) {
    return (
      <>
        <Shortage result={result} />
        <section class="panel"><NoData reasons={result.reasons} fallback="No allocator recorded anything." /></section>
      </>
    );
  }
  const figure = (key: string): number => numberOf(row[key]) ?? 0;
  const shown = closer.value.value ?? result;
  const points = timelinePoints(shown, name);
  const fragmentation = numberOf(row["peak_fragmentation_ratio"]);
  const capacity = numberOf(row["capacity_bytes"]);
  const moment = at ? records(shown.result["moment"]).find((one) => one["allocator"] === name) : undefined;
  const everything = records(moment ? shown.result["moment_allocations"] : result.result["peak_allocations"]).filter((one) => one["allocator"] === name);
  const regions = [...new Set(everything.map((one) => textOf(one["region_type"]) ?? ""))].filter((one) => one !== "");
  const asked = parameter("region");
  const region = asked !== null && regions.includes(asked) ? asked : null;
  const peaks = everything.filter((one) => region === null || one["region_type"] === region);
  const largest = peaks.reduce((most, one) => Math.max(most, numberOf(one["total_bytes"]) ?? 0), 1);
  return (
    <>
      <Shortage result={result} />
      {allocators.length > 1 && (
        <div class="pod-controls">
          <Combobox label="Allocator" value={name} options={allocators.map((one) => ({ value: String(one["allocator"]), text: String(one["allocator"]), note: text(memory(numberOf(one["peak_bytes"]) ?? 0)) }))} onChange={(value) => setQuery({ allocator: value, from: null, to: null, at: null, region: null })} />
        </div>
      )}
      <Tiles
        tiles={[
          { label: "Peak in the capture", value: memory(figure("peak_bytes")), context: `at ${traceTime(figure("peak_time_ms"))}` },
          { label: "Peak since the start", value: memory(figure("lifetime_peak_bytes")), context: "of the allocator" },
          { label: "Capacity", value: capacity === null ? null : memory(capacity), absent: "not recorded", context: capacity === null ? "the allocator does not say what is free" : `${percent(figure("peak_bytes") / Math.max(capacity, 1))} used at the peak` },
          { label: "Fragmentation", value: fragmentation === null ? null : { value: fixed(fragmentation * 100, 1), unit: "%" }, absent: "not recorded", context: "at the peak" },
          { label: "Stack at the peak", value: memory(figure("peak_stack_bytes")), context: `heap ${text(memory(figure("peak_heap_bytes")))}` },
          { label: "Events", value: { value: String(figure("allocations") + figure("deallocations")), unit: "" }, context: `${figure("allocations")} made, ${figure("deallocations")} freed` },
        ]}
      />
      {advice}
      <Panel
        title="Memory in use"
        subtitle="most and, dashed, least of every moment; drag to zoom, click to see what was in use"
        tools={zoomed && <button type="button" class="button bare" onClick={() => setQuery({ from: null, to: null })}>Whole capture</button>}
      >
        {closer.error.value && <Failure error={closer.error.value} retry={closer.reload} />}
        <LevelChart
          points={points}
          base={0}
          sentence={`Memory in use by ${name} over ${plural(points.length, "moment")}: at most ${text(memory(figure("peak_bytes")))}.`}
          caption="Time in the capture"
          formatX={(x) => traceTime(x)}
          formatTick={(x) => `${significant(x, 4).replace(/\.0+$/, "")} ms`}
          limit={capacity === null ? null : { value: capacity, label: `capacity ${text(memory(capacity))}` }}
          runs={programRuns(shown, name)}
          peak={isWithin(figure("peak_time_ms"), points) ? { x: figure("peak_time_ms"), value: figure("peak_bytes") } : null}
          strip="fragmentation"
          mark={moment ? numberOf(moment["time_ms"]) : null}
          onPick={(x) => setQuery({ at: x.toFixed(6) }, "replace")}
          onZoom={(from, to) => setQuery({ from: from.toFixed(6), to: to.toFixed(6) })}
        />
      </Panel>
      <Panel
        title={moment ? `In use at ${traceTime(numberOf(moment["time_ms"]) ?? 0)}` : "In use at the peak"}
        subtitle={moment ? momentSentence(moment) : plural(peaks.length, "row")}
        tools={
          <>
            {regions.length > 1 && (
              <Combobox
                label="Region"
                value={region ?? ""}
                options={[{ value: "", text: "All regions" }, ...regions.map((one) => ({ value: one, text: one }))]}
                onChange={(value) => setQuery({ region: value || null }, "replace")}
              />
            )}
            {at && <button type="button" class="button bare" onClick={() => setQuery({ at: null })}>Back to the peak</button>}
          </>
        }
      >
        <div class="table-scroll">
          <table class="data">
            <thead><tr><th scope="col">Operation</th><th scope="col" class="num">Together</th><th scope="col" class="num">Each</th><th scope="col" class="num">Times</th><th scope="col">Region</th><th scope="col">Type</th><th scope="col">Shape</th></tr></thead>
            <tbody>
              {peaks.slice(0, 200).map((one, i) => (
                <tr key={i}>
                  <td class="bounded" title={String(one["op_name"] ?? "")}>{one["is_recorded"] ? <span class="mono">{one["op_name"] || "not named"}</span> : <i>{one["op_name"]}</i>}</td>
                  <td class="num"><span class="with-bar"><Bar ratio={(numberOf(one["total_bytes"]) ?? 0) / largest} /><span class="bar-number">{text(memory(numberOf(one["total_bytes"]) ?? 0))}</span></span></td>
                  <td class="num">{text(memory(numberOf(one["allocation_bytes"]) ?? 0))}</td>
                  <td class="num">{one["occurrences"]}</td>
                  <td>{one["region_type"]}</td>
                  <td>{one["is_recorded"] ? one["data_type"] : ""}</td>
                  <td class="mono quiet">{one["is_recorded"] ? one["shape"] : ""}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </Panel>
      {DETAILS.map((table) => {
        const value = result.result[table];
        return isTable(value) && value.rows.length > 0 ? <AnyTable key={table} name={table} tool="memory_profile" table={value} /> : null;
      })}
    </>
  );
}

function momentSentence(moment: Readonly<Record<string, unknown>>): string {
  const bytes = (key: string): string => text(memory(numberOf(moment[key]) ?? 0));
  const fragmentation = numberOf(moment["fragmentation_ratio"]);
  const free = numberOf(moment["free_bytes"]) === null ? "" : `, ${bytes("free_bytes")} free`;
  return `${bytes("used_bytes")} in use${free}${fragmentation === null ? "" : `, fragmentation ${percent(fragmentation)}`}`;
}

const KINDS: Readonly<Record<string, string>> = {
  failed_allocation: "An allocation failed.",
  reported: "Memory ran out.",
  nearly_full: "Memory is nearly full.",
};

/** That memory grows: the first allocator's figures, and how many more there are. */
function Growing({ hints }: { hints: readonly { sentence: string }[] }) {
  const more = hints.length - 1;
  const others = more > 0 ? ` So does that of ${plural(more, "other allocator")}; see Growth.` : "";
  return <Verdict tone="warn" clause="Memory grows from step to step." sentence={(hints[0]?.sentence ?? "") + others} />;
}

/** What ran out, else what grows, else that neither does. */
function Shortage({ result }: { result: ToolResult }) {
  const report = fieldsOf(result.result["out_of_memory"]);
  const bytes = (key: string): string | null => {
    const value = numberOf(report[key]);
    return value === null ? null : text(memory(value));
  };
  const kind = textOf(report["kind"]);
  const hints = (result.result["leak_hints"] as { sentence: string }[] | undefined) ?? [];
  if (kind === null) {
    const growths = records(result.result["growth"]);
    if (hints.length > 0) return <Growing hints={hints} />;
    if (growths.length === 0) return null;
    const judged = growths.filter((row) => row["verdict"] === "steady").length;
    return <Verdict tone="ok" clause="No allocation failed." sentence={judged > 0 ? "What stays in use does not grow from step to step." : "There are too few steps to say whether memory grows."} />;
  }
  const advice = (report["advice"] as string[] | undefined) ?? [];
  return (
    <>
      <Verdict
        tone={kind === "nearly_full" ? "warn" : "err"}
        clause={KINDS[kind] ?? kind}
        sentence={bytes("requested_bytes") ? `${bytes("requested_bytes")} were asked for, ${bytes("free_bytes") ?? "an unknown amount"} was free.` : `${bytes("used_bytes") ?? ""} in use of ${bytes("capacity_bytes") ?? "an unknown capacity"}.`}
        ruledOut={report["is_fragmented"] === true ? "Enough was free, but not in one piece." : textOf(report["message"]) ?? ""}
      />
      {hints.length > 0 && <Growing hints={hints} />}
      <Panel title="What to make smaller" subtitle={textOf(report["allocator"]) ?? ""}>
        <ol class="said">{advice.map((one) => <li key={one}>{one}</li>)}</ol>
      </Panel>
    </>
  );
}

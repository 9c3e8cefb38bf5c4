/** Without steps: the latency of requests by percentile, where the capture has any. */
import type { ToolResult } from "../../api/types";
import { NoData, Panel } from "../../components/basics";
import { columnDecimals, duration, fixed, significant, text } from "../../format/numbers";
import { toolPath } from "../../tools/pages";
import { msFactor } from "../../tools/steps";
import { isTable, numberOf, records } from "../../tools/tables";

export function hasRequests(result: ToolResult): boolean {
  const table = result.result["inference"];
  return isTable(table) && table.rows.length > 0;
}

/** What a capture of a server says first: it has requests where others have steps. */
export function servingVerdict(result: ToolResult): { clause: string; sentence: string } {
  const rows = records(result.result["inference"]);
  const at = (percentile: string): string => {
    const total = numberOf(rows.find((row) => row["percentile"] === percentile)?.["total_us"]);
    return total === null ? "an unknown time" : text(duration(total / 1e3));
  };
  const rate = numberOf(result.result["sessions_per_second"]);
  return {
    clause: "A server, which answers requests and has no steps.",
    sentence: `Half of them are answered in ${at("50.0")}, 99% in ${at("99.0")}${rate === null ? "" : `; ${significant(rate, 3)} a second`}.`,
  };
}

export function InferencePanel({ result, capture }: { result: ToolResult; capture: string }) {
  const table = result.result["inference"];
  if (!isTable(table) || table.rows.length === 0) {
    return (
      <Panel title="Step time by category">
        <NoData reasons={result.reasons} fallback="No steps. The program marks no step boundaries: wrap the loop body in jax.profiler.StepTraceAnnotation." />
      </Panel>
    );
  }
  const decimals = columnDecimals(table.rows.flatMap((row) => row.map(numberOf)));
  return (
    <Panel title="Inference latency" subtitle="by percentile of the requests" tools={<a href={toolPath(capture, "inference_profile")}>Open inference →</a>}>
      <table class="data">
        <thead>
          <tr>
            {table.columns.map((column) => (
              <th scope="col" key={column.id} class={msFactor(column) === null ? "" : "num"}>{column.label} {column.unit && <small>{column.unit}</small>}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {table.rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, at) => {
                const column = table.columns[at];
                return typeof cell === "number" && column && msFactor(column) !== null ? <td class="num" key={at}>{fixed(cell, decimals)}</td> : <td key={at}>{String(cell ?? "")}</td>;
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </Panel>
  );
}

/** Without steps: the latency of requests by percentile, where the capture has any. */
import type { ToolResult } from "../../api/types";
import { NoData, Panel } from "../../components/basics";
import { columnDecimals, fixed } from "../../format/numbers";
import { msFactor } from "../../tools/steps";
import { isTable, numberOf } from "../../tools/tables";

export function InferencePanel({ result }: { result: ToolResult }) {
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
    <Panel title="Inference latency" subtitle="by percentile of the requests">
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

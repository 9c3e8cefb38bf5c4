/** The input pipelines: which are slow, and on the way from source to root, what they wait for. */
import type { ToolResult } from "../../api/types";
import { NoData, Panel, Verdict } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { duration, text } from "../../format/numbers";
import { fieldsOf, isTable, numberOf, records, textOf } from "../../tools/tables";
import { type PipelineNode, pipelineNodes } from "../../tools/tf-data";
import { parameter, setQuery } from "../../url";
import { AnyTable } from "../tool/any";
import type { ToolViewProps } from "../tool/page";

const WIDTH = 158;
const HEIGHT = 62;
const GAP_X = 30;
const GAP_Y = 18;
/** The graph says who asks whom; CSV has the ids. */
const IDS = /_id$/;
const time = (us: number): string => text(duration(us / 1000, 3));

export function TfDataPage({ result, advice: rules }: ToolViewProps) {
  const pipelines = records(result.result["pipelines"]);
  const bottlenecks = list(result.result["bottlenecks"]);
  const loaders = list(result.result["loader_bottlenecks"]);
  if (pipelines.length === 0 && loaders.length === 0) return <section class="panel"><NoData reasons={result.reasons} fallback="No input pipeline was recorded." /></section>;
  const slow = bottlenecks.find((one) => one["is_slow"] === true) ?? loaders.find((one) => one["is_slow"] === true);
  const keys = pipelines.map((row) => `${String(row["host"])}\n${String(row["pipeline"])}`);
  const slowest = bottlenecks[0] ? `${String(bottlenecks[0]["host"])}\n${String(bottlenecks[0]["pipeline"])}` : keys[0];
  const asked = parameter("pipeline");
  const chosen = asked && keys.includes(asked) ? asked : (slowest ?? "");
  const [host = "", pipeline = ""] = chosen.split("\n");
  const own = bottlenecks.find((one) => one["host"] === host && one["pipeline"] === pipeline);
  const advice = list(own?.["advice"]);
  return (
    <>
      <Verdict
        tone={slow ? "warn" : "ok"}
        clause={slow ? `${String(slow["pipeline"] ?? slow["loader"])} takes up to ${time(numberOf(slow["max_latency_us"]) ?? 0)} for an element.` : "No pipeline is slow."}
        sentence={slow ? `It waits for ${String(slow["iterator"] ?? slow["stage"] ?? "itself")}.` : (textOf(result.result["summary"]) ?? "")}
      />
      {rules}
      {pipelines.length > 0 && (
        <Panel
          title="Pipeline"
          subtitle="from the sources to what the program asks; self time in the slowest call"
          tools={<Combobox label="Pipeline" value={chosen} options={keys.map((key) => ({ value: key, text: key.replace("\n", ", ") }))} onChange={(value) => setQuery({ pipeline: value })} />}
        >
          <PipelineGraph nodes={pipelineNodes(result, host, pipeline)} />
          {advice.length > 0 && <ol class="said">{advice.map((one) => <li key={String(one["text"])}><Said text={String(one["text"])} link={textOf(one["link"])} /></li>)}</ol>}
        </Panel>
      )}
      {loaders.filter((one) => one["is_slow"] === true).map((one) => (
        <Panel key={`${String(one["host"])} ${String(one["thread"])} ${String(one["call"])}`} title={`${String(one["loader"])} loader`} subtitle={`${String(one["host"])}, ${String(one["thread"])}`}>
          <ol class="said">{((one["advice"] as string[] | undefined) ?? []).map((said) => <li key={said}><Said text={said} link={null} /></li>)}</ol>
        </Panel>
      ))}
      <Tables result={result} />
    </>
  );
}

/** Advice, whose code stands in backticks, and where to read more. */
function Said({ text: said, link }: { text: string; link: string | null }) {
  return (
    <>
      {said.split("`").map((part, i) => (i % 2 === 1 ? <code key={part}>{part}</code> : part))}
      {link && <> <a href={link} rel="noreferrer" target="_blank">Guide{"\u00a0"}→</a></>}
    </>
  );
}

function list(value: unknown): Readonly<Record<string, unknown>>[] {
  return Array.isArray(value) ? value.map(fieldsOf) : [];
}

function Tables({ result }: { result: ToolResult }) {
  return (
    <>
      {["pipelines", "iterators", "loaders"].map((name) => {
        const table = result.result[name];
        return isTable(table) && table.rows.length > 0 ? <AnyTable key={name} name={name} tool={result.tool} table={table} hidden={IDS} /> : null;
      })}
    </>
  );
}

function PipelineGraph({ nodes }: { nodes: readonly PipelineNode[] }) {
  const at = new Map(nodes.map((node) => [node.id, node]));
  const x = (node: PipelineNode): number => 12 + node.column * (WIDTH + GAP_X);
  const y = (node: PipelineNode): number => 12 + node.row * (HEIGHT + GAP_Y);
  const width = Math.max(...nodes.map((node) => x(node) + WIDTH), 0) + 12;
  const height = Math.max(...nodes.map((node) => y(node) + HEIGHT), 0) + 12;
  const worst = nodes.find((node) => node.isBottleneck);
  return (
    <div class="table-scroll">
      <svg class="pipeline-graph" role="img" width={width} height={height} aria-label={`${nodes.length} iterators; the slowest call waits for ${worst?.name ?? "none"}`}>
        {nodes.map((node) => {
          const parent = at.get(node.parent);
          if (!parent) return null;
          const [from, to] = [y(node) + HEIGHT / 2, y(parent) + HEIGHT / 2];
          const middle = (x(node) + WIDTH + x(parent)) / 2;
          return <path key={node.id} class={`edge ${node.isCritical && parent.isCritical ? "critical" : ""}`} d={`M${x(node) + WIDTH} ${from}C${middle} ${from} ${middle} ${to} ${x(parent)} ${to}`} />;
        })}
        {nodes.map((node) => (
          <g key={node.id} class={`node ${node.isCritical ? "critical" : ""} ${node.isBottleneck ? "bottleneck" : ""}`}>
            <title>{`${node.name}: self time ${time(node.slowestSelfUs)} in the slowest call, ${time(node.selfUs)} in ${node.calls} calls`}</title>
            <rect x={x(node)} y={y(node)} width={WIDTH} height={HEIGHT} rx="6" />
            <text x={x(node) + 10} y={y(node) + 22}>{node.name}{node.isAsync ? " · works ahead" : ""}</text>
            <text class="small" x={x(node) + 10} y={y(node) + 40}>{`self ${time(node.slowestSelfUs)}`}</text>
            <text class="small" x={x(node) + 10} y={y(node) + 55}>{node.isBottleneck ? "bottleneck" : `${node.calls} calls`}</text>
          </g>
        ))}
      </svg>
    </div>
  );
}

/** The instructions around one of a program, as a graph, beside what it is and took, or as text. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { ToolResult } from "../../api/types";
import { Combobox } from "../../components/combobox";
import { Failure, IconButton, KeyValues, Loading, NoData, Panel, SearchField, Segmented, Snippet, Switch, Verdict } from "../../components/basics";
import { DataTable } from "../../components/data-table";
import { count, duration, memory, percent, plural, text } from "../../format/numbers";
import { cut, type Graph, graphOf, type GraphNode, kindOf, type Spent, spentOf } from "../../tools/graph";
import { toolPath } from "../../tools/pages";
import { fieldsOf, numberOf, records, textOf } from "../../tools/tables";
import { href, parameter, setQuery, withQuery } from "../../url";
import type { ToolViewProps } from "../tool/page";

const PS_PER_MS = 1e9;
const ZOOMS = [0.25, 0.35, 0.5, 0.7, 1, 1.4, 2] as const;

/** Instructions of one name are in several programs: both together say which is meant. */
const toNode = (program: string, node: string): string => withQuery({ program, node, at: null });

const strings = (value: unknown): string[] => (Array.isArray(value) ? value.filter((one): one is string => typeof one === "string") : []);
const time = (ps: number): string => text(duration(ps / PS_PER_MS));

export function GraphPage({ capture, tools, result: first, advice }: ToolViewProps) {
  const host = first.scope.hosts[0] ?? null;
  const view = parameter("view") ?? "graph";
  const wanted: Record<string, string> = {};
  const ask = (name: string, value: string | null): void => {
    if (value) wanted[name] = value;
  };
  ask("program_id", parameter("program"));
  ask("node_name", parameter("node"));
  ask("type", view === "graph" ? null : view);
  ask("graph_width", view === "graph" ? parameter("steps") : null);
  ask("merge_fusion", view === "graph" && parameter("closed") === "1" ? "1" : null);
  ask("show_metadata", view !== "graph" && parameter("meta") === "1" ? "1" : null);
  ask("cursor", parameter("at"));
  const given = Object.keys(wanted).length > 0;
  const loaded = useResource(
    given ? `${capture.id} ${host ?? ""} ${JSON.stringify(wanted)}` : null,
    (abort) => api.tool(capture.id, "graph_viewer", host, abort, wanted),
  );
  const answered = given ? loaded.value.value : first;
  const error = given ? loaded.error.value : null;
  // What was there stays until the next is: a graph that vanishes at every step cannot be walked.
  const last = useRef<ToolResult | null>(null);
  if (answered) last.current = answered;
  const result = error ? null : (answered ?? last.current);
  const programs = records((result ?? first).result["programs"]);
  const program = textOf((result ?? first).result["program_id"]) ?? "";
  const node = fieldsOf((result ?? first).result["node"]);
  const [typed, setTyped] = useState("");
  const find = (): void => {
    if (typed.trim()) setQuery({ node: typed.trim(), at: null, program });
  };
  return (
    <>
      {result && textOf(node["name"]) && <Verdict {...verdictOf(node, result)} />}
      {advice}
      <div class="graph-controls">
        <Combobox
          label="Program"
          value={program}
          options={programs.map((row) => ({ value: String(row["program_id"]), text: String(row["program"]), note: text(memory(numberOf(row["hlo_bytes"]) ?? 0)) }))}
          onChange={(value) => setQuery({ program: value, node: null, at: null })}
        />
        <form onSubmit={(event) => { event.preventDefault(); find(); }}>
          <SearchField label="Instruction or computation" value={typed} onInput={setTyped} />
        </form>
        <Segmented label="View" options={[["graph", "Graph"], ["short_txt", "Short text"], ["long_txt", "Long text"]]} value={view} onChange={(value) => setQuery({ view: value === "graph" ? null : value, at: null })} />
        {view === "graph" ? (
          <>
            <Segmented label="Steps" options={["1", "2", "3", "4", "5"].map((one) => [one, one] as const)} value={parameter("steps") ?? "3"} onChange={(value) => setQuery({ steps: value === "3" ? null : value, at: null })} />
            <Switch label="Fusions closed" on={parameter("closed") === "1"} onChange={(on) => setQuery({ closed: on ? 1 : null })} />
          </>
        ) : (
          <Switch label="Metadata" on={parameter("meta") === "1"} onChange={(on) => setQuery({ meta: on ? 1 : null })} />
        )}
      </div>
      {error && <Failure error={error} retry={loaded.reload} />}
      {!result && !error && <Loading what="Laying the graph out" />}
      {result?.status === "empty" && <section class="panel"><NoData reasons={result.reasons} fallback="This capture carries no program." /></section>}
      {result?.status === "ok" && (
        <div class="columns">
          <div>{view === "graph" ? <GraphPanel result={result} centre={textOf(node["name"]) ?? ""} /> : <TextPanel result={result} node={textOf(node["name"]) ?? ""} />}</div>
          <NodeCard capture={capture.id} program={program} node={node} result={result} hasTrace={tools.some((tool) => tool.name === "trace_viewer")} />
        </div>
      )}
    </>
  );
}

function verdictOf(node: Readonly<Record<string, unknown>>, result: ToolResult) {
  const spent = spentOf(node);
  const name = textOf(node["name"]) ?? "";
  const where = `in ${textOf(result.result["program"]) ?? "the program"}`;
  if (node["kind"] === "computation") {
    return { tone: "plain" as const, clause: `${name} is a computation of ${plural(numberOf(node["instructions"]) ?? 0, "instruction")}`, sentence: <>{where}.</> };
  }
  if (spent.selfPs === null) {
    return { tone: "plain" as const, clause: `${name} was not measured by itself`, sentence: <>{where}: it ran inside another instruction, or not in this capture.</> };
  }
  return {
    tone: "info" as const,
    clause: `${name} took ${time(spent.selfPs)} of its own`,
    sentence: (
      <>
        {where}, in {plural(spent.occurrences ?? 0, "run")}
        {spent.flops === null ? "" : `, at ${percent(spent.flops)} of peak FLOPS`}
        {spent.hbm === null ? "" : ` and ${percent(spent.hbm)} of memory bandwidth`}.
      </>
    ),
  };
}

function GraphPanel({ result, centre }: { result: ToolResult; centre: string }) {
  const graph = graphOf(result);
  const [zoom, setZoom] = useState(4);
  const scale = ZOOMS[zoom] ?? 1;
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const around = [...graph.nodes, ...graph.groups].find((one) => one.name === centre);
    const box = frame.current;
    if (!around || !box) return;
    box.scrollTo((around.x + around.width / 2) * scale - box.clientWidth / 2, (around.y + around.height / 2) * scale - box.clientHeight / 2);
  }, [result, zoom]);
  const left = graph.total - graph.shown;
  return (
    <Panel
      title="Graph"
      subtitle={left > 0 ? `${count(graph.shown)} of ${count(graph.total)} instructions` : plural(graph.total, "instruction")}
      tools={
        <>
          {parameter("at") && <a class="button bare" href={withQuery({ at: null })}>First part</a>}
          {graph.cursor && <a class="button bare" href={withQuery({ at: graph.cursor })}>{count(left)} more</a>}
          <IconButton icon="minus" label="Smaller" onClick={() => setZoom(Math.max(0, zoom - 1))} />
          <IconButton icon="plus" label="Larger" onClick={() => setZoom(Math.min(ZOOMS.length - 1, zoom + 1))} />
        </>
      }
    >
      <div class="graph-frame" ref={frame} data-testid="graph">
        <Drawing graph={graph} program={textOf(result.result["program_id"]) ?? ""} centre={centre} scale={scale} />
      </div>
    </Panel>
  );
}

function Drawing({ graph, program, centre, scale }: { graph: Graph; program: string; centre: string; scale: number }) {
  const margin = 16;
  const width = graph.width + 2 * margin;
  const height = graph.height + 2 * margin;
  const largest = Math.max(1, ...graph.nodes.map((one) => one.selfPs ?? 0), ...graph.groups.map((one) => one.selfPs ?? 0));
  return (
    <svg class="graph" width={width * scale} height={height * scale} viewBox={`${-margin} ${-margin} ${width} ${height}`} role="img" aria-label={`${plural(graph.nodes.length, "instruction")} around ${centre}`}>
      <defs>
        <marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
          <path d="M0 0L8 4L0 8z" />
        </marker>
      </defs>
      {graph.groups.map((group) => (
        <g key={group.name} class={`graph-group ${group.name === centre ? "centre" : ""}`}>
          <rect x={group.x} y={group.y} width={group.width} height={group.height} rx="8" />
          <a href={toNode(program, group.name)}>
            <text x={group.x + 12} y={group.y + 18}>{cut(group.name, group.width - (group.selfPs === null ? 0 : 80))}</text>
          </a>
          {group.selfPs !== null && <text class="spent" x={group.x + group.width - 12} y={group.y + 18}>{time(group.selfPs)}</text>}
        </g>
      ))}
      {graph.edges.map((edge) => (
        <polyline key={`${edge.source} ${edge.target}`} class={edge.source === centre || edge.target === centre ? "near" : ""} points={edge.points} marker-end="url(#arrow)">
          <title>{`${edge.source} to ${edge.target}`}</title>
        </polyline>
      ))}
      {graph.nodes.map((node) => <NodeBox key={`${node.fusion} ${node.name}`} node={node} program={program} centre={centre} largest={largest} />)}
    </svg>
  );
}

function NodeBox({ node, program, centre, largest }: { node: GraphNode; program: string; centre: string; largest: number }) {
  const about = [node.name, node.opcode, node.shape, node.selfPs === null ? "" : time(node.selfPs), node.hidden ? `${count(node.hidden)} neighbours not shown` : ""];
  return (
    <a href={toNode(program, node.name)} class={`graph-node kind-${kindOf(node.opcode)} ${node.name === centre ? "centre" : ""}`}>
      <title>{about.filter((one) => one !== "").join("\n")}</title>
      <rect x={node.x} y={node.y} width={node.width} height={node.height} rx="5" />
      <text x={node.x + 8} y={node.y + 16}>{cut(node.name, node.width)}</text>
      <text class="quiet" x={node.x + 8} y={node.y + 31}>{cut(node.selfPs === null ? node.shape : `${time(node.selfPs)} ${node.shape}`, node.width - (node.hidden ? 36 : 0))}</text>
      {node.selfPs !== null && <rect class="graph-time" x={node.x} y={node.y + node.height - 3} width={(node.width * node.selfPs) / largest} height="3" />}
      {node.hidden > 0 && <text class="spent" x={node.x + node.width - 8} y={node.y + 31}>+{count(node.hidden)}</text>}
    </a>
  );
}

function TextPanel({ result, node }: { result: ToolResult; node: string }) {
  const about = fieldsOf(result.result["text"]);
  const lines = strings(about["lines"]);
  const begin = numberOf(about["begin"]) ?? 0;
  const total = numberOf(about["total"]) ?? lines.length;
  const cursor = textOf(about["cursor"]);
  const line = numberOf(about["node_line"]);
  const marked = useRef<HTMLElement>(null);
  useEffect(() => marked.current?.scrollIntoView({ block: "center" }), [result]);
  const at = line === null ? -1 : line - begin;
  const here = at >= 0 && at < lines.length;
  return (
    <Panel
      title="HLO text"
      subtitle={total > lines.length ? `lines ${count(begin + 1)} to ${count(begin + lines.length)} of ${count(total)}` : plural(total, "line")}
      tools={
        <>
          {line !== null && !here && <a class="button bare" href={withQuery({ at: Math.max(0, line - 100) })}>Go to {cut(node, 200)}</a>}
          {begin > 0 && <a class="button bare" href={withQuery({ at: null })}>From the start</a>}
          {cursor && <a class="button bare" href={withQuery({ at: cursor })}>Next part</a>}
        </>
      }
    >
      <pre class="graph-text" data-testid="hlo-text">
        {here ? (
          <>
            {lines.slice(0, at).join("\n")}{"\n"}
            <mark ref={marked}>{lines[at]}</mark>{"\n"}
            {lines.slice(at + 1).join("\n")}
          </>
        ) : lines.join("\n")}
      </pre>
    </Panel>
  );
}

interface Near extends Spent {
  readonly direction: string;
  readonly name: string;
  readonly opcode: string;
}

function NodeCard({ capture, program, node, result, hasTrace }: { capture: string; hasTrace: boolean; program: string; node: Readonly<Record<string, unknown>>; result: ToolResult }) {
  const name = textOf(node["name"]) ?? "";
  const spent = spentOf(node);
  const adjacent: Near[] = records(result.result["adjacent"]).map((row) => ({ ...spentOf(row), direction: String(row["direction"]), name: String(row["name"]), opcode: String(row["opcode"]) }));
  const link = (to: string) => <a key={to} href={toNode(program, to)}>{to}</a>;
  const estimate = (field: string): string | null => {
    const value = numberOf(node[field]);
    return value === null ? null : count(value);
  };
  const rows: [string, ComponentChildren][] = [
    ["Opcode", textOf(node["opcode"])],
    ["Category", textOf(node["category"])],
    ["Shape", textOf(node["shape"])],
    ["Computation", textOf(node["computation"]) && link(String(node["computation"]))],
    ["Calls", strings(node["calls"]).map(link)],
    ["Called by", strings(node["callers"]).map(link)],
    ["Self time", spent.selfPs === null ? null : time(spent.selfPs)],
    ["Runs", spent.occurrences === null ? null : count(spent.occurrences)],
    ["FLOPS, of peak", spent.flops === null ? null : percent(spent.flops)],
    ["Memory bandwidth, of peak", spent.hbm === null ? null : percent(spent.hbm)],
    ["FLOPs of one run", estimate("estimated_flops")],
    ["Bytes of one run", estimate("estimated_bytes")],
    ["Operation", textOf(node["op_name"])],
    ["Source", textOf(node["source"])],
  ];
  const elsewhere = (tool: string): string => href(toolPath(capture, tool), { q: name, program, host: parameter("host") });
  return (
    <aside class="panel graph-card" aria-label="Instruction">
      <header class="panel-head"><h2 class="mono cut" title={name}>{name}</h2></header>
      <KeyValues rows={rows.filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0))} />
      {textOf(node["short_text"]) && <Snippet title="Expression" text={String(node["short_text"])} />}
      <div class="card-foot">
        <a class="button bare" href={elsewhere("op_profile")}>Op profile</a>
        <a class="button bare" href={elsewhere("hlo_stats")}>HLO stats</a>
        {hasTrace && <a class="button bare" href={elsewhere("trace_viewer")}>Trace</a>}
      </div>
      {adjacent.length > 0 && (
        <DataTable<Near>
          label="Neighbours"
          columns={[
            { id: "direction", label: "Is", value: (row) => row.direction, cell: (row) => row.direction },
            { id: "name", label: "Instruction", class: "bounded", value: (row) => row.name, cell: (row) => link(row.name) },
            { id: "time", label: "Self", numeric: true, value: (row) => row.selfPs, cell: (row) => (row.selfPs === null ? <span class="quiet">none</span> : time(row.selfPs)) },
          ]}
          rows={adjacent}
          rowKey={(row) => `${row.direction} ${row.name}`}
        />
      )}
    </aside>
  );
}

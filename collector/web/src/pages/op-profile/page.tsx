/** Where the operations' time goes: a tree with the use of compute and memory, and a card with all details. */
import { useMemo, useState } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { Bar, Failure, Loading, NoData, SearchField, Segmented, Switch, Verdict } from "../../components/basics";
import { CsvButton } from "../../components/csv-button";
import { Combobox } from "../../components/combobox";
import { Icon } from "../../components/icons";
import { bandwidth, change, columnDecimals, count, duration, durationUnit, fixed, flops, percent, plural, type Quantity, signed, text } from "../../format/numbers";
import { byChange, changeClass, type Changes, changesOf, type NodeChange } from "../../tools/op-changes";
import { band, furtherChildren, operationNamed, type OpNode, type OpProfile, opProfile, programsOf, type Row, rowsInView, worst } from "../../tools/op-profile";
import { ofWhole } from "../../tools/compare";
import { fieldsOf, isTable, numberOf, textOf } from "../../tools/tables";
import { href, parameter, setQuery } from "../../url";
import { BaseChooser } from "./base";
import type { ToolViewProps } from "../tool/page";
import { NodeCard } from "./card";

const LIMITS = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
const GROUPS = [["program", "Program"], ["category", "Category"], ["provenance", "Provenance"]] as const;
type Group = (typeof GROUPS)[number][0];

export function OpProfilePage(props: ToolViewProps) {
  const { capture } = props;
  const group = GROUPS.find(([id]) => id === parameter("group"))?.[0] ?? "program";
  const asked = {
    ...(group === "program" ? {} : { group_by: group }),
    ...(parameter("idle") === "1" ? { idle: "include" } : {}),
    ...(parameter("sort") === "wasted" ? { sort: "wasted" } : {}),
    // A link to one operation finds it however far down it is.
    ...(parameter("program") && parameter("q") ? { children: "10000" } : {}),
  };
  const isDefault = Object.keys(asked).length === 0;
  const host = props.result.scope.hosts.length === 1 ? (props.result.scope.hosts[0] ?? null) : null;
  const other = useResource(isDefault ? null : `${capture.id} ${host ?? ""} ${JSON.stringify(asked)}`, (abort) => api.tool(capture.id, "op_profile", parameter("host"), abort, asked));
  const result = isDefault ? props.result : other.value.value;
  const base = parameter("base");
  const compared = useResource(base && base !== capture.id ? `${base} ${capture.id}` : null, (abort) => api.compare(ofWhole(base as string, capture.id), "op_profile", abort));
  const comparison = base && compared.value.value?.status === "ok" ? compared.value.value : null;
  const changes = useMemo(() => (result && comparison ? changesOf(opProfile(result), comparison) : null), [result, comparison]);
  return (
    <>
      {result && <Answer profile={opProfile(result)} />}
      {props.advice}
      <Controls group={group} result={result} capture={capture} />
      {compared.error.value && <Failure error={compared.error.value} retry={compared.reload} />}
      {base && compared.value.value?.status === "not_comparable" && <section class="panel"><NoData reasons={compared.value.value.reasons} fallback="The captures cannot be compared." /></section>}
      {changes && comparison && <Compared changes={changes} base={base as string} capture={capture.id} basis={comparison.basis} />}
      {result ? <Tree {...props} result={result} asked={asked} changes={changes} key={JSON.stringify(asked)} /> : other.error.value ? <Failure error={other.error.value} retry={other.reload} /> : <Loading what="Building the tree" />}
    </>
  );
}

function Answer({ profile }: { profile: OpProfile }) {
  const most = worst(profile);
  if (!profile.root || !most) return null;
  const { flopsUtilization, hbmUtilization } = profile.root;
  const clause = most.wasted !== null ? `${most.name} wastes most: ${percent(most.wasted)} of the time.` : `${most.name} takes ${percent(most.timeRatio)} of the time.`;
  const uses = [flopsUtilization === null ? null : `FLOPS ${percent(flopsUtilization)}`, hbmUtilization === null ? null : `HBM ${percent(hbmUtilization)}`].filter((one) => one !== null).join(", ");
  const sums = profile.place === "host_execution" ? "Times are sums over host threads." : `Times are sums over cores and hosts. Idle (${text(duration(profile.idleUs / 1000))}) is ${profile.includesIdle ? "a row of its own" : "left out"}.`;
  return <Verdict tone="info" clause={clause} sentence={uses ? `All operations together reach ${uses} of peak.` : "The capture does not tell the device's peak rates."} ruledOut={sums} />;
}

/** What the tree cannot show: what the base alone has. */
function Compared({ changes, base, capture, basis }: { changes: Changes; base: string; capture: string; basis: string }) {
  const [longest] = changes.gone;
  const gone = longest ? `${plural(changes.gone.length, "operation")} of the base ${changes.gone.length === 1 ? "is" : "are"} gone, the longest ${longest.name}. ` : "";
  const times = basis === "step" ? "Changes are of the self time of a step of one core." : "Changes are of the whole captures: one of them has no steps.";
  return <p class="quiet" data-testid="op-changes">{gone}{times} Grey is within noise, pale not judged. <a href={href("/compare", { base, capture, tool: "op_profile" })}>All changes</a></p>;
}

function Controls({ group, result, capture }: { group: Group; result: ToolViewProps["result"] | null; capture: ToolViewProps["capture"] }) {
  const table = fieldsOf(result?.result)["nodes"];
  const programs = result ? programsOf(opProfile(result)) : [];
  const program = parameter("program") ?? "";
  return (
    <div class="pod-controls">
      <Segmented label="Group by" options={GROUPS} value={group} onChange={(value) => setQuery({ group: value === "program" ? null : value, pin: null })} />
      {(programs.length > 1 || program !== "") && (
        <Combobox label="Program" value={program} options={[{ value: "", text: "All programs" }, ...programs.map(({ id, name }) => ({ value: id, text: name }))]} onChange={(id) => setQuery({ program: id || null, pin: null })} />
      )}
      <Combobox label="Sort" value={parameter("sort") ?? ""} options={[{ value: "", text: "Time" }, { value: "wasted", text: "Wasted" }, ...(parameter("base") ? [{ value: "change", text: "Change" }] : [])]} onChange={(sort) => setQuery({ sort: sort || null })} />
      <Combobox label="Children" value={parameter("n") ?? "10"} options={LIMITS.map((limit) => ({ value: String(limit), text: String(limit) }))} onChange={(n) => setQuery({ n: n === "10" ? null : n })} />
      <BaseChooser capture={capture} />
      <Switch label="Hide idle" on={parameter("idle") !== "1"} onChange={(on) => setQuery({ idle: on ? null : 1 })} />
      <Switch label="Top 90% only" on={parameter("top") === "1"} onChange={(on) => setQuery({ top: on ? 1 : null })} />
      <span class="spring" />
      <SearchField label="Op, framework name or source" placeholder="Find an op" value={parameter("q") ?? ""} onInput={(q) => setQuery({ q }, "replace")} />
      {isTable(table) && <CsvButton file={`op_profile-${group}`} header={table.columns.map((column) => column.id)} rows={() => table.rows} />}
    </div>
  );
}

function Tree({ capture, tools, result, asked, changes }: ToolViewProps & { asked: Readonly<Record<string, string>>; changes: Changes | null }) {
  const profile = useMemo(() => opProfile(result), [result]);
  const [toggled, setToggled] = useState<ReadonlySet<string>>(new Set());
  const [whole, setWhole] = useState<ReadonlySet<string>>(new Set());
  const [, redraw] = useState(0);
  const [focused, setFocused] = useState<string | null>(null);
  const root = profile.root;
  if (!root || root.childCount === 0) return <section class="panel"><NoData reasons={result.reasons} fallback="No operation was recorded." /></section>;
  const ordered = changes && parameter("sort") === "change" ? byChange(root, changes) : root;
  const rows = rowsInView(ordered, { toggled, whole, most: Number(parameter("n") ?? 10) || 10, top90: parameter("top") === "1", search: parameter("q") ?? "", program: parameter("program") ?? "" });
  const pin = parameter("pin");
  const pinned = (pin === null ? operationNamed(profile, (parameter("q") ?? "").trim(), parameter("program") ?? "") : profile.nodes.get(pin)) ?? worst(profile) ?? root.children[0] ?? root;
  const flip = (set: ReadonlySet<string>, id: string): ReadonlySet<string> => {
    const next = new Set(set);
    if (!next.delete(id)) next.add(id);
    return next;
  };
  const showAll = async (node: OpNode): Promise<void> => {
    let cursor = node.nextCursor;
    if (cursor !== null) {
      const more = await api.tool(capture.id, "op_profile", parameter("host"), undefined, { ...asked, cursor, children: "1000" });
      const found = furtherChildren(more, node.id);
      for (const child of found.nodes) node.children.push(child);
      cursor = found.nextCursor;
      (node as { nextCursor: string | null }).nextCursor = cursor;
      redraw((turn) => turn + 1);
    }
    setWhole(new Set([...whole, node.id]));
  };
  const nodes = rows.flatMap((row) => ("node" in row ? [row] : []));
  const onKeyDown = (event: KeyboardEvent): void => {
    const at = nodes.findIndex((row) => row.node.id === (focused ?? pinned.id));
    const row = nodes[at];
    const step = (to: number): void => {
      const next = nodes[Math.min(Math.max(to, 0), nodes.length - 1)];
      if (!next) return;
      setFocused(next.node.id);
      document.getElementById(`op-${next.node.id}`)?.scrollIntoView({ block: "nearest" });
    };
    if (event.metaKey || event.ctrlKey || event.altKey) return;
    if (event.key === "ArrowDown" || event.key === "j") step(at + 1);
    else if (event.key === "ArrowUp" || event.key === "k") step(at - 1);
    else if (event.key === "ArrowRight" && row && !row.isOpen && row.node.childCount > 0) setToggled(flip(toggled, row.node.id));
    else if (event.key === "ArrowLeft" && row?.isOpen) setToggled(flip(toggled, row.node.id));
    else if (event.key === "Enter" && row) setQuery({ pin: row.node.id }, "replace");
    else return;
    event.preventDefault();
  };
  const times = durationUnit(Math.max(...nodes.map((row) => row.node.selfUs / 1000), 0));
  const decimals = columnDecimals(nodes.map((row) => row.node.selfUs / 1000 / times.factor));
  return (
    <div class="columns op-profile">
      <section class="panel">
        <div class="table-scroll" tabIndex={0} role="region" aria-label="Operations" onKeyDown={onKeyDown}>
          <table class="data op-tree" role="treegrid">
            <thead>
              <tr>
                <th scope="col">Op</th>
                <th scope="col" class="num">Time <small>%</small></th>
                <th scope="col" class="num">Self <small>{times.unit}</small></th>
                {changes && <th scope="col" class="num" title="Self time against the base's">Change <small>µs, %</small></th>}
                <th scope="col" class="num">FLOPS <small>util.</small></th>
                <th scope="col" class="num">HBM <small>util.</small></th>
                <th scope="col" class="num" title="Time share × (1 − the higher of FLOPS and HBM utilization)">Wasted</th>
                <th scope="col" class="num">Count</th>
                <th scope="col" class="num">Avg</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((row) => (
                <TreeRow
                  key={"node" in row ? row.node.id : `${row.moreOf.id} more`}
                  row={row}
                  changes={changes}
                  self={(node) => fixed(node.selfUs / 1000 / times.factor, decimals)}
                  selected={"node" in row && row.node.id === pinned.id}
                  focused={"node" in row && row.node.id === focused}
                  onToggle={(node) => setToggled(flip(toggled, node.id))}
                  onMore={(node) => void showAll(node)}
                />
              ))}
            </tbody>
          </table>
          {nodes.length === 0 && <p class="table-empty">No op matches.</p>}
        </div>
      </section>
      <NodeCard capture={capture} node={pinned} hasTrace={tools.some((tool) => tool.name === "trace_viewer")} />
    </div>
  );
}

function TreeRow(props: {
  row: Row;
  changes: Changes | null;
  self: (node: OpNode) => string;
  selected: boolean;
  focused: boolean;
  onToggle: (node: OpNode) => void;
  onMore: (node: OpNode) => void;
}) {
  const { row } = props;
  const indent = { paddingLeft: `${8 + row.level * 14}px` };
  if ("moreOf" in row) {
    return (
      <tr>
        <td style={indent}><button type="button" class="link-button" onClick={() => props.onMore(row.moreOf)}>{count(row.hidden)} more</button></td>
        <td class="num"><TimeBar ratio={row.timeRatio} /></td>
        <td colSpan={props.changes ? 7 : 6} />
      </tr>
    );
  }
  const { node } = row;
  const isGroup = node.kind === "program" || node.kind === "category" || node.kind === "scope";
  const opens = node.childCount > 0;
  const average = node.averageUs === null || node.kind === "category" ? null : duration(node.averageUs / 1000);
  return (
    <tr id={`op-${node.id}`} aria-level={row.level + 1} aria-expanded={opens ? row.isOpen : undefined} aria-selected={props.selected} class={props.focused ? "focused" : ""} onClick={() => setQuery({ pin: node.id }, "replace")}>
      <td style={indent} title={node.name}>
        <span class="op-cell">
          {opens ? (
            <button
              type="button"
              class={`twist ${row.isOpen ? "open" : ""}`}
              aria-label={row.isOpen ? "Close" : "Open"}
              onClick={(event) => {
                event.stopPropagation();
                props.onToggle(node);
              }}
            >
              <Icon name="right" />
            </button>
          ) : <i class="twist" />}
          <span class={isGroup ? "strong" : "mono"}>{node.name}</span>
          <span class="quiet cut">{isGroup ? "" : shortName(textOf(node.fields["framework_name"]))}</span>
        </span>
      </td>
      <td class="num"><TimeBar ratio={node.timeRatio} /></td>
      <td class="num">{props.self(node)}</td>
      {props.changes && <td class="num"><ChangeCell one={props.changes.of.get(node.id) ?? null} largestUs={props.changes.largestUs} /></td>}
      <td class="num"><UseBar ratio={node.flopsUtilization} other={node.hbmUtilization} none={rateOf(node, "measured_flops_per_second", flops) ?? "no FLOPs"} /></td>
      <td class="num"><UseBar ratio={node.hbmUtilization} other={node.flopsUtilization} none={rateOf(node, "hbm_bytes_per_second", bandwidth) ?? ""} /></td>
      <td class="num">{node.wasted === null ? "" : percent(node.wasted)}</td>
      <td class="num quiet">{node.occurrences === null || isGroup ? "" : count(node.occurrences)}</td>
      <td class="num quiet">{average ? text(average) : ""}</td>
    </tr>
  );
}

/** The end of a framework's name says what the operation is. */
function shortName(name: string | null): string {
  return name ? name.split("/").slice(-2).join(" / ") : "";
}

/** Where no peak is known, the rate itself. */
function rateOf(node: OpNode, field: string, format: (value: number) => Quantity): string | null {
  const value = numberOf(node.fields[field]);
  return value === null || value === 0 ? null : text(format(value));
}

const CHANGE_BAR = 64;

function ChangeCell({ one, largestUs }: { one: NodeChange | null; largestUs: number }) {
  if (one === null) return <span class="quiet">unknown</span>;
  const long = largestUs > 0 ? Math.min(Math.abs(one.changeUs) / largestUs, 1) * (CHANGE_BAR / 2) : 0;
  const middle = CHANGE_BAR / 2;
  return (
    <span class="change-cell" title={`${fixed(one.baseUs, 1)} → ${fixed(one.otherUs, 1)} µs, ${one.judgement.replace("_", " ")}`}>
      <svg width={CHANGE_BAR} height="12" aria-hidden="true">
        <line class="from" x1={middle} x2={middle} y1="0" y2="12" />
        <rect class={changeClass(one)} x={one.changeUs > 0 ? middle : middle - long} y="1" width={long} height="10" rx="1" />
      </svg>
      <span class={`amount ${one.judgement === "within_noise" ? "quiet" : ""}`}>{signed(one.changeUs, 1)}</span>
      <span class="share quiet">{one.isNew ? "new" : one.ratio === null ? "" : change(one.ratio)}</span>
    </span>
  );
}

function TimeBar({ ratio }: { ratio: number }) {
  return <span class="with-bar"><Bar ratio={ratio} /><span class="bar-number">{percent(ratio)}</span></span>;
}

function UseBar({ ratio, other, none }: { ratio: number | null; other: number | null; none: string }) {
  if (ratio === null || ratio === 0) return <span class="quiet">{none}</span>;
  return <span class="with-bar"><Bar ratio={ratio} class={band(ratio, other)} /><span class="bar-number">{percent(ratio)}</span></span>;
}

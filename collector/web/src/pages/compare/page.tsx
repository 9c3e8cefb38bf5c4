/** Two captures, hosts or ranges of steps side by side: what is slower, where that comes from, which rows changed. */
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { AskedPair, AskedSide, Comparison, ToolResult } from "../../api/types";
import { allCaptures } from "../../captures-store";
import { Failure, IconButton, Loading, NoData, Panel, Verdict } from "../../components/basics";
import { CopyLink } from "../../components/copy";
import { change, fixed, plural, points, signed, significant } from "../../format/numbers";
import {
  categoryChanges,
  defaultPair,
  hostChanges,
  isSameSide,
  type Judgement,
  LISTS_STEPS,
  ownWorkChange,
  ownWorkOf,
  pairQuery,
  type StepChange,
  stepDurations,
  stepTime,
  total,
} from "../../tools/compare";
import { placeOf, toolPath } from "../../tools/pages";
import { href, parameter, setQuery } from "../../url";
import { HostChanges } from "./hosts";
import { ChangedRows } from "./rows";
import { SideChooser } from "./sides";
import { StepTimes } from "./step-times";
import { Waterfall } from "./waterfall";

const DEFAULT_TOOL = "op_profile";

interface Found {
  readonly pair: AskedPair;
  readonly overview: Comparison;
  readonly hosts: Comparison | null;
  /** Times of every step of A and of B: of whole steps, or of the own work of single hosts. */
  readonly times: readonly [readonly number[], readonly number[]];
}

/** Hosts of one job wait for each other, so their steps are equally long: their own work tells them apart. */
const ofHosts = ({ base, other }: AskedPair): boolean => base.host !== null && other.host !== null;

async function load(pair: AskedPair, abort: AbortSignal): Promise<Found> {
  const tool = ofHosts(pair) ? "pod_viewer" : "overview_page";
  const times = (side: AskedSide, result: ToolResult): readonly number[] =>
    ofHosts(pair) ? ownWorkOf(result, side.host as string, side.steps) : stepDurations(result, side.steps);
  const [overview, hosts, before, after] = await Promise.all([
    api.compare(pair, "overview_page", abort),
    api.compare(pair, "pod_viewer", abort).catch(() => null),
    api.tool(pair.base.capture, tool, null, abort),
    api.tool(pair.other.capture, tool, null, abort),
  ]);
  return { pair, overview, hosts, times: [times(pair.base, before), times(pair.other, after)] };
}

function askedPair(): { base: AskedSide | null; other: AskedSide | null } {
  const pair = defaultPair(allCaptures.value, parameter("capture"));
  const [base, other] = [parameter("base") ?? pair.base, parameter("capture") ?? pair.other];
  return {
    base: base ? { capture: base, host: parameter("base_host"), steps: parameter("base_steps") } : null,
    other: other ? { capture: other, host: parameter("host"), steps: parameter("steps") } : null,
  };
}

export function ComparePage() {
  const captures = allCaptures.value;
  const { base, other } = askedPair();
  const pair = base && other && !isSameSide(base, other) ? { base, other } : null;
  const asksSteps = Boolean(base?.steps || other?.steps);
  const tool = parameter("tool") ?? DEFAULT_TOOL;
  const key = pair && JSON.stringify(pair);
  const found = useResource(key, (abort) => load(pair as AskedPair, abort));
  const rows = useResource(key && `${key} ${tool}`, (abort) => api.compare(pair as AskedPair, tool, abort));
  const value = found.value.value;
  const choose = (a: AskedSide | null, b: AskedSide | null): void => {
    if (a && b) setQuery(pairQuery({ base: a, other: b }));
    else setQuery({ base: a?.capture ?? null, capture: b?.capture ?? null });
  };
  return (
    <>
      <header class="compare-bar">
        <SideChooser letter="A" captures={captures} side={base} onChoose={(side) => choose(side, other)} />
        <IconButton icon="swap" label="Swap A and B" onClick={() => choose(other, base)} />
        <SideChooser letter="B" captures={captures} side={other} onChoose={(side) => choose(base, side)} />
        <span class="spring" />
        <CopyLink />
      </header>
      <div class="content" data-testid="comparison">
        {pair === null && (
          <section class="panel">
            <NoData reasons={[]} fallback={base && other ? "A and B are the same. Choose another capture, host or range of steps for one of them." : "Two captures with results are needed: choose A and B, or take another capture."} />
          </section>
        )}
        {found.error.value && <Failure error={found.error.value} retry={found.reload} />}
        {pair !== null && !value && !found.error.value && <Loading what="Comparing" />}
        {value && <Steps found={value} />}
        {pair !== null && value?.overview.status === "ok" && (
          <div class="compare-rows">
            {asksSteps && !LISTS_STEPS.has(tool) ? (
              <ChangedRows comparison={null} tool={tool} pair={pair} asksSteps why={`${placeOf(tool).title} does not tell steps apart. Choose another tool, or all steps.`} />
            ) : rows.value.value ? (
              <ChangedRows comparison={rows.value.value} tool={tool} pair={pair} asksSteps={asksSteps} />
            ) : rows.error.value ? (
              <Failure error={rows.error.value} retry={rows.reload} />
            ) : (
              <Loading what="Comparing rows" />
            )}
            {value.hosts?.status === "ok" && !ofHosts(pair) && hostChanges(value.hosts).length > 0 && (
              <Panel title="Own work per host" subtitle="ms a step" tools={<span class="compare-legend"><span>○ A</span><span>● B</span></span>}>
                <HostChanges hosts={hostChanges(value.hosts)} />
              </Panel>
            )}
          </div>
        )}
      </div>
    </>
  );
}

const percentOf = (step: StepChange): string => (step.ratio === null ? "" : ` (${fixed(Math.abs(step.ratio) * 100, 1)}%)`);

/** Whether one is slower, in the words of what is compared. */
function clauseOf(pair: AskedPair, step: StepChange): string {
  const size = `${significant(Math.abs(step.change))} ms${percentOf(step)}`;
  const what = ofHosts(pair) ? "own work of A and B differs" : "steps of A and B differ";
  if (step.judgement !== "significant") {
    return `The ${what} by ${size}, ${step.judgement === "within_noise" ? "within noise" : "of too few steps to judge"}.`;
  }
  const host = pair.other.host;
  if (!ofHosts(pair)) return `B is ${size} ${step.change > 0 ? "slower" : "faster"} per step.`;
  return pair.base.host === host ? `${host} works ${size} ${step.change > 0 ? "longer" : "shorter"} per step in B.` : `${host} works ${size} ${step.change > 0 ? "longer" : "shorter"} per step than ${pair.base.host}.`;
}

function Steps({ found }: { found: Found }) {
  const { overview, pair, hosts } = found;
  if (overview.status !== "ok") {
    return <section class="panel"><NoData reasons={overview.reasons} fallback="These cannot be compared." /></section>;
  }
  const single = ofHosts(pair);
  const own = single && hosts?.status === "ok" ? ownWorkChange(hosts) : null;
  const step = single ? own : stepTime(overview);
  // What a host waits for in collectives is the others' work, not its own.
  const changes = single ? (own && hosts ? categoryChanges(hosts).filter((one) => one.category.id !== "collective") : []) : categoryChanges(overview);
  const [before, after] = found.times;
  const notes = overview.notes.map((note) => `${note.message}.`).join(" ");
  const late = hosts && !single ? hostChanges(hosts).filter((one) => one.judgement === "significant" && (one.other ?? 0) > (one.base ?? 0)) : [];
  const [latest] = [...late].sort((a, b) => (b.other ?? 0) - (b.base ?? 0) - ((a.other ?? 0) - (a.base ?? 0)));
  const grown = [...changes].filter((one) => one.judgement === "significant").sort((a, b) => Math.abs(b.change) - Math.abs(a.change))[0];
  const what = single ? "own work" : "mean step";
  return (
    <>
      {step ? (
        <Verdict
          tone={step.judgement !== "significant" ? "info" : step.change > 0 ? "err" : "ok"}
          clause={clauseOf(pair, step)}
          sentence={
            <>
              {grown && `${grown.category.label} ${grown.change > 0 ? "grew" : "shrank"} by ${significant(Math.abs(grown.change))} ms`}
              {grown && latest && "; "}
              {latest && <><a href={href(toolPath(pair.other.capture, "pod_viewer"), { host: latest.host })}>{latest.host}</a> works {significant((latest.other ?? 0) - (latest.base ?? 0))} ms longer than before</>}
              {(grown || latest) && "."}
            </>
          }
          ruledOut={notes || `${overview.other.device_type || "no device"}, ${plural(overview.base.scope.hosts.length, "host")} and ${plural(before.length, "step")} in A, ${plural(overview.other.scope.hosts.length, "host")} and ${plural(after.length, "step")} in B.`}
        />
      ) : (
        <Verdict tone="info" clause="The steps cannot be compared." sentence="One of the captures has no complete steps." ruledOut={notes} />
      )}
      <Figures found={found} own={own} />
      {step && (
        <div class="compare-pair">
          <Panel title={`Where the ${significant(Math.abs(step.change))} ms come from`} subtitle={`${what}, ms by category`}><Waterfall step={step} changes={changes} /></Panel>
          <Panel title={single ? "Own work of every step" : "Step times"} subtitle={`${pair.base.steps || pair.other.steps ? "the complete steps asked for" : "all complete steps"}, both sides`}>{before.length > 0 && after.length > 0 && <StepTimes base={before} other={after} step={step} what={single ? "Own work" : "Step time"} />}</Panel>
        </div>
      )}
    </>
  );
}

interface Figure {
  readonly label: string;
  readonly unit: string;
  readonly base: number | null;
  readonly other: number | null;
  /** Ratios change in points. */
  readonly share?: boolean;
  readonly moreIsBetter?: boolean;
  readonly judgement?: Judgement;
  readonly absent?: string;
}

function Figures({ found, own }: { found: Found; own: StepChange | null }) {
  const { overview, pair } = found;
  const step = stepTime(overview);
  // Of a range of steps nothing but times is known.
  const asksSteps = Boolean(pair.base.steps || pair.other.steps);
  const part = (id: string): Omit<Figure, "label"> => {
    const one = categoryChanges(overview).find((candidate) => candidate.category.id === id);
    return { unit: "ms", base: one?.base ?? null, other: one?.other ?? null, ...(one ? { judgement: one.judgement } : {}) };
  };
  const share = (name: string): Omit<Figure, "label"> => ({ unit: "%", ...(asksSteps ? { base: null, other: null, absent: "not known by step" } : total(overview, `utilization.${name}`)), share: true, moreIsBetter: true });
  const figures: Figure[] = [
    { label: "Step time, mean", unit: "ms", base: step?.base ?? null, other: step?.other ?? null, ...(step ? { judgement: step.judgement } : {}) },
    ...(own ? [{ label: "Own work, mean", unit: "ms", base: own.base, other: own.other, judgement: own.judgement }] : [{ label: "FLOPS utilisation", ...share("flops_utilization_ratio") }]),
    { label: "Duty cycle", ...share("duty_cycle_ratio") },
    { label: "Device compute", ...part("compute") },
    { label: "Collectives", ...part("collective") },
    { label: "Input", ...part("input") },
  ];
  return (
    <section class="tiles" aria-label="Key figures">
      {figures.map((figure) => <FigureTile key={figure.label} figure={figure} />)}
    </section>
  );
}

function FigureTile({ figure }: { figure: Figure }) {
  const { base, other, share } = figure;
  const shown = (value: number): string => (share ? fixed(value * 100, 1) : significant(value));
  if (base === null || other === null) {
    return <div class="tile"><span class="tile-label">{figure.label}</span><span class="tile-absent">{figure.absent ?? "not measured"}</span></div>;
  }
  const moved = other - base;
  const none = !/[1-9]/.test(share ? points(moved) : signed(moved, 3));
  const quiet = none || figure.judgement === "within_noise";
  const good = figure.moreIsBetter ? moved > 0 : moved < 0;
  const by = share ? points(moved) : `${signed(moved, Math.abs(base) >= 100 ? 1 : 3)} ms${base ? `, ${change(moved / base)}` : ""}`;
  return (
    <div class="tile">
      <span class="tile-label">{figure.label} <small>{figure.unit}</small></span>
      <span class="compare-tile">{shown(base)} → <b>{shown(other)}</b></span>
      <span class={`tile-context ${quiet ? "" : good ? "better" : "worse"}`}>
        {none ? "no change" : `${moved > 0 ? "▲" : "▼"} ${by}${figure.judgement === "within_noise" ? ", within noise" : ""}`}
      </span>
    </div>
  );
}

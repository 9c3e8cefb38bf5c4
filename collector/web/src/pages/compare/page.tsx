/** Two captures side by side: is the step slower, where the difference comes from, which rows changed. */
import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import type { Capture, Comparison, ToolResult } from "../../api/types";
import { allCaptures } from "../../captures-store";
import { Failure, IconButton, Loading, NoData, Panel, Verdict } from "../../components/basics";
import { Combobox } from "../../components/combobox";
import { CopyLink } from "../../components/copy";
import { change, fixed, ofTotal, plural, points, signed, significant } from "../../format/numbers";
import { ago } from "../../format/time";
import { categoryChanges, defaultPair, hostChanges, type Judgement, stepDurations, stepTime, total } from "../../tools/compare";
import { toolPath } from "../../tools/pages";
import { parameter, setQuery } from "../../url";
import { runOf, startedAt } from "../captures/filter";
import { HostChanges } from "./hosts";
import { ChangedRows } from "./rows";
import { StepTimes } from "./step-times";
import { Waterfall } from "./waterfall";

const MOST_CAPTURES = 50;
const DEFAULT_TOOL = "op_profile";

interface Found {
  readonly overview: Comparison;
  readonly hosts: Comparison | null;
  readonly results: readonly [ToolResult, ToolResult];
}

async function load(base: string, other: string, abort: AbortSignal): Promise<Found> {
  const [overview, hosts, before, after] = await Promise.all([
    api.compare(base, other, "overview_page", abort),
    api.compare(base, other, "pod_viewer", abort).catch(() => null),
    api.tool(base, "overview_page", null, abort),
    api.tool(other, "overview_page", null, abort),
  ]);
  return { overview, hosts, results: [before, after] };
}

export function ComparePage() {
  const captures = allCaptures.value;
  const pair = defaultPair(captures, parameter("capture"));
  const base = parameter("base") ?? pair.base;
  const other = parameter("capture") ?? pair.other;
  const tool = parameter("tool") ?? DEFAULT_TOOL;
  const key = base && other && base !== other ? `${base} ${other}` : null;
  const found = useResource(key, (abort) => load(base as string, other as string, abort));
  const rows = useResource(key && `${key} ${tool}`, (abort) => api.compare(base as string, other as string, tool, abort));
  const value = found.value.value;
  return (
    <>
      <header class="compare-bar">
        <SideChooser letter="A" captures={captures} chosen={base} onChoose={(id) => setQuery({ base: id, capture: other })} />
        <IconButton icon="swap" label="Swap A and B" onClick={() => setQuery({ base: other, capture: base })} />
        <SideChooser letter="B" captures={captures} chosen={other} onChoose={(id) => setQuery({ base, capture: id })} />
        <span class="spring" />
        <CopyLink />
      </header>
      <div class="content" data-testid="comparison">
        {key === null && <section class="panel"><NoData reasons={[]} fallback="Two captures with results are needed: choose A and B, or take another capture." /></section>}
        {found.error.value && <Failure error={found.error.value} retry={found.reload} />}
        {key !== null && !value && !found.error.value && <Loading what="Comparing" />}
        {value && <Steps found={value} other={other as string} />}
        {key !== null && value?.overview.status === "ok" && (
          <div class="compare-rows">
            {rows.value.value ? (
              <ChangedRows comparison={rows.value.value} tool={tool} base={base as string} other={other as string} />
            ) : rows.error.value ? (
              <Failure error={rows.error.value} retry={rows.reload} />
            ) : (
              <Loading what="Comparing rows" />
            )}
            {value.hosts?.status === "ok" && hostChanges(value.hosts).length > 0 && (
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

function SideChooser(props: { letter: string; captures: readonly Capture[]; chosen: string | null; onChoose: (id: string) => void }) {
  const usable = props.captures.filter((capture) => capture.analysis?.state === "done" || capture.id === props.chosen);
  const chosen = usable.find((capture) => capture.id === props.chosen);
  const now = new Date();
  const newest = new Map<string, Capture>();
  for (const capture of usable) if (!newest.has(runOf(capture))) newest.set(runOf(capture), capture);
  const ofRun = usable.filter((capture) => chosen && runOf(capture) === runOf(chosen)).slice(0, MOST_CAPTURES);
  return (
    <div class="compare-side">
      <span class={`compare-letter ${props.letter === "B" ? "other" : ""}`}>{props.letter}</span>
      <Combobox label="Run" value={chosen ? runOf(chosen) : ""} options={[...newest.keys()].map((run) => ({ value: run, text: run }))} onChange={(run) => props.onChoose((newest.get(run) as Capture).id)} />
      <Combobox label="Capture" value={props.chosen ?? ""} options={ofRun.map((capture) => ({ value: capture.id, text: capture.session, note: ago(startedAt(capture), now) }))} onChange={props.onChoose} />
      {chosen && <small>{chosen.summary?.step_count != null ? `${plural(chosen.summary.step_count, "step")}, ` : ""}{ofTotal(chosen.hosts_done, chosen.hosts_total)} hosts, {ago(startedAt(chosen), now)}</small>}
    </div>
  );
}

function Steps({ found, other }: { found: Found; other: string }) {
  const { overview } = found;
  if (overview.status !== "ok") {
    return <section class="panel"><NoData reasons={overview.reasons} fallback="These captures cannot be compared." /></section>;
  }
  const step = stepTime(overview);
  const changes = categoryChanges(overview);
  const [before, after] = [stepDurations(found.results[0]), stepDurations(found.results[1])];
  const notes = overview.notes.map((note) => `${note.message}.`).join(" ");
  const late = found.hosts ? hostChanges(found.hosts).filter((one) => one.judgement === "significant" && (one.other ?? 0) > (one.base ?? 0)) : [];
  const [latest] = [...late].sort((a, b) => (b.other ?? 0) - (b.base ?? 0) - ((a.other ?? 0) - (a.base ?? 0)));
  const grown = [...changes].filter((one) => one.judgement === "significant").sort((a, b) => Math.abs(b.change) - Math.abs(a.change))[0];
  const sure = step?.judgement === "significant";
  const size = step ? `${significant(Math.abs(step.change))} ms${step.ratio === null ? "" : ` (${fixed(Math.abs(step.ratio) * 100, 1)}%)`}` : "";
  return (
    <>
      {step ? (
        <Verdict
          tone={!sure ? "info" : step.change > 0 ? "err" : "ok"}
          clause={sure ? `B is ${size} ${step.change > 0 ? "slower" : "faster"} per step.` : `The steps of A and B differ by ${size}, within noise.`}
          sentence={
            <>
              {grown && `${grown.category.label} ${grown.change > 0 ? "grew" : "shrank"} by ${significant(Math.abs(grown.change))} ms`}
              {grown && latest && "; "}
              {latest && <><a href={`${toolPath(other, "pod_viewer")}?host=${encodeURIComponent(latest.host)}`}>{latest.host}</a> works {significant((latest.other ?? 0) - (latest.base ?? 0))} ms longer than before</>}
              {(grown || latest) && "."}
            </>
          }
          ruledOut={notes || `${overview.other.device_type || "no device"}, ${plural(overview.base.scope.hosts.length, "host")} and ${plural(overview.base.step_count, "step")} in A, ${plural(overview.other.scope.hosts.length, "host")} and ${plural(overview.other.step_count, "step")} in B.`}
        />
      ) : (
        <Verdict tone="info" clause="The steps cannot be compared." sentence="One of the captures has no complete steps." ruledOut={notes} />
      )}
      <Figures found={found} />
      {step && (
        <div class="compare-pair">
          <Panel title={`Where the ${significant(Math.abs(step.change))} ms come from`} subtitle="mean step, ms by category"><Waterfall step={step} changes={changes} /></Panel>
          <Panel title="Step times" subtitle="all complete steps, both captures">{before.length > 0 && after.length > 0 && <StepTimes base={before} other={after} step={step} />}</Panel>
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
}

function Figures({ found }: { found: Found }) {
  const { overview } = found;
  const step = stepTime(overview);
  const part = (id: string): Omit<Figure, "label"> => {
    const one = categoryChanges(overview).find((candidate) => candidate.category.id === id);
    return { unit: "ms", base: one?.base ?? null, other: one?.other ?? null, ...(one ? { judgement: one.judgement } : {}) };
  };
  const share = (name: string): Omit<Figure, "label"> => ({ unit: "%", ...total(overview, `utilization.${name}`), share: true, moreIsBetter: true });
  const figures: Figure[] = [
    { label: "Step time, mean", unit: "ms", base: step?.base ?? null, other: step?.other ?? null, ...(step ? { judgement: step.judgement } : {}) },
    { label: "FLOPS utilisation", ...share("flops_utilization_ratio") },
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
    return <div class="tile"><span class="tile-label">{figure.label}</span><span class="tile-absent">not measured</span></div>;
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

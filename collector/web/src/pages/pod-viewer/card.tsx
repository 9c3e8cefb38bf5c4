/** One host against the others in one step. */
import { downloadUrl } from "../../api/client";
import type { Capture } from "../../api/types";
import { Badge, Bar, IconButton } from "../../components/basics";
import { columnDecimals, duration, fixed, type Quantity, signed } from "../../format/numbers";
import { CATEGORIES } from "../../tools/categories";
import { type LateHost, lateSteps, type PodSteps, typicalHost } from "../../tools/pod";
import { median } from "../../tools/steps";
import { toolPath } from "../../tools/pages";
import { href, parameter, setQuery } from "../../url";

/** A difference below this share of the step is noise and stays grey. */
const NOTABLE_RATIO = 0.02;

function Figure({ label, value, tone }: { label: string; value: Quantity; tone?: string }) {
  return (
    <div>
      <span>{label}</span>
      <b class={tone ?? ""}>{value.value} <small>{value.unit}</small></b>
    </div>
  );
}

export function HostCard(props: { capture: Capture; pod: PodSteps; step: string; host: string; late: LateHost | null }) {
  const { pod, step, host, late, capture } = props;
  const units = pod.units.get(step) ?? [];
  const unit = units.find((candidate) => candidate.host === host);
  if (!unit) {
    return (
      <aside class="panel card" aria-label={host}>
        <header class="panel-head"><h2>{host}</h2></header>
        <p class="no-data">No record of this host in step {step}.</p>
      </aside>
    );
  }
  const middle = median(units.map((candidate) => candidate.ownMs));
  const lateIn = late && lateSteps(late, pod.stepCount);
  const over = unit.ownMs - middle;
  const typical = typicalHost(units, host);
  const decimals = columnDecimals([unit.totalMs]);
  const cores = (pod.cores.get(step) ?? []).filter((core) => core.host === host);
  const longest = Math.max(...cores.map((core) => core.ownMs), 1e-12);
  const { unit: overUnit, value: overValue } = duration(Math.abs(over), 3);
  return (
    <aside class="panel card" aria-label={host} data-testid="host-card">
      <header class="panel-head">
        <h2>{host}</h2>
        {late && <Badge tone="warn" icon={false}>late{lateIn !== null ? ` in ${lateIn} steps` : ""}</Badge>}
        <span class="spring" />
        {parameter("host") !== null && <IconButton icon="close" label="Close" onClick={() => setQuery({ host: null })} />}
      </header>
      <div class="card-figures">
        <Figure label="Own work" value={duration(unit.ownMs)} />
        {units.length > 1 && <Figure label="Over median" value={{ value: (over < 0 ? "\u2212" : "+") + overValue, unit: overUnit }} tone={over > NOTABLE_RATIO * unit.totalMs ? "worse" : ""} />}
        <Figure label="Step" value={duration(unit.totalMs)} />
      </div>
      <table class="data">
        <thead>
          <tr>
            <th scope="col">Category <small>ms</small></th>
            <th scope="col" class="num cut">{host.length > 10 ? "host" : host}</th>
            <th scope="col" class="num">median</th>
            <th scope="col" class="num">Δ</th>
          </tr>
        </thead>
        <tbody>
          {CATEGORIES.filter((category) => pod.categories.includes(category)).map((category) => {
            const own = unit.parts.get(category.id) ?? 0;
            const others = median(units.map((candidate) => candidate.parts.get(category.id) ?? 0));
            const notable = Math.abs(own - others) > NOTABLE_RATIO * unit.totalMs;
            return (
              <tr key={category.id}>
                <td><i class={`swatch cat-${category.id}`} />{category.label}</td>
                <td class="num" data-category={category.id}>{fixed(own, decimals)}</td>
                <td class="num quiet">{fixed(others, decimals)}</td>
                <td class={`num ${notable ? `strong ${own > others ? "worse" : "better"}` : "quiet"}`}>{signed(own - others, decimals)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
      {cores.length > 1 && (
        <section class="card-part">
          <h2>Own work per device <small>ms</small></h2>
          {cores.slice(0, 16).map((core) => (
            <p class="card-bar" key={core.key}>
              <span class="cut">{core.core}</span>
              <Bar ratio={core.ownMs / longest} />
              <span class="num">{fixed(core.ownMs, decimals)}</span>
            </p>
          ))}
        </section>
      )}
      {late && late.evidence.length > 0 && (
        <section class="card-part">
          <h2>Why {late.cause && <small>{late.cause}</small>}</h2>
          <ul class="evidence">{late.evidence.map((line) => <li key={line}>{line.charAt(0).toUpperCase() + line.slice(1)}.</li>)}</ul>
        </section>
      )}
      <footer class="card-foot">
        <a class="button" href={href(toolPath(capture.id, "framework_op_stats"), { host })}>Its ops</a>
        <a class="button" href={href(toolPath(capture.id, "input_pipeline_analyzer"), { host })}>Its input</a>
        {typical && <a class="button" href={href("/compare", { base: capture.id, capture: capture.id, base_host: typical.host, host, tool: "hlo_stats" })} title={`With ${typical.host}, a host of median own work in this step`}>Compare</a>}
        <a class="button" download href={downloadUrl(capture.id, { host })}>XSpace</a>
      </footer>
    </aside>
  );
}

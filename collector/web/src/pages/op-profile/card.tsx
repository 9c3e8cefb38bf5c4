/** All that is known of one node of the op profile. */
import { kernelUrl } from "../../api/client";
import type { Capture } from "../../api/types";
import { Badge, Bar, IconButton, KeyValues } from "../../components/basics";
import { bandwidth, duration, fixed, flops, percent, type Quantity, text } from "../../format/numbers";
import { band, type OpNode } from "../../tools/op-profile";
import { instructionPath, toolPath } from "../../tools/pages";
import { boundWords } from "../../tools/roofline";
import { numberOf, textOf } from "../../tools/tables";
import { href, parameter, setQuery } from "../../url";

function Use(props: { label: string; ratio: number | null; rate: Quantity | null; other?: number | null }) {
  return (
    <p class="card-use">
      <span>{props.label}</span>
      <Bar ratio={props.ratio ?? 0} class={band(props.ratio, props.other ?? null)} />
      <span class="num">{props.ratio === null ? "" : percent(props.ratio)}</span>
      <span class="num quiet">{props.rate ? text(props.rate) : "not known"}</span>
    </p>
  );
}

export function NodeCard({ capture, node, hasTrace }: { capture: Capture; node: OpNode; hasTrace: boolean }) {
  const own = (name: string): string | null => textOf(node.fields[name]);
  const rate = (name: string, format: (value: number) => Quantity): Quantity | null => {
    const value = numberOf(node.fields[name]);
    return value === null ? null : format(value);
  };
  const category = own("category");
  // The copies' node is named after one of them; its text begins with that one's name.
  const instruction = own("expression")?.split(" = ")[0]?.replace("%", "") ?? node.name;
  const average = node.averageUs === null ? null : duration(node.averageUs / 1000);
  const onChip = (name: string): number | null => numberOf(node.fields[`on_chip_${name}_utilization_ratio`]);
  const bits = numberOf(node.fields["element_bits"]);
  const padding = numberOf(node.fields["padding_ratio"]);
  const energy = numberOf(node.fields["energy_j"]);
  const stall = numberOf(node.fields["dma_stall_ratio"]);
  const tooHigh = [node.flopsUtilization, node.hbmUtilization].some((ratio) => ratio !== null && ratio >= 1);
  const facts: [string, string][] = [];
  const add = (label: string, value: string | null): void => {
    if (value !== null) facts.push([label, value]);
  };
  add("Provenance", own("framework_name"));
  add("Source", own("source"));
  add("Layout", own("layout"));
  add("Padding", padding === null ? null : percent(padding));
  add("Primitive", bits === null ? null : `${bits} bits`);
  add("Program", own("program_id"));
  add("Core", own("core_type"));
  add("Waits for DMA", stall === null ? null : percent(stall));
  add("Energy", energy === null ? null : `${fixed(energy, 3)} J`);
  add("Rematerialized", node.fields["is_rematerialized"] === true ? "yes" : null);
  add("Outside compilation", node.fields["is_outside_compilation"] === true ? "yes" : null);
  add("Flops and bytes from", own("cost_source")?.replace("_", " ") ?? null);
  const parts = node.children.filter((child) => child.kind === "part");
  const host = parameter("host");
  const program = own("program_id");
  const inGraph = instructionPath(capture.id, program, own("expression") ? instruction : null, host);
  return (
    <aside class="panel card op-card" aria-label={node.name} data-testid="op-card">
      <header class="panel-head">
        <h2 class="mono cut" title={node.name}>{node.name}</h2>
        {category && <Badge tone="plain" icon={false}>{category}</Badge>}
        <span class="spring" />
        {parameter("pin") !== null && <IconButton icon="close" label="Close" onClick={() => setQuery({ pin: null })} />}
      </header>
      <div class="card-figures">
        <Figure label="Time" value={duration(node.timeUs / 1000)} />
        <Figure label="Share" value={{ value: fixed(node.timeRatio * 100, 1), unit: "%" }} />
        {node.occurrences !== null && average && <Figure label="Count, average" value={{ value: fixed(node.occurrences, 0), unit: `× ${text(average)}` }} />}
      </div>
      <section class="card-part">
        <Use label="FLOPS" ratio={node.flopsUtilization} rate={rate("model_flops_per_second", flops)} other={node.hbmUtilization} />
        <Use label="bf16 equal" ratio={null} rate={rate("measured_flops_per_second", flops)} />
        <Use label="HBM" ratio={node.hbmUtilization} rate={rate("hbm_bytes_per_second", bandwidth)} other={node.flopsUtilization} />
        <Use label="On-chip read" ratio={onChip("read")} rate={rate("on_chip_read_bytes_per_second", bandwidth)} other={1} />
        <Use label="On-chip write" ratio={onChip("write")} rate={rate("on_chip_write_bytes_per_second", bandwidth)} other={1} />
        <p class="card-sentence">{sentence(node)}</p>
        {tooHigh && <p class="card-sentence tone-warn">More than the device can do: its count of work or its peak is wrong.</p>}
      </section>
      {own("expression") && (
        <section class="card-part">
          <h2>Expression <span class="spring" />{inGraph && <a href={inGraph}>Graph</a>}</h2>
          <pre class="expression">{own("expression")?.slice(0, 4000)}</pre>
        </section>
      )}
      {facts.length > 0 && <section class="card-part"><KeyValues rows={facts} /></section>}
      {own("source_stack") && (
        <details class="card-part">
          <summary>Stack</summary>
          <pre class="expression">{own("source_stack")}</pre>
        </details>
      )}
      {own("kernel_metadata") && (
        <details class="card-part">
          <summary>Kernel metadata</summary>
          <pre class="expression">{own("kernel_metadata")}</pre>
        </details>
      )}
      {parts.length > 0 && (
        <section class="card-part">
          <h2>Inside <small>{node.childCount} instructions</small></h2>
          <ul class="parts">
            {parts.slice(0, 12).map((part) => (
              <li key={part.id}><span class="mono cut">{part.name}</span><span class="quiet cut">{textOf(part.fields["category"])}</span></li>
            ))}
          </ul>
        </section>
      )}
      <footer class="card-foot">
        {hasTrace && <a class="button" href={href(toolPath(capture.id, "trace_viewer"), { host, q: instruction })}>Trace</a>}
        {category === "custom-call" && program !== null && (
          <a class="button" href={kernelUrl(capture.id, host, program, instruction)} target="_blank" rel="noopener">Kernel</a>
        )}
        <a class="button" href={href(toolPath(capture.id, "hlo_stats"), { host, q: instruction, program })}>HLO stats</a>
        <a class="button" href={href(toolPath(capture.id, "roofline_model"), { host, q: instruction, program })}>Roofline</a>
      </footer>
    </aside>
  );
}

function Figure({ label, value }: { label: string; value: Quantity }) {
  return (
    <div>
      <span>{label}</span>
      <b>{value.value} <small>{value.unit}</small></b>
    </div>
  );
}

function sentence(node: OpNode): string {
  const bound = textOf(node.fields["bound_by"]);
  const intensity = numberOf(node.fields["operational_intensity_flops_per_byte"]);
  const wasted = node.wasted === null ? "" : ` ${percent(node.wasted)} of the time is wasted here: better use of the chip could save at most that.`;
  const perByte = intensity === null ? "" : ` ${fixed(intensity, intensity < 10 ? 2 : 0)} FLOP per byte.`;
  return (bound ? `Bound by ${boundWords(bound)}.` : "What bounds it is not known.") + perByte + wasted;
}

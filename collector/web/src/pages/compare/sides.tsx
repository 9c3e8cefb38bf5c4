/** What A and B are: run, capture, host and steps of each. */
import { useEffect, useState } from "preact/hooks";

import { api } from "../../api/client";
import { useResource } from "../../api/resource";
import { type AskedSide, type Capture, hostName } from "../../api/types";
import { Combobox } from "../../components/combobox";
import { ofTotal, plural } from "../../format/numbers";
import { ago } from "../../format/time";
import { typedSteps } from "../../tools/compare";
import { runOf, startedAt } from "../captures/filter";

const MOST_CAPTURES = 50;

export function SideChooser(props: { letter: "A" | "B"; captures: readonly Capture[]; side: AskedSide | null; onChoose: (side: AskedSide) => void }) {
  const { letter, side, onChoose } = props;
  const usable = props.captures.filter((capture) => capture.analysis?.state === "done" || capture.id === side?.capture);
  const chosen = usable.find((capture) => capture.id === side?.capture);
  const hosts = useResource(side?.capture ?? null, (abort) => api.hosts(side?.capture as string, abort));
  const now = new Date();
  const newest = new Map<string, Capture>();
  for (const capture of usable) if (!newest.has(runOf(capture))) newest.set(runOf(capture), capture);
  const ofRun = usable.filter((capture) => chosen && runOf(capture) === runOf(chosen)).slice(0, MOST_CAPTURES);
  const names = (hosts.value.value?.items ?? []).filter((host) => host.state === "done").map(hostName);
  // Another capture may lack the host and have other steps: it is taken as a whole.
  const open = (capture: string): void => onChoose({ capture, host: null, steps: null });
  return (
    <div class="compare-side" role="group" aria-label={letter}>
      <span class={`compare-letter ${letter === "B" ? "other" : ""}`}>{letter}</span>
      <Combobox label="Run" value={chosen ? runOf(chosen) : ""} options={[...newest.keys()].map((run) => ({ value: run, text: run }))} onChange={(run) => open((newest.get(run) as Capture).id)} />
      <Combobox label="Capture" value={side?.capture ?? ""} options={ofRun.map((capture) => ({ value: capture.id, text: capture.session, note: ago(startedAt(capture), now) }))} onChange={open} />
      {side && (names.length > 1 || side.host) && (
        <Combobox
          label="Host"
          value={side.host ?? ""}
          options={[{ value: "", text: "All hosts" }, ...names.map((name) => ({ value: name, text: name }))]}
          onChange={(host) => onChoose({ ...side, host: host || null })}
        />
      )}
      {side && <StepsField letter={letter} steps={side.steps} onChange={(steps) => onChoose({ ...side, steps })} />}
      {chosen && <small>{chosen.summary?.step_count != null ? `${plural(chosen.summary.step_count, "step")}, ` : ""}{ofTotal(chosen.hosts_done, chosen.hosts_total)} hosts, {ago(startedAt(chosen), now)}</small>}
    </div>
  );
}

/** "3-7", "3 to 7", "3", or nothing for all; taken when the field is left. */
function StepsField({ letter, steps, onChange }: { letter: string; steps: string | null; onChange: (steps: string | null) => void }) {
  const shown = (steps ?? "").replace("-", " to ");
  const [text, setText] = useState(shown);
  useEffect(() => setText(shown), [shown]);
  const typed = typedSteps(text);
  const take = (): void => {
    if (typed !== undefined && typed !== steps) onChange(typed);
  };
  return (
    <label class="compare-steps">
      Steps
      <input
        value={text}
        placeholder="all"
        size={9}
        aria-label={`Steps of ${letter}`}
        aria-invalid={typed === undefined}
        title={typed === undefined ? "Write 3 to 7, 3 for one step, or nothing for all" : "3 to 7, 3, or nothing for all steps"}
        onInput={(event) => setText(event.currentTarget.value)}
        onBlur={take}
        onKeyDown={(event) => {
          if (event.key === "Enter") take();
          if (event.key === "Escape") setText(shown);
        }}
      />
    </label>
  );
}

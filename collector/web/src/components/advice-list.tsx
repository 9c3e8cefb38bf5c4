/** Advice: what was found, the figures that it rests on, what to do, and where to look. */
import type { Advice, Tool } from "../api/types";
import { evidenceWords, toolOf } from "../tools/advice";
import { placeOf, toolPath } from "../tools/pages";
import { Panel, Status } from "./basics";

const TONES = { high: "err", medium: "warn", low: "info" } as const;

export function AdviceList(props: { title: string; advice: readonly Advice[]; capture: string; tools: readonly Tool[]; open?: string; nothing?: string }) {
  return (
    <Panel title={props.title}>
      <ul class="advice">
        {props.advice.map((item) => {
          const tool = toolOf(item);
          const hasPage = tool !== null && tool !== props.open && props.tools.some((known) => known.name === tool);
          return (
            <li key={item.code} data-advice={item.code}>
              <p class="advice-title">
                {item.title}
                <Status tone={TONES[item.severity]}>{item.severity}</Status>
              </p>
              <p>{item.message} {item.action}</p>
              <p class="quiet">
                {item.evidence.map(evidenceWords).join(", ")}. <span title={item.link}>Rule {item.code}.</span>{" "}
                {hasPage && <a href={toolPath(props.capture, tool)}>{placeOf(tool).title}{"\u00a0"}→</a>}
              </p>
            </li>
          );
        })}
        {props.advice.length === 0 && props.nothing && <li><p class="quiet">{props.nothing}</p></li>}
      </ul>
    </Panel>
  );
}

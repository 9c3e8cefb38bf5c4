/** The left rail: places of the service above, the tools of the open capture below. */
import { computed, signal } from "@preact/signals";

import type { Tool } from "../api/types";
import { MOD } from "../keys";
import { GROUPS, placeOf, PLACES, toolPath } from "../tools/pages";
import { href, parameter, path } from "../url";
import { Icon, type IconName, Logo } from "./icons";

const KEY = "podscope-rail";
const folded = signal(typeof localStorage !== "undefined" && localStorage.getItem(KEY) === "folded");

export function toggleRail(): void {
  folded.value = !folded.value;
  if (folded.value) localStorage.setItem(KEY, "folded");
  else localStorage.removeItem(KEY);
}

function Entry(props: { to: string; icon: IconName; text: string; current: boolean; note?: string }) {
  return (
    <a class="rail-entry" href={props.to} aria-current={props.current ? "page" : undefined} title={props.text}>
      <Icon name={props.icon} />
      <span class="rail-text">{props.text}</span>
      {props.note && <span class="rail-note">{props.note}</span>}
    </a>
  );
}

const here = computed(() => path.value);

export function Rail(props: { capture: string | null; tools: readonly Tool[]; onHelp: () => void; onPalette: () => void; onSettings: () => void }) {
  const order = [...PLACES.keys()];
  const tools = [...props.tools].sort((a, b) => (order.indexOf(a.name) + 99) % 99 - (order.indexOf(b.name) + 99) % 99);
  return (
    <nav class={`rail ${folded.value ? "folded" : ""}`} aria-label="Pages">
      <div class="rail-head">
        <a href="/captures" class="brand" aria-label="podscope, captures">
          <Logo />
          <span class="rail-text">podscope</span>
        </a>
        <button type="button" class="key-button rail-text" aria-label="Command palette" onClick={props.onPalette}>
          <kbd>{MOD}K</kbd>
        </button>
      </div>
      <Entry to="/captures" icon="captures" text="Captures" current={here.value === "/captures" || here.value === "/"} />
      <Entry
        to={href("/compare", { capture: props.capture })}
        icon="compare"
        text="Compare"
        current={here.value === "/compare"}
      />
      <Entry to="/schedules" icon="schedules" text="Schedules" current={here.value === "/schedules"} />
      {props.capture !== null &&
        GROUPS.map((group) => {
          const inGroup = tools.filter((tool) => placeOf(tool.name).group === group);
          if (inGroup.length === 0) return null;
          return (
            <div class="rail-group" key={group}>
              <h2 class="rail-text">{group === "Where time goes" ? "Capture: where time goes" : group}</h2>
              {inGroup.map((tool) => {
                const to = toolPath(props.capture as string, tool.name);
                return (
                  <Entry
                    key={tool.name}
                    to={href(to, { host: parameter("host"), step: parameter("step") })}
                    icon={placeOf(tool.name).icon}
                    text={placeOf(tool.name, tool.title).title}
                    current={here.value === to}
                    {...(tool.status === "empty" ? { note: "no data" } : {})}
                  />
                );
              })}
            </div>
          );
        })}
      <span class="spring" />
      <div class="rail-foot">
        <button type="button" class="rail-entry" title="Settings" onClick={props.onSettings}>
          <Icon name="sun" />
          <span class="rail-text">Settings</span>
        </button>
        <button type="button" class="rail-entry" title="Keys and help" onClick={props.onHelp}>
          <Icon name="info" />
          <span class="rail-text">Keys and help</span>
          <kbd class="rail-text">?</kbd>
        </button>
      </div>
    </nav>
  );
}

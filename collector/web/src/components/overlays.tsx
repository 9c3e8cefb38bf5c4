/** What floats over the page: the keys, the settings, the command palette. */
import { useMemo, useState } from "preact/hooks";

import type { Capture, Tool } from "../api/types";
import { MOD, shortcuts } from "../keys";
import { runOf } from "../pages/captures/filter";
import { chooseTheme, type Theme, theme } from "../theme";
import { placeOf, toolPath } from "../tools/pages";
import { go } from "../url";
import { Segmented } from "./basics";
import { Dialog } from "./dialog";

const KEY_WORDS: Readonly<Record<string, string>> = { arrowleft: "←", arrowright: "→", escape: "Esc", enter: "↵" };

function keyCaps(keys: string): string[] {
  return keys.split(" ").map((key) => KEY_WORDS[key] ?? key.replace("mod+", MOD).replace("enter", "↵"));
}

export function KeysOverlay({ onClose }: { onClose: () => void }) {
  const all = shortcuts.value;
  return (
    <Dialog title="Keys" label="Keys" class="small-dialog" onClose={onClose}>
      <div class="keys">
        {(["everywhere", "this page"] as const).map((scope) => (
          <section key={scope}>
            <h2>{scope === "everywhere" ? "Everywhere" : "This page"}</h2>
            <dl class="key-values">
              {all
                .filter((shortcut) => shortcut.scope === scope)
                .map((shortcut) => (
                  <div key={shortcut.keys}>
                    <dt>{shortcut.what}</dt>
                    <dd>{keyCaps(shortcut.keys).map((cap, i) => <kbd key={i}>{cap}</kbd>)}</dd>
                  </div>
                ))}
            </dl>
          </section>
        ))}
      </div>
    </Dialog>
  );
}

export function SettingsDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Settings" label="Settings" class="small-dialog" onClose={onClose}>
      <div class="settings">
        <div class="choice">
          <span class="field-label">Theme</span>
          <Segmented<Theme>
            label="Theme"
            options={[["system", "as the system"], ["light", "light"], ["dark", "dark"]]}
            value={theme.value}
            onChange={chooseTheme}
          />
        </div>
        <p class="quiet">Kept in this browser only.</p>
      </div>
    </Dialog>
  );
}

interface Command {
  readonly text: string;
  readonly kind: string;
  readonly to: string;
}

export function Palette(props: { capture: string | null; captures: readonly Capture[]; tools: readonly Tool[]; onClose: () => void }) {
  const [typed, setTyped] = useState("");
  const [active, setActive] = useState(0);
  const commands = useMemo((): Command[] => {
    const pages: Command[] = [
      { text: "Captures", kind: "page", to: "/captures" },
      { text: "Schedules", kind: "page", to: "/schedules" },
      { text: "New capture", kind: "action", to: "/captures?new=1" },
    ];
    const tools = props.capture
      ? props.tools.map((tool): Command => ({ text: placeOf(tool.name, tool.title).title, kind: "tool", to: toolPath(props.capture as string, tool.name) }))
      : [];
    const opened = props.captures
      .filter((capture) => capture.hosts_done > 0)
      .map((capture): Command => ({ text: `${runOf(capture)} ${capture.session}`, kind: "capture", to: toolPath(capture.id, "overview_page") }));
    return [...tools, ...pages, ...opened];
  }, [props.capture, props.tools, props.captures]);
  const hits = commands.filter((command) => `${command.text} ${command.kind}`.toLowerCase().includes(typed.toLowerCase())).slice(0, 12);
  const run = (command: Command | undefined): void => {
    if (!command) return;
    props.onClose();
    go(command.to);
  };
  return (
    <Dialog title="Go to" label="Command palette" class="small-dialog palette" onClose={props.onClose}>
      <input
        type="search"
        autofocus
        aria-label="Page, capture or action"
        placeholder="Page, capture or action"
        value={typed}
        onInput={(event) => {
          setTyped(event.currentTarget.value);
          setActive(0);
        }}
        onKeyDown={(event) => {
          if (event.key === "ArrowDown") setActive(Math.min(active + 1, hits.length - 1));
          else if (event.key === "ArrowUp") setActive(Math.max(active - 1, 0));
          else if (event.key === "Enter") run(hits[active]);
          else return;
          event.preventDefault();
        }}
      />
      <ul role="listbox" aria-label="Hits">
        {hits.map((command, i) => (
          <li key={command.to} role="option" aria-selected={i === active} class={i === active ? "active" : ""} onClick={() => run(command)} onPointerMove={() => setActive(i)}>
            <span class="cut">{command.text}</span>
            <span class="quiet">{command.kind}</span>
          </li>
        ))}
        {hits.length === 0 && <li class="quiet">Nothing matches “{typed}”.</li>}
      </ul>
    </Dialog>
  );
}

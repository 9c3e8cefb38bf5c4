/** One listener for all keys: pages register what they answer to, the overlay lists it. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

export interface Shortcut {
  readonly keys: string;
  readonly what: string;
  readonly run: () => void;
  readonly scope: "everywhere" | "this page";
}

export const shortcuts = signal<readonly Shortcut[]>([]);
const PREFIX_MS = 1200;
/** How the modifier is written on this machine. */
export const MOD = typeof navigator !== "undefined" && /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘" : "Ctrl+";
let prefix: string | null = null;
let prefixTimer: ReturnType<typeof setTimeout> | undefined;

/** Registers keys while the component is shown; `list` may be a new array at each render. */
export function useShortcuts(list: readonly Shortcut[], on: readonly unknown[]): void {
  useEffect(() => {
    shortcuts.value = [...shortcuts.peek(), ...list];
    return () => {
      shortcuts.value = shortcuts.peek().filter((shortcut) => !list.includes(shortcut));
    };
  }, on);
}

function typesText(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return !!element && (/^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName) || element.isContentEditable);
}

export function keyName(event: KeyboardEvent): string {
  return (event.metaKey || event.ctrlKey ? "mod+" : "") + (event.key.length === 1 ? event.key : event.key.toLowerCase());
}

export function listenForKeys(): void {
  addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.altKey) return;
    const name = keyName(event);
    // Single letters belong to the field that has the focus; chords and Escape do not.
    if (typesText(event.target) && !name.startsWith("mod+") && name !== "escape") return;
    // Over the page lies a dialog: its own keys are the browser's, Escape among them.
    if (!name.startsWith("mod+") && document.querySelector("dialog[open]")) return;
    const wanted = prefix ? `${prefix} ${name}` : name;
    prefix = null;
    clearTimeout(prefixTimer);
    const all = shortcuts.value;
    // The latest registration wins: a dialog's Escape before the page's.
    const hit = all.findLast((shortcut) => shortcut.keys === wanted);
    if (hit) {
      event.preventDefault();
      hit.run();
    } else if (all.some((shortcut) => shortcut.keys.startsWith(`${wanted} `))) {
      prefix = wanted;
      prefixTimer = setTimeout(() => (prefix = null), PREFIX_MS);
    }
  });
}

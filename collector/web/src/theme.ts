/** Light or dark: the system's choice until the reader makes one. */
import { signal } from "@preact/signals";

export type Theme = "system" | "light" | "dark";
const KEY = "podscope-theme";

export const theme = signal<Theme>("system");

export function restoreTheme(): void {
  const stored = localStorage.getItem(KEY);
  if (stored === "light" || stored === "dark") apply(stored);
}

function apply(next: Theme): void {
  theme.value = next;
  if (next === "system") delete document.documentElement.dataset["theme"];
  else document.documentElement.dataset["theme"] = next;
}

export function chooseTheme(next: Theme): void {
  apply(next);
  if (next === "system") localStorage.removeItem(KEY);
  else localStorage.setItem(KEY, next);
}

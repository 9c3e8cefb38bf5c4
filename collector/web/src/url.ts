/** The address is the state: path and query, no hash. Defaults are left out. */
import { computed, signal } from "@preact/signals";

export type Query = Readonly<Record<string, string | number | null | undefined>>;

const current = signal(readWindow());

function readWindow(): string {
  return typeof location === "undefined" ? "/" : location.pathname + location.search;
}

export const address = computed(() => new URL(current.value, "http://origin"));
export const path = computed(() => address.value.pathname);
export const query = computed(() => address.value.searchParams);

export function listen(): void {
  addEventListener("popstate", () => (current.value = readWindow()));
  // One handler makes every same-origin link a step inside the page; modified clicks stay the browser's.
  document.addEventListener("click", (event) => {
    if (event.defaultPrevented || event.button !== 0) return;
    if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.("a");
    if (!link || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
    if (link.pathname.startsWith("/api/")) return;
    event.preventDefault();
    go(link.pathname + link.search);
  });
}

/** Opens a page: a new entry in the history. */
export function go(to: string, how: "push" | "replace" = "push"): void {
  if (to === current.value) return;
  history[how === "push" ? "pushState" : "replaceState"](null, "", to);
  const samePage = new URL(to, location.origin).pathname === path.value;
  current.value = to;
  if (!samePage) for (const box of document.querySelectorAll("main .content, main .page-scroll")) box.scrollTo(0, 0);
}

export function href(pathname: string, parts: Query = {}): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(parts)) {
    if (value !== null && value !== undefined && value !== "") search.set(key, String(value));
  }
  // Readable addresses: these need no escape in a query.
  const text = search.toString().replace(/%2C/g, ",").replace(/%3A/g, ":").replace(/%2F/g, "/");
  return text ? `${pathname}?${text}` : pathname;
}

/** The present address with some of its query changed. */
export function withQuery(parts: Query): string {
  const merged: Record<string, string | number | null | undefined> = Object.fromEntries(query.value);
  return href(path.value, { ...merged, ...parts });
}

/** Typing replaces the entry; choosing adds one, so that Back undoes one act. */
export function setQuery(parts: Query, how: "push" | "replace" = "push"): void {
  go(withQuery(parts), how);
}

export function parameter(name: string): string | null {
  return query.value.get(name);
}

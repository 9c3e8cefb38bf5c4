/** The captures that the list, the selectors and the palette share. */
import { computed, signal } from "@preact/signals";
import { useEffect } from "preact/hooks";

import { api, type ServiceError } from "./api/client";
import { asServiceError } from "./api/resource";
import { type Capture, isLive } from "./api/types";
import { startedAt } from "./pages/captures/filter";

const LIVE_MS = 1500;
const QUIET_MS = 8000;

export const captures = signal<readonly Capture[] | null>(null);
export const capturesError = signal<ServiceError | null>(null);
const older = signal<{ readonly items: readonly Capture[]; readonly next: string | null } | null>(null);
const firstNext = signal<string | null>(null);

export const allCaptures = computed(() => {
  const first = captures.value ?? [];
  const seen = new Set(first.map((capture) => capture.id));
  const known = [...first, ...(older.value?.items ?? []).filter((capture) => !seen.has(capture.id))];
  // The service lists by when a capture was asked for or imported; people look for when it was taken.
  return known.sort((a, b) => startedAt(b).getTime() - startedAt(a).getTime());
});
export const hasOlder = computed(() => (older.value ? older.value.next : firstNext.value) !== null);

export async function refreshCaptures(abort?: AbortSignal): Promise<void> {
  try {
    const page = await api.captures(abort);
    captures.value = page.items;
    firstNext.value = page.next;
    capturesError.value = null;
  } catch (cause) {
    if (!abort?.aborted) capturesError.value = asServiceError(cause);
  }
}

export async function loadOlder(): Promise<void> {
  const before = older.value ? older.value.next : firstNext.value;
  if (!before) return;
  const page = await api.captures(undefined, before);
  older.value = { items: [...(older.value?.items ?? []), ...page.items], next: page.next };
}

/** Keeps the list fresh while the app is open: often while something runs, seldom otherwise. */
export function useCapturesRefresh(): void {
  useEffect(() => {
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const loop = async (): Promise<void> => {
      if (!document.hidden) await refreshCaptures(abort.signal);
      if (abort.signal.aborted) return;
      timer = setTimeout(() => void loop(), captures.value?.some(isLive) ? LIVE_MS : QUIET_MS);
    };
    void loop();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, []);
}

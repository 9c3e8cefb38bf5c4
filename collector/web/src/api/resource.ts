/** Loads that a page depends on, as signals: what is there, what failed, and a way to try again. */
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { ServiceError } from "./client";

export interface Resource<T> {
  readonly value: Signal<T | null>;
  readonly error: Signal<ServiceError | null>;
  readonly loading: Signal<boolean>;
  readonly reload: () => void;
}

export function asServiceError(cause: unknown): ServiceError {
  if (cause instanceof ServiceError) return cause;
  return new ServiceError(cause instanceof Error ? cause.message : String(cause), 0);
}

/**
 * Loads again whenever `key` changes; a null key loads nothing. With `every`, a number of milliseconds
 * or a function of the last value that gives one (null stops), it loads again while the page is visible.
 */
export function useResource<T>(
  key: string | null,
  load: (abort: AbortSignal) => Promise<T>,
  every?: (value: T | null) => number | null,
): Resource<T> {
  const state = useMemo(
    () => ({ value: signal<T | null>(null), error: signal<ServiceError | null>(null), loading: signal(false), turn: signal(0) }),
    [key],
  );
  const turn = state.turn.value;
  useEffect(() => {
    if (key === null) return undefined;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const again = (): void => {
      const wait = every?.(state.value.peek()) ?? null;
      if (wait === null || abort.signal.aborted) return;
      timer = setTimeout(() => (document.hidden ? again() : void run()), wait);
    };
    const run = async (): Promise<void> => {
      state.loading.value = true;
      try {
        const value = await load(abort.signal);
        if (abort.signal.aborted) return;
        state.value.value = value;
        state.error.value = null;
      } catch (cause) {
        if (abort.signal.aborted) return;
        state.error.value = asServiceError(cause);
      }
      state.loading.value = false;
      again();
    };
    void run();
    return () => {
      abort.abort();
      clearTimeout(timer);
    };
  }, [key, turn]);
  return { value: state.value, error: state.error, loading: state.loading, reload: () => (state.turn.value += 1) };
}

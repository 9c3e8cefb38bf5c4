/** One capture as it happens: server-sent events, and polling where the stream cannot be kept. */
import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";

import { api, eventsUrl, type ServiceError } from "./client";
import { asServiceError } from "./resource";
import { type Capture, countedHosts, type Host, isLive } from "./types";

export interface LiveCapture {
  readonly capture: Signal<Capture | null>;
  readonly hosts: Signal<readonly Host[]>;
  readonly error: Signal<ServiceError | null>;
}

const POLL_MS = 1000;

/** There is no such capture. */
export const isUnknown = (error: ServiceError | null): boolean => error?.status === 404;

/** Replaces the host with the same target, or adds it at the end. */
export function withHost(hosts: readonly Host[], update: Host): readonly Host[] {
  const at = hosts.findIndex((host) => host.target === update.target);
  return at < 0 ? [...hosts, update] : hosts.with(at, update);
}

/** `round` changes when a capture that has ended goes on: it is followed anew. */
export function useLiveCapture(id: string | null, round = 0): LiveCapture {
  const live = useMemo(
    () => ({
      capture: signal<Capture | null>(null),
      hosts: signal<readonly Host[]>([]),
      error: signal<ServiceError | null>(null),
    }),
    [id],
  );
  useEffect(() => {
    if (id === null) return undefined;
    const abort = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let source: EventSource | null = null;

    const load = async (): Promise<void> => {
      try {
        const [capture, hosts] = await Promise.all([api.capture(id, abort.signal), api.hosts(id, abort.signal)]);
        if (abort.signal.aborted) return;
        live.capture.value = capture;
        live.hosts.value = hosts.items;
        live.error.value = null;
      } catch (cause) {
        if (!abort.signal.aborted) live.error.value = asServiceError(cause);
      }
    };
    // What the service does not know will not come; what it did not answer might.
    const isAwaited = (now: Capture | null): boolean => (now === null ? !isUnknown(live.error.value) : isLive(now));
    const poll = (): void => {
      timer = setTimeout(async () => {
        if (!document.hidden) await load();
        const now = live.capture.value;
        if (!abort.signal.aborted && isAwaited(now)) poll();
      }, POLL_MS);
    };
    const follow = (): void => {
      source = new EventSource(eventsUrl(id));
      source.addEventListener("capture", (event) => {
        const capture = JSON.parse((event as MessageEvent<string>).data) as Capture;
        live.capture.value = capture;
        // A target that was looked up has become hosts; events tell of those that change only.
        if (countedHosts(live.hosts.value) !== capture.hosts_total) void load();
      });
      source.addEventListener("host", (event) => {
        live.hosts.value = withHost(live.hosts.value, JSON.parse((event as MessageEvent<string>).data) as Host);
      });
      // The stream also ends like this when all is done; the last word comes from a plain load.
      source.addEventListener("error", () => {
        source?.close();
        source = null;
        void load().then(() => {
          const now = live.capture.value;
          if (!abort.signal.aborted && isAwaited(now)) poll();
        });
      });
    };

    void load().then(() => {
      const now = live.capture.value;
      if (abort.signal.aborted) return;
      if (now !== null && isLive(now)) follow();
      else if (isAwaited(now)) poll();
    });
    return () => {
      abort.abort();
      clearTimeout(timer);
      source?.close();
    };
  }, [id, round]);
  return live;
}

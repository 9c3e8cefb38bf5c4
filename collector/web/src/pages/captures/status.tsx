/** What a capture's row says about its state: an icon, a word, and progress while it runs. */
import { type Tone, Bar, Status } from "../../components/basics";
import type { Capture } from "../../api/types";
import { isLive } from "../../api/types";
import { ofTotal, plural } from "../../format/numbers";

export interface CaptureStatus {
  readonly tone: Tone;
  readonly words: string;
  /** 0 to 1 while something runs. */
  readonly progress: number | null;
}

const share = (done: number, total: number): number => (total > 0 ? done / total : 0);

export function statusOf(capture: Capture): CaptureStatus {
  const { state, analysis, hosts_done: done, hosts_total: total } = capture;
  if (state === "pending") return { tone: "plain", words: "Waiting to start", progress: 0 };
  if (state === "capturing") return { tone: "plain", words: `Capturing, ${ofTotal(done, total)}`, progress: share(done, total) };
  if (state === "failed") return { tone: "err", words: `Failed, ${ofTotal(done, total)} stored`, progress: null };
  if (state === "cancelled") return { tone: "plain", words: "Cancelled", progress: null };
  if (analysis && isLive(capture)) {
    return {
      tone: "plain",
      words: `Analysing ${ofTotal(analysis.hosts_done, analysis.hosts_total)}`,
      progress: share(analysis.hosts_done, analysis.hosts_total),
    };
  }
  if (analysis?.state === "failed") return { tone: "err", words: "Analysis failed", progress: null };
  if (state === "partial") return { tone: "warn", words: `Partial, ${plural(total - done, "host")} missing`, progress: null };
  return { tone: "ok", words: "Ready", progress: null };
}

export function StatusCell({ capture }: { capture: Capture }) {
  const { tone, words, progress } = statusOf(capture);
  if (progress !== null) {
    return (
      <span class="progress-status">
        <Bar ratio={progress} class="accent" />
        {words}
      </span>
    );
  }
  if (tone === "plain") return <span class="quiet">{words}</span>;
  return (
    <span title={capture.error ?? capture.analysis?.error ?? undefined}>
      <Status tone={tone}>{words}</Status>
    </span>
  );
}

/** A capture's tool: its header at once, its result when it is there. */
import type { ComponentChildren, ComponentType } from "preact";

import { api, type ServiceError } from "../../api/client";
import { isUnknown, useLiveCapture } from "../../api/live";
import { useResource } from "../../api/resource";
import { type Capture, hasEnded, type Host, isLive, type Tool, type ToolResult } from "../../api/types";
import { CaptureHeader } from "../../components/capture-header";
import { AdviceList } from "../../components/advice-list";
import { Failure, Loading, Verdict } from "../../components/basics";
import { hostName } from "../../api/types";
import { ofTotal } from "../../format/numbers";
import { lossSentence } from "../../tools/advice";
import { placeOf, toolPath } from "../../tools/pages";
import { parameter } from "../../url";
import { FrameworkOpsPage } from "../framework-ops/page";
import { GraphPage } from "../graph/page";
import { HloStatsPage } from "../hlo-stats/page";
import { InferencePage } from "../inference/page";
import { InputPipelinePage } from "../input-pipeline/page";
import { KernelStatsPage } from "../kernel-stats/page";
import { MemoryProfilePage } from "../memory-profile/page";
import { MemoryViewerPage } from "../memory-viewer/page";
import { NotFoundPage } from "../not-found";
import { OpProfilePage } from "../op-profile/page";
import { OverviewPage } from "../overview/page";
import { PodViewerPage } from "../pod-viewer/page";
import { RooflinePage } from "../roofline/page";
import { TfDataPage } from "../tf-data/page";
import { AnyToolPage } from "./any";

export interface ToolViewProps {
  readonly capture: Capture;
  readonly hosts: readonly Host[];
  readonly tools: readonly Tool[];
  readonly result: ToolResult;
  /** What to do: stands below the verdict and its figures; empty on pages that have a place of their own for it. */
  readonly advice: ComponentChildren;
}

const VIEWS: ReadonlyMap<string, ComponentType<ToolViewProps>> = new Map<string, ComponentType<ToolViewProps>>([
  ["overview_page", OverviewPage],
  ["input_pipeline_analyzer", InputPipelinePage],
  ["framework_op_stats", FrameworkOpsPage],
  ["hlo_stats", HloStatsPage],
  ["kernel_stats", KernelStatsPage],
  ["op_profile", OpProfilePage],
  ["roofline_model", RooflinePage],
  ["pod_viewer", PodViewerPage],
  ["graph_viewer", GraphPage],
  ["inference_profile", InferencePage],
  ["memory_profile", MemoryProfilePage],
  ["memory_viewer", MemoryViewerPage],
  ["tf_data_bottleneck_analysis", TfDataPage],
]);

/** Pages that have a place of their own for advice. */
const ADVISING = new Set(["overview_page", "input_pipeline_analyzer"]);

const RETRY_MS = 2000;

export function ToolPage(props: { id: string; tool: string; tools: readonly Tool[] | null; toolsError: ServiceError | null }) {
  const live = useLiveCapture(props.id);
  const capture = live.capture.value;
  const hosts = live.hosts.value;
  const tool: Tool =
    props.tools?.find((candidate) => candidate.name === props.tool) ??
    { name: props.tool, title: placeOf(props.tool).title, scope: props.tool === "pod_viewer" ? "all_hosts" : "both", state: "pending", status: null, hosts: [] };
  const chosen = parameter("host");
  const firstHost = hosts.find((host) => host.state === "done");
  // A tool over all hosts takes the host as what is marked, not as what is asked for.
  const asked = tool.scope === "all_hosts" ? null : tool.scope === "host" ? (chosen ?? (firstHost ? hostName(firstHost) : null)) : chosen;
  const analysis = capture?.analysis;
  // Before the tools are known it is not known either whether this one takes a host.
  const known = props.tools !== null || props.toolsError !== null;
  const exists = props.tools === null || props.tools.some((candidate) => candidate.name === props.tool);
  const ready = known && exists && capture !== null && capture.hosts_done > 0;
  const result = useResource(
    ready ? `${props.id} ${props.tool} ${asked ?? ""} ${analysis?.state ?? ""} ${analysis?.hosts_done ?? ""}` : null,
    (abort) => api.tool(props.id, props.tool, asked, abort),
    (value) => (value === null && capture !== null && isLive(capture) ? RETRY_MS : null),
  );
  if (!capture) {
    const error = live.error.value;
    if (isUnknown(error)) return <NotFoundPage title="No such capture" said={error?.message} />;
    return error ? <div class="content"><Failure error={error} /></div> : <Loading what="Loading the capture" />;
  }
  if (!exists) {
    return <NotFoundPage title={`No page named ${props.tool}`} said="The pages of the capture are at the left." to={toolPath(props.id, "overview_page")} where="The capture's overview" />;
  }
  const View = VIEWS.get(props.tool) ?? AnyToolPage;
  const value = result.value.value;
  const advice = value && !ADVISING.has(props.tool) && value.advice.length > 0 && (
    <AdviceList title="What to do" advice={value.advice} capture={capture.id} tools={props.tools ?? []} open={props.tool} />
  );
  // A page without data has no verdict: the advice follows the reason.
  const isEmpty = value?.status === "empty";
  return (
    <>
      <CaptureHeader capture={capture} hosts={hosts} tools={props.tools ?? []} tool={tool} asked={asked} result={value} />
      <div class="content" data-testid="content">
        {value ? (
          <>
            <Lost result={value} />
            <View capture={capture} hosts={hosts} tools={props.tools ?? []} result={value} advice={isEmpty ? null : advice} />
            {isEmpty && advice}
          </>
        ) : (
          <Absent capture={capture} hosts={hosts} error={result.error.value} loading={result.loading.value} retry={result.reload} />
        )}
      </div>
    </>
  );
}

/** That the numbers below are not of all that happened. */
function Lost({ result }: { result: ToolResult }) {
  const sentence = lossSentence(result);
  return sentence ? <div data-testid="losses"><Verdict tone="warn" clause="This capture is not whole." sentence={sentence} /></div> : null;
}

function Absent(props: { capture: Capture; hosts: readonly Host[]; error: ServiceError | null; loading: boolean; retry: () => void }) {
  const { capture, hosts, error } = props;
  if (capture.hosts_done === 0 && !isLive(capture)) {
    const failed = hosts.find((host) => hasEnded(host) && host.state !== "done");
    return (
      <section class="panel no-data">
        <p>
          <b>No host was stored.</b> {failed ? `${hostName(failed)}: ${failed.message ?? failed.reason ?? failed.state}.` : ""}{" "}
          <a href={`/captures?watch=${capture.id}`}>What each host said</a>
        </p>
      </section>
    );
  }
  if (capture.analysis?.state === "failed") {
    return (
      <section class="panel no-data">
        <p><b>The analysis failed.</b> {capture.analysis.error ?? error?.message ?? ""}</p>
      </section>
    );
  }
  if (isLive(capture)) {
    const analysis = capture.analysis;
    const what = capture.state === "pending" || capture.state === "capturing" || !analysis
      ? `Capturing: ${ofTotal(capture.hosts_done, capture.hosts_total)} hosts stored`
      : `Analysing: ${ofTotal(analysis.hosts_done, analysis.hosts_total)} hosts`;
    return <Loading what={what} />;
  }
  if (error) return <Failure error={error} retry={props.retry} />;
  return <Loading what="Loading the result" />;
}

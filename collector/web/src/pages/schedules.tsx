/** Periodic captures: what runs when, and what became of the last one. */
import { useState } from "preact/hooks";

import { api, type Schedule, type ServiceError } from "../api/client";
import { asServiceError, useResource } from "../api/resource";
import { Badge, Failure, IconButton, Loading, Status } from "../components/basics";
import { ago, fullTime, interval, parseTime } from "../format/time";
import { plural } from "../format/numbers";
import { toolPath } from "../tools/pages";
import { guessTargets } from "./dialog/request";

const REFRESH_MS = 5000;

function words(schedule: Schedule, ...names: string[]): string | null {
  for (const name of names) {
    const value = schedule[name];
    if (typeof value === "string" && value !== "") return value;
  }
  return null;
}

function Moment({ value, none }: { value: string | null; none: string }) {
  const moment = parseTime(value);
  return moment ? <span title={fullTime(moment)}>{ago(moment)}</span> : <span class="quiet">{none}</span>;
}

export function SchedulesPage() {
  const schedules = useResource("schedules", async (abort) => (await api.schedules(abort)).items, () => REFRESH_MS);
  const [failure, setFailure] = useState<ServiceError | null>(null);
  const remove = async (id: string): Promise<void> => {
    try {
      await api.removeSchedule(id);
      setFailure(null);
    } catch (cause) {
      setFailure(asServiceError(cause));
    }
    schedules.reload();
  };
  const items = schedules.value.value;
  const error = failure ?? schedules.error.value;
  return (
    <>
      <header class="page-head">
        <h1>Schedules</h1>
        {items && <Badge tone="plain" icon={false}>{plural(items.length, "schedule")}</Badge>}
        <span class="spring" />
        <a class="button primary" href="/captures?new=1">New capture</a>
      </header>
      <div class="page-scroll">
        {error && <Failure error={error} retry={schedules.reload} />}
        {!items && !error && <Loading what="Loading the schedules" />}
        {items?.length === 0 && (
          <div class="empty-page">
            <h2>No schedules</h2>
            <p>
              A schedule takes the same capture again and again. Fill in a <a href="/captures?new=1">new capture</a> and choose
              “Save as schedule”, or use <code>podscope schedules add</code>.
            </p>
          </div>
        )}
        {items && items.length > 0 && (
          <table class="captures-table">
            <thead>
              <tr>
                <th scope="col">Name</th>
                <th scope="col">Every</th>
                <th scope="col">Targets</th>
                <th scope="col">Next run</th>
                <th scope="col">Last run</th>
                <th scope="col">State</th>
                <th scope="col"><span class="hidden">Actions</span></th>
              </tr>
            </thead>
            <tbody>
              {items.map((schedule) => {
                const request = (schedule["request"] ?? {}) as { targets?: unknown };
                const targets = Array.isArray(request.targets) ? request.targets.join(", ") : typeof request.targets === "string" ? request.targets : "";
                const seconds = Number(schedule["every_seconds"] ?? Number(schedule["every_minutes"]) * 60);
                const last = words(schedule, "last_capture_id");
                const failed = words(schedule, "last_error");
                return (
                  <tr class="row" key={schedule.id}>
                    <td class="strong">{words(schedule, "name") ?? schedule.id}</td>
                    <td>{Number.isFinite(seconds) ? interval(seconds) : ""}</td>
                    <td class="mono cut" title={targets}>{plural(guessTargets(targets).length, "target")}: {targets}</td>
                    <td><Moment value={words(schedule, "next_run_at")} none="not planned" /></td>
                    <td>
                      {last ? <a href={toolPath(last, "overview_page")}><Moment value={words(schedule, "last_run_at")} none="open" /></a> : <Moment value={words(schedule, "last_run_at")} none="never" />}
                    </td>
                    <td>
                      {failed ? <span title={failed}><Status tone="err">{failed}</Status></span> : schedule["enabled"] === false ? <Status tone="plain">Off</Status> : <Status tone="ok">On</Status>}
                    </td>
                    <td class="num"><IconButton icon="trash" label={`Delete ${words(schedule, "name") ?? "the schedule"}`} onClick={() => void remove(schedule.id)} /></td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        )}
      </div>
    </>
  );
}

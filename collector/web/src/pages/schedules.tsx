/** Periodic captures: what runs when, and what became of the last one. */
import { useState } from "preact/hooks";

import { api, type ServiceError } from "../api/client";
import { asServiceError, useResource } from "../api/resource";
import type { Schedule } from "../api/types";
import { Badge, Failure, IconButton, Loading, Status } from "../components/basics";
import { ago, fullTime, interval, parseTime } from "../format/time";
import { plural } from "../format/numbers";
import { toolPath } from "../tools/pages";

const REFRESH_MS = 5000;

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
              {items.map((schedule) => <Row key={schedule.id} schedule={schedule} onRemove={() => void remove(schedule.id)} />)}
            </tbody>
          </table>
        )}
      </div>
    </>
  );
}

function Row({ schedule, onRemove }: { schedule: Schedule; onRemove: () => void }) {
  const { name, targets, last_capture_id: last, last_error: failed } = schedule;
  const lastRun = <Moment value={schedule.last_run_at} none="never" />;
  return (
    <tr class="row still">
      <td class="strong">{name}</td>
      <td>{interval(schedule.every_s)}</td>
      <td class="mono rest" title={targets.join(", ")}>{plural(targets.length, "target")}: {targets.join(", ")}</td>
      <td>{schedule.enabled ? <Moment value={schedule.next_run_at} none="not planned" /> : <span class="quiet">not planned</span>}</td>
      <td>{last ? <a href={toolPath(last, "overview_page")}>{lastRun}</a> : lastRun}</td>
      <td>{failed ? <Status tone="err">{failed}</Status> : <Status tone={schedule.enabled ? "ok" : "plain"}>{schedule.enabled ? "On" : "Off"}</Status>}</td>
      <td class="num"><IconButton icon="trash" label={`Delete ${name}`} onClick={onRemove} /></td>
    </tr>
  );
}

/** The two halves of the request: what to ask for, and what it will come to. */
import { useEffect, useState } from "preact/hooks";

import { api } from "../../api/client";
import { asServiceError } from "../../api/resource";
import type { DoctorReport, DoctorTarget } from "../../api/types";
import { allCaptures } from "../../captures-store";
import { Field, KeyValues, Segmented, Snippet, Status } from "../../components/basics";
import { duration, fileSize, ofTotal, plural, text } from "../../format/numbers";
import { estimateSize, type FormErrors, guessTargets, type RequestForm, type SizeEstimate, shellCommand, splitTargets } from "./request";

type Change = (part: Partial<RequestForm>) => void;

export function RequestFields(props: {
  form: RequestForm;
  errors: FormErrors;
  onChange: Change;
  onTouched: (field: string) => void;
}) {
  const { form, errors, onChange, onTouched } = props;
  const bind = (field: keyof RequestForm) => ({
    name: field,
    value: form[field],
    onInput: (event: { currentTarget: HTMLInputElement | HTMLTextAreaElement }) => onChange({ [field]: event.currentTarget.value }),
    onBlur: () => onTouched(field),
    "aria-invalid": errors[field] !== undefined,
  });
  return (
    <>
      <div class="field-row">
        <Field label="Run">
          <input {...bind("run")} placeholder="llm-7b" autocomplete="off" />
        </Field>
        <Field label="Labels" error={errors.labels ?? null}>
          <input {...bind("labels")} placeholder="key=value" autocomplete="off" spellcheck={false} />
        </Field>
      </div>
      <Field
        label="Targets"
        error={errors.targets ?? null}
        hint={<>Profiler servers, as in <code>w-0:9999</code>; <code>w-[00-15]:9999</code> opens to 16; <code>agent://w-0</code>, <code>k8s:ns/app=llm:9999</code>, <code>jobset:name:9999</code>, <code>tpu:name</code>.</>}
      >
        <textarea {...bind("targets")} rows={3} class="mono" spellcheck={false} autofocus placeholder="w-0:9999, w-1:9999" />
      </Field>
      <div class="choice">
        <span class="field-label">Window</span>
        <Segmented
          label="Window"
          options={[["time", "time"], ["steps", "steps"]]}
          value={form.lengthKind}
          onChange={(lengthKind) => onChange({ lengthKind })}
        />
        {form.lengthKind === "steps" && <span class="quiet">of agents that know steps</span>}
      </div>
      <div class="field-row">
        {form.lengthKind === "time" ? (
          <Field label="Length" error={errors.durationMs ?? null}>
            <span class="with-unit">
              <input {...bind("durationMs")} inputMode="numeric" />
              <small>ms</small>
            </span>
          </Field>
        ) : (
          <Field label="Length" error={errors.steps ?? null}>
            <span class="with-unit">
              <input {...bind("steps")} inputMode="numeric" />
              <small>steps</small>
            </span>
          </Field>
        )}
        <Field label="Attempts" error={errors.attempts ?? null} hint="per host">
          <input {...bind("attempts")} inputMode="numeric" />
        </Field>
      </div>
      <div class="choice">
        <span class="field-label">Quorum</span>
        <Segmented
          label="Quorum"
          options={[["any", "any host"], ["all", "all hosts"], ["count", "at least"]]}
          value={form.quorumKind}
          onChange={(quorumKind) => onChange({ quorumKind })}
        />
        {form.quorumKind === "count" && (
          <input {...bind("quorumCount")} class="short" aria-label="Quorum, hosts or percent" placeholder="3 or 50%" />
        )}
        {errors.quorumCount && <span class="field-error">{errors.quorumCount}</span>}
      </div>
      <div class="choice">
        <span class="field-label">Host tracer</span>
        <Segmented
          label="Host tracer"
          options={[["0", "off"], ["1", "1 critical"], ["2", "2 high level"], ["3", "3 verbose"]]}
          value={form.hostTracer}
          onChange={(hostTracer) => onChange({ hostTracer })}
        />
      </div>
      <details class="advanced">
        <summary>Advanced</summary>
        <div class="choice">
          <span class="field-label">Device tracer</span>
          <Segmented label="Device tracer" options={[["0", "off"], ["1", "on"]]} value={form.deviceTracer} onChange={(deviceTracer) => onChange({ deviceTracer })} />
        </div>
        <div class="choice">
          <span class="field-label">Python tracer</span>
          <Segmented label="Python tracer" options={[["0", "off"], ["1", "on"]]} value={form.pythonTracer} onChange={(pythonTracer) => onChange({ pythonTracer })} />
          <span class="quiet">adds to the time of each step</span>
        </div>
        <div class="choice">
          <span class="field-label">Together</span>
          <Segmented label="Together" options={[["no", "as they come"], ["yes", "all or none"]]} value={form.together} onChange={(together) => onChange({ together })} />
          <span class="quiet">{form.together === "yes" ? "refused if they do not fit" : ""}</span>
        </div>
        <div class="choice">
          <span class="field-label">Empty hosts</span>
          <Segmented label="Empty hosts" options={[["leave", "leave"], ["longer", "again, longer"]]} value={form.emptyHosts} onChange={(emptyHosts) => onChange({ emptyHosts })} />
        </div>
        <div class="choice">
          <span class="field-label">Bare names</span>
          <Segmented label="Bare names" options={[["hosts", "hosts"], ["tpus", "Cloud TPUs"]]} value={form.bareNames} onChange={(bareNames) => onChange({ bareNames })} />
        </div>
        <div class="field-row">
          <Field label="Delay" class="delay" error={errors.delayMs ?? null} hint="until every host starts">
            <span class="with-unit">
              <input {...bind("delayMs")} inputMode="numeric" />
              <small>ms</small>
            </span>
          </Field>
          <Field label="Size of a host" error={errors.hostMb ?? null} hint="empty: as in the run's last capture">
            <span class="with-unit">
              <input {...bind("hostMb")} inputMode="numeric" />
              <small>MB</small>
            </span>
          </Field>
        </div>
        <Field label="Time to send" class="delay" error={errors.timeoutMs ?? null} hint="beyond delay and window, per host">
          <span class="with-unit">
            <input {...bind("timeoutMs")} inputMode="numeric" />
            <small>ms</small>
          </span>
        </Field>
        <Field label="Tracer options" error={errors.options ?? null} hint={<>of TPU and GPU tracers, one a line, as in <code>tpu_trace_mode=TRACE_COMPUTE</code>; the nearest known one is named where one is not</>}>
          <textarea {...bind("options")} rows={2} class="mono" spellcheck={false} />
        </Field>
        <Field label="Requested by" error={errors.requestedBy ?? null} hint="kept with the capture; a proxy that knows who you are goes before it">
          <input {...bind("requestedBy")} autocomplete="username" />
        </Field>
      </details>
      <Snippet title="The same from a shell" text={shellCommand(form, location.origin)} />
    </>
  );
}

const SHOWN = 100;

function tracing(form: RequestForm): string {
  if (form.lengthKind === "steps") return `${form.steps || "a number of"} steps, 60 s at most`;
  const length = Number(form.durationMs) + Number(form.delayMs);
  return Number.isFinite(length) ? text(duration(length)) : "not a number";
}

function sizeText(size: SizeEstimate | null, hasLookups: boolean): string {
  if (size === null) return "not known before the run's first capture";
  const more = hasLookups ? ", and what the lookups find" : "";
  return `about ${text(fileSize(size.bytes, 2))}, ${text(fileSize(size.hostBytes, 2))} a host ${size.by === "request" ? "as given" : "as in the run's last capture"}${more}`;
}

export function Preflight({ form }: { form: RequestForm }) {
  const targets = guessTargets(form.targets, form.bareNames);
  const wrong = targets.filter((target) => target.problem !== null).length;
  const [report, setReport] = useState<DoctorReport | null>(null);
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const [probe, setProbe] = useState(false);
  // What was found of other targets says nothing of these.
  useEffect(() => setReport(null), [form.targets, form.bareNames, form.lengthKind, form.durationMs]);

  const check = async (): Promise<void> => {
    setBusy(true);
    setProblem(null);
    try {
      const length = form.lengthKind === "time" ? Number(form.durationMs) : NaN;
      setReport(
        await api.doctor({
          targets: splitTargets(form.targets),
          is_tpu_name: form.bareNames === "tpus",
          probe,
          ...(Number.isInteger(length) && length > 0 ? { duration_ms: length } : {}),
        }),
      );
    } catch (cause) {
      setProblem(asServiceError(cause).message);
    }
    setBusy(false);
  };
  const ready = report?.targets.filter((target) => target.verdict === "ready").length ?? 0;
  return (
    <section class="preflight" aria-label="Check of the request">
      <header>
        <h2>Check</h2>
        {report === null && targets.length > wrong && <span class="badge tone-ok">{plural(targets.length - wrong, "address", "addresses")}</span>}
        {report === null && wrong > 0 && <span class="badge tone-err">{wrong} wrong</span>}
        {report !== null && <span class={`badge tone-${ready === report.targets.length ? "ok" : "err"}`}>{ofTotal(ready, report.targets.length)} ready</span>}
        <span class="spring" />
        <label class="inline-check">
          <input type="checkbox" checked={probe} onInput={(event) => setProbe(event.currentTarget.checked)} /> capture 100 ms
        </label>
        <button type="button" class="button" disabled={busy || wrong > 0 || targets.length === 0} onClick={() => void check()}>
          {busy ? "Checking" : "Check now"}
        </button>
      </header>
      <KeyValues
        rows={[
          ["Tracing", tracing(form)],
          ["Size", sizeText(estimateSize(form, targets.length, allCaptures.value), targets.some((target) => target.isLookup))],
          ["Done when", form.quorumKind === "all" ? "all hosts are stored" : form.quorumKind === "any" ? "every host ended; one stored is enough" : `every host ended; ${form.quorumCount || "a number"} stored are enough`],
          ["Overhead", form.pythonTracer === "1" ? "Python tracer on: steps take longer" : form.hostTracer === "3" ? "verbose host tracer: large files" : "small: device tracer and host level " + form.hostTracer],
          ...(report?.storage ? [["Storage", report.storage.detail] as [string, string]] : []),
        ]}
      />
      {problem && <p class="no-data"><Status tone="err">{problem}</Status></p>}
      {report ? (
        <Found report={report} />
      ) : targets.length === 0 ? (
        <p class="no-data">Targets appear here as they are typed. They are contacted when they are checked, and when the capture starts.</p>
      ) : (
        <table class="data">
          <thead>
            <tr>
              <th scope="col">Target</th>
              <th scope="col">Address</th>
            </tr>
          </thead>
          <tbody>
            {targets.slice(0, SHOWN).map((target, i) => (
              <tr key={`${i}-${target.address}`}>
                <td class="mono">{target.address}</td>
                <td>{target.problem ? <Status tone="err">{target.problem}</Status> : <Status tone="ok">{target.isLookup ? "Looked up at the start" : "Well formed"}</Status>}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {targets.length > SHOWN && report === null && <p class="quiet">{targets.length - SHOWN} more</p>}
    </section>
  );
}

const WORDS = { ready: "Ready", busy: "Busy", not_ready: "Not ready" } as const;
const TONES = { ready: "ok", busy: "warn", not_ready: "err" } as const;

/** What the service found out; those that need something come first. */
function Found({ report }: { report: DoctorReport }) {
  const order = { not_ready: 0, busy: 1, ready: 2 } as const;
  const targets = [...report.targets].sort((a, b) => order[a.verdict] - order[b.verdict]);
  return (
    <>
      <table class="data">
        <thead>
          <tr>
            <th scope="col">Target</th>
            <th scope="col">State</th>
            <th scope="col">What was found</th>
          </tr>
        </thead>
        <tbody>
          {targets.slice(0, SHOWN).map((target) => (
            <tr key={target.target}>
              <td class="mono">{target.target}</td>
              <td><Status tone={TONES[target.verdict]}>{WORDS[target.verdict]}</Status></td>
              <td class="wrap">{foundOf(target)}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {report.left_out.map((line) => <p class="quiet" key={line}>left out: {line}</p>)}
    </>
  );
}

function foundOf(target: DoctorTarget): string {
  const trouble = target.checks.filter((check) => check.state === "failed" || check.state === "warning");
  if (trouble.length > 0) return sentences(trouble.map((check) => (check.fix ? `${check.detail}; ${check.fix}` : check.detail)));
  return target.round_trip_ms === null ? target.kind : `${target.kind}, ${target.round_trip_ms.toFixed(1)} ms away`;
}

/** One after the other; a question has its mark already. */
function sentences(parts: readonly string[]): string {
  return parts.map((part, i) => (i === parts.length - 1 || /[.?!]$/.test(part) ? part : `${part}.`)).join(" ");
}

/** New capture: the request, then in the same window its progress. */
import { useEffect, useState } from "preact/hooks";

import { api, ServiceError } from "../../api/client";
import { asServiceError } from "../../api/resource";
import { isRunning } from "../../api/types";
import { refreshCaptures } from "../../captures-store";
import { Failure } from "../../components/basics";
import { Dialog } from "../../components/dialog";
import { Icon } from "../../components/icons";
import { plural } from "../../format/numbers";
import { MOD, useShortcuts } from "../../keys";
import { parameter, setQuery } from "../../url";
import { Progress, useProgress } from "./progress";
import { Preflight, RequestFields } from "./fields";
import { checkForm, EMPTY_FORM, type FormErrors, guessTargets, type RequestForm, toRequest } from "./request";

const KEY = "podscope-request";

function remembered(): RequestForm {
  try {
    const stored = JSON.parse(localStorage.getItem(KEY) ?? "{}") as Partial<RequestForm>;
    return { ...EMPTY_FORM, ...stored };
  } catch {
    return EMPTY_FORM;
  }
}

function Stages({ at }: { at: 1 | 2 | 3 }) {
  const names = ["Configure and check", "Capture", "Analyse"];
  return (
    <ol class="stages">
      {names.map((name, i) => (
        <li key={name} aria-current={i + 1 === at ? "step" : undefined} class={i + 1 < at ? "past" : ""}>
          <span class="stage-number">{i + 1 < at ? <Icon name="check" /> : i + 1}</span>
          <span class="stage-name">{name}</span>
        </li>
      ))}
    </ol>
  );
}

export function CaptureDialog() {
  const watched = parameter("watch");
  const close = (): void => setQuery({ new: null, watch: null });
  return watched ? <ProgressDialog key={watched} id={watched} onClose={close} /> : <RequestDialog onClose={close} />;
}

function RequestDialog({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState(remembered);
  const [touched, setTouched] = useState<ReadonlySet<string>>(new Set());
  const [tried, setTried] = useState(false);
  const [failure, setFailure] = useState<ServiceError | null>(null);
  const [busy, setBusy] = useState(false);
  const [saving, setSaving] = useState(false);
  const errors = checkForm(form);
  const shown: FormErrors = Object.fromEntries(Object.entries(errors).filter(([field]) => tried || touched.has(field)));
  const hosts = guessTargets(form.targets, form.bareNames).length;

  const change = (part: Partial<RequestForm>): void => {
    setForm({ ...form, ...part });
    setFailure(null);
  };
  const submit = async (): Promise<void> => {
    setTried(true);
    if (Object.keys(errors).length > 0 || busy) return;
    setBusy(true);
    try {
      const capture = await api.start(toRequest(form));
      localStorage.setItem(KEY, JSON.stringify(form));
      void refreshCaptures();
      setQuery({ new: null, watch: capture.id }, "replace");
    } catch (cause) {
      setFailure(asServiceError(cause));
      setBusy(false);
    }
  };
  useShortcuts([{ keys: "mod+enter", what: "Start the capture", run: () => void submit(), scope: "this page" }], [form, busy]);

  return (
    <Dialog
      title="New capture"
      label="New capture"
      class="capture-dialog"
      head={<Stages at={1} />}
      onClose={onClose}
      foot={
        <>
          <span class="quiet">Every host reports its own result; one that fails does not stop the others.</span>
          <span class="spring" />
          <button type="button" class="button" onClick={onClose}>Cancel</button>
          <button type="button" class="button" aria-expanded={saving} onClick={() => setSaving(!saving)}>Save as schedule</button>
          <button type="button" class="button primary" disabled={busy} onClick={() => void submit()} data-testid="start-capture">
            {busy ? "Starting" : `Capture ${hosts > 0 ? plural(hosts, "host") : "hosts"}`} <kbd>{MOD}↵</kbd>
          </button>
        </>
      }
    >
      <form
        class="request"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        {failure && (
          // The form is longer than the window, and the button is at its foot.
          <div ref={(shown) => shown?.scrollIntoView({ block: "nearest" })}>
            <Failure error={failure} />
          </div>
        )}
        {saving && <SaveSchedule form={form} valid={Object.keys(errors).length === 0} onTried={() => setTried(true)} />}
        <RequestFields
          form={form}
          errors={shown}
          onChange={change}
          onTouched={(field) => setTouched(new Set([...touched, field]))}
        />
      </form>
      <Preflight form={form} />
    </Dialog>
  );
}

function SaveSchedule({ form, valid, onTried }: { form: RequestForm; valid: boolean; onTried: () => void }) {
  const [minutes, setMinutes] = useState("60");
  const [name, setName] = useState(form.run || "");
  const [said, setSaid] = useState<string | null>(null);
  const [failure, setFailure] = useState<ServiceError | null>(null);
  const save = async (): Promise<void> => {
    onTried();
    const every = Number(minutes) * 60;
    if (!valid) return setSaid("Correct the request first.");
    if (!name.trim()) return setSaid("Give the schedule a name.");
    if (!(every > 0)) return setSaid("A number of minutes above 0.");
    try {
      await api.addSchedule({ name: name.trim(), every_s: Math.round(every), ...toRequest(form) });
      setFailure(null);
      setSaid("Saved.");
    } catch (cause) {
      setSaid(null);
      setFailure(asServiceError(cause));
    }
    return undefined;
  };
  return (
    <div class="save-schedule">
      <label class="inline-field">
        Name <input value={name} onInput={(event) => setName(event.currentTarget.value)} />
      </label>
      <label class="inline-field">
        every <input inputMode="numeric" value={minutes} size={5} onInput={(event) => setMinutes(event.currentTarget.value)} /> min
      </label>
      <button type="button" class="button" onClick={() => void save()}>Save</button>
      <span class="quiet" role="status">{said} {said === "Saved." && <a href="/schedules">Schedules</a>}</span>
      {failure && <Failure error={failure} />}
    </div>
  );
}

function ProgressDialog({ id, onClose }: { id: string; onClose: () => void }) {
  const [round, setRound] = useState(0);
  const [repeating, setRepeating] = useState(false);
  const progress = useProgress(id, round);
  const { capture } = progress;
  const [cancelling, setCancelling] = useState(false);
  const [failure, setFailure] = useState<ServiceError | null>(null);
  const isCapturing = capture !== null && isRunning(capture);
  const stage = capture === null || isCapturing ? 2 : 3;
  const cancel = async (): Promise<void> => {
    setCancelling(true);
    setFailure(null);
    try {
      // How each host ends comes as every other event does.
      await api.cancel(id);
    } catch (cause) {
      setFailure(asServiceError(cause));
      setCancelling(false);
    }
  };
  const again = async (): Promise<void> => {
    setRepeating(true);
    setFailure(null);
    try {
      await api.retry(id);
      setCancelling(false);
      setRound(round + 1);
    } catch (cause) {
      setFailure(asServiceError(cause));
    }
    setRepeating(false);
  };
  useEffect(() => void refreshCaptures(), [capture?.state, capture?.analysis?.state]);
  const title = capture ? `Capture of ${capture.run || capture.session}` : "Capture";
  return (
    <Dialog
      title={title}
      label={title}
      class="capture-dialog progress-dialog"
      head={<Stages at={stage} />}
      onClose={onClose}
      foot={
        <>
          <span class="quiet">You can close this window; the capture goes on and its row in the list stays live.</span>
          <span class="spring" />
          {isCapturing && <button type="button" class="button" disabled={cancelling} onClick={() => void cancel()}>{cancelling ? "Cancelling" : "Cancel the capture"}</button>}
          {capture !== null && !isCapturing && progress.failed.length > 0 && (
            <button type="button" class="button" disabled={repeating} onClick={() => void again()} data-testid="capture-again">
              Capture {plural(progress.failed.length, "host")} again
            </button>
          )}
          {progress.opens ? (
            <a class="button primary" href={progress.opens} data-testid="open-capture">
              {progress.complete ? "Open the overview" : "Open what is ready"}
            </a>
          ) : (
            <button type="button" class="button" onClick={onClose}>Close</button>
          )}
        </>
      }
    >
      {failure && <Failure error={failure} />}
      <Progress progress={progress} />
    </Dialog>
  );
}

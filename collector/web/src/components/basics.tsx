/** The small parts that every page is made of. */
import type { ComponentChildren } from "preact";

import type { ServiceError } from "../api/client";
import type { Reason } from "../api/types";
import type { Quantity } from "../format/numbers";
import { COPY_WORDS, useCopy } from "./copy";
import { Icon, type IconName } from "./icons";

export type Tone = "ok" | "warn" | "err" | "info" | "plain";
const TONE_ICON: Record<Tone, IconName> = { ok: "check", warn: "warn", err: "error", info: "info", plain: "info" };

/** A state: a colour, and always an icon and a word. */
export function Status({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  return (
    <span class={`status tone-${tone}`}>
      <Icon name={TONE_ICON[tone]} />
      {children}
    </span>
  );
}

export function Badge({ tone, icon = true, children, title }: { tone: Tone; icon?: boolean; children: ComponentChildren; title?: string }) {
  return (
    <span class={`badge tone-${tone}`} title={title}>
      {icon && <Icon name={TONE_ICON[tone]} />}
      {children}
    </span>
  );
}

export interface VerdictParts {
  readonly tone: Tone;
  readonly clause: string;
  readonly sentence?: ComponentChildren;
  readonly ruledOut?: ComponentChildren;
}

export function Verdict({ tone, clause, sentence, ruledOut }: VerdictParts) {
  return (
    <section class="verdict" aria-label="Verdict">
      <span class={`tone-${tone}`}>
        <Icon name={TONE_ICON[tone]} />
      </span>
      <p>
        <b>{clause}</b> {sentence}
        {ruledOut && <span class="ruled-out">{ruledOut}</span>}
      </p>
    </section>
  );
}

export interface TileParts {
  readonly label: string;
  readonly value: Quantity | null;
  /** Why there is no value. */
  readonly absent?: string;
  readonly context?: ComponentChildren;
  readonly to?: string;
}

export function Tiles({ tiles }: { tiles: readonly TileParts[] }) {
  return (
    <section class="tiles" aria-label="Key figures">
      {tiles.map((tile) => {
        const inside = (
          <>
            <span class="tile-label">{tile.label}</span>
            {tile.value ? (
              <span class="tile-value">
                {tile.value.value}
                <small>{tile.value.unit}</small>
              </span>
            ) : (
              <span class="tile-absent" title={tile.absent}>not measured</span>
            )}
            <span class="tile-context">{tile.value ? tile.context : tile.absent}</span>
          </>
        );
        return tile.to ? (
          <a class="tile" href={tile.to} key={tile.label}>{inside}</a>
        ) : (
          <div class="tile" key={tile.label}>{inside}</div>
        );
      })}
    </section>
  );
}

export function Panel(props: {
  title: ComponentChildren;
  subtitle?: ComponentChildren;
  tools?: ComponentChildren;
  class?: string;
  children: ComponentChildren;
}) {
  return (
    <section class={`panel ${props.class ?? ""}`}>
      <header class="panel-head">
        <h2>{props.title}</h2>
        {props.subtitle && <span class="subtitle">{props.subtitle}</span>}
        <span class="spring" />
        {props.tools}
      </header>
      {props.children}
    </section>
  );
}

export function Segmented<T extends string>(props: {
  label: string;
  options: readonly (readonly [T, string])[];
  value: T;
  onChange: (value: T) => void;
}) {
  // One stop of the Tab key; arrows choose, as among radio buttons.
  const at = props.options.findIndex(([value]) => value === props.value);
  const onKeyDown = (event: KeyboardEvent & { readonly currentTarget: HTMLElement }): void => {
    const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (by === undefined) return;
    const next = (at + by + props.options.length) % props.options.length;
    const chosen = props.options[next];
    if (chosen) props.onChange(chosen[0]);
    event.currentTarget.querySelectorAll<HTMLElement>("[role=radio]")[next]?.focus();
    event.preventDefault();
    event.stopPropagation();
  };
  return (
    <div class="segmented" role="radiogroup" aria-label={props.label} onKeyDown={onKeyDown}>
      {props.options.map(([value, text], i) => (
        <button
          type="button"
          role="radio"
          key={value}
          tabIndex={i === Math.max(at, 0) ? 0 : -1}
          aria-checked={value === props.value}
          onClick={() => props.onChange(value)}
        >
          {text}
        </button>
      ))}
    </div>
  );
}

export function Switch({ label, on, onChange }: { label: string; on: boolean; onChange: (on: boolean) => void }) {
  return (
    <button type="button" class="switch" role="switch" aria-checked={on} onClick={() => onChange(!on)}>
      <span class="switch-track"><span class="switch-knob" /></span>
      {label}
    </button>
  );
}

export function SearchField(props: {
  label: string;
  value: string;
  onInput: (value: string) => void;
  /** A shorter word where the label has no room. */
  placeholder?: string;
  wide?: boolean;
}) {
  return (
    <label class={`search ${props.wide ? "wide" : ""}`}>
      <Icon name="search" />
      <input
        type="search"
        aria-label={props.label}
        placeholder={props.placeholder ?? props.label}
        value={props.value}
        data-search
        onInput={(event) => props.onInput(event.currentTarget.value)}
      />
      <kbd>/</kbd>
    </label>
  );
}

export function IconButton(props: { icon: IconName; label: string; onClick: () => void }) {
  return (
    <button type="button" class="icon-button" aria-label={props.label} title={props.label} onClick={props.onClick}>
      <Icon name={props.icon} />
    </button>
  );
}

/** Text of the program with a way to take it along. */
export function Snippet({ title, text }: { title: string; text: string }) {
  const [said, copy] = useCopy();
  return (
    <figure class="snippet">
      <figcaption>
        {title}
        <button type="button" class="link-button" onClick={() => void copy(text)}>
          <Icon name={said === "copied" ? "check" : "copy"} />
          {said ? COPY_WORDS[said] : "Copy"}
        </button>
      </figcaption>
      <pre>{text}</pre>
    </figure>
  );
}

const sentence = (said: string): string => (/[^.!?]$/.test(said) ? `${said}.` : said);

export function NoData({ reasons, fallback }: { reasons: readonly Reason[]; fallback: string }) {
  return (
    <div class="no-data">
      {reasons.length === 0 && <p>{fallback}</p>}
      {reasons.map((reason) => (
        <p key={reason.code}>
          <b>{sentence(reason.message)}</b> {sentence(reason.advice)}
        </p>
      ))}
    </div>
  );
}

export function Failure({ error, retry }: { error: ServiceError; retry?: () => void }) {
  return (
    <div class="failure" role="alert">
      <Icon name="error" />
      <p>
        {error.message}
        {error.requestId && <small> Request {error.requestId}</small>}
      </p>
      {retry && <button type="button" class="button" onClick={retry}>Try again</button>}
    </div>
  );
}

/** Grey bars where the answer will be, and one line that says what is going on. */
export function Loading({ what }: { what: string }) {
  return (
    <div class="loading" role="status">
      <p>{what}</p>
      <i /><i /><i />
    </div>
  );
}

export function KeyValues({ rows }: { rows: readonly (readonly [string, ComponentChildren])[] }) {
  return (
    <dl class="key-values">
      {rows.map(([key, value]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A share as a bar: the width is set on the element, never in markup. */
export function Bar({ ratio, class: extra }: { ratio: number; class?: string }) {
  const width = { width: `${Math.min(Math.max(ratio, 0), 1) * 100}%` };
  return (
    <span class={`bar ${extra ?? ""}`}>
      <span class="bar-fill" style={width} />
    </span>
  );
}

export function Field(props: { label: string; hint?: ComponentChildren; error?: string | null; class?: string; children: ComponentChildren }) {
  return (
    <label class={`field ${props.class ?? ""} ${props.error ? "invalid" : ""}`}>
      <span class="field-label">{props.label}</span>
      {props.children}
      {props.error ? <span class="field-error">{props.error}</span> : props.hint && <span class="field-hint">{props.hint}</span>}
    </label>
  );
}

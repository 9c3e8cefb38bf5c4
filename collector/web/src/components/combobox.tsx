/** A selector with its label inside and, above eight options, a search field. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useMemo, useRef, useState } from "preact/hooks";

import { Icon } from "./icons";

export interface Option {
  readonly value: string;
  readonly text: string;
  readonly note?: string;
}

export function Combobox(props: {
  label: string;
  value: string;
  options: readonly Option[];
  onChange: (value: string) => void;
  shown?: ComponentChildren;
  opener?: string;
}) {
  const [open, setOpen] = useState(false);
  const [filter, setFilter] = useState("");
  const [active, setActive] = useState(0);
  const root = useRef<HTMLDivElement>(null);
  const id = useId();
  const chosen = props.options.find((option) => option.value === props.value);
  const hits = useMemo(() => {
    const wanted = filter.toLowerCase();
    return props.options.filter((option) => `${option.text} ${option.note ?? ""}`.toLowerCase().includes(wanted)).slice(0, 200);
  }, [filter, props.options]);

  useEffect(() => {
    if (!open) return undefined;
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    addEventListener("pointerdown", outside);
    root.current?.querySelector<HTMLElement>(".menu input, .menu [role=listbox]")?.focus();
    return () => removeEventListener("pointerdown", outside);
  }, [open]);
  useEffect(() => {
    root.current?.querySelector(".menu .active")?.scrollIntoView({ block: "nearest" });
  }, [active, open]);

  const show = (): void => {
    setFilter("");
    setActive(Math.max(0, props.options.findIndex((option) => option.value === props.value)));
    setOpen(!open);
  };
  const choose = (option: Option | undefined): void => {
    if (!option) return;
    setOpen(false);
    root.current?.querySelector("button")?.focus();
    props.onChange(option.value);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    if (event.key === "ArrowDown") setActive(Math.min(active + 1, hits.length - 1));
    else if (event.key === "ArrowUp") setActive(Math.max(active - 1, 0));
    else if (event.key === "Enter") choose(hits[active]);
    else if (event.key === "Escape") {
      setOpen(false);
      root.current?.querySelector("button")?.focus();
    } else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div class="combobox" ref={root}>
      <button
        type="button"
        class="button"
        aria-haspopup="listbox"
        aria-expanded={open}
        data-opener={props.opener}
        onClick={show}
      >
        <span class="quiet">{props.label}</span>
        <b class="cut">{props.shown ?? chosen?.text ?? "none"}</b>
        {chosen?.note && <span class="quiet cut note">{chosen.note}</span>}
        <Icon name="chevron" />
      </button>
      {open && (
        <div class="menu" onKeyDown={onKeyDown}>
          {props.options.length > 8 && (
            <input
              type="search"
              aria-controls={`${id}-list`}
              aria-activedescendant={hits[active] ? `${id}-${active}` : undefined}
              aria-label={`Search ${props.label.toLowerCase()}`}
              placeholder={`Search ${props.label.toLowerCase()}`}
              value={filter}
              onInput={(event) => {
                setFilter(event.currentTarget.value);
                setActive(0);
              }}
            />
          )}
          <ul role="listbox" id={`${id}-list`} tabIndex={-1} aria-label={props.label}>
            {hits.map((option, at) => (
              <li
                key={option.value}
                id={`${id}-${at}`}
                role="option"
                aria-selected={option.value === props.value}
                class={at === active ? "active" : ""}
                onPointerMove={() => setActive(at)}
                onClick={() => choose(option)}
              >
                <span class="cut">{option.text}</span>
                {option.note && <span class="quiet cut">{option.note}</span>}
              </li>
            ))}
            {hits.length === 0 && <li class="quiet">Nothing matches “{filter}”.</li>}
          </ul>
        </div>
      )}
    </div>
  );
}

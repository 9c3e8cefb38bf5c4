/** What opens below a button and closes by Escape, or by a click elsewhere. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

export function Popover(props: { label: ComponentChildren; class?: string; children: ComponentChildren }) {
  const root = useRef<HTMLDetailsElement>(null);
  const [open, setOpen] = useState(false);
  useEffect(() => {
    if (!open) return undefined;
    const close = (): void => root.current?.removeAttribute("open");
    const outside = (event: Event): void => {
      if (!root.current?.contains(event.target as Node)) close();
    };
    const escape = (event: KeyboardEvent): void => {
      if (event.key !== "Escape") return;
      close();
      root.current?.querySelector("summary")?.focus();
      event.stopPropagation();
    };
    addEventListener("pointerdown", outside);
    addEventListener("keydown", escape, true);
    return () => {
      removeEventListener("pointerdown", outside);
      removeEventListener("keydown", escape, true);
    };
  }, [open]);
  return (
    <details class="popover" ref={root} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary class={props.class}>{props.label}</summary>
      {props.children}
    </details>
  );
}

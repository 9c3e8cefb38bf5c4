/** At most one dialog: the browser's own, so that focus stays inside and Escape closes. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

import { IconButton } from "./basics";

export function Dialog(props: {
  title: ComponentChildren;
  label: string;
  head?: ComponentChildren;
  foot?: ComponentChildren;
  class?: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const element = dialog.current;
    if (element && !element.open) {
      element.showModal();
      // Else the first button, "Close", would take the focus.
      if (!element.querySelector("[autofocus]")) element.focus();
    }
    return () => element?.close();
  }, []);
  return (
    <dialog
      ref={dialog}
      tabIndex={-1}
      class={`dialog ${props.class ?? ""}`}
      aria-label={props.label}
      onCancel={(event) => {
        event.preventDefault();
        props.onClose();
      }}
    >
      <header class="dialog-head">
        <h1>{props.title}</h1>
        <span class="spring" />
        {props.head}
        <IconButton icon="close" label="Close" onClick={props.onClose} />
      </header>
      <div class="dialog-body">{props.children}</div>
      {props.foot && <footer class="dialog-foot">{props.foot}</footer>}
    </dialog>
  );
}

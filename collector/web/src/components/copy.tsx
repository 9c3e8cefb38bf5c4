/** Copies text, and says so where the click was. */
import { useEffect, useRef, useState } from "preact/hooks";

import { Icon } from "./icons";

const SAID_MS = 1500;

/** Whether the text is on the clipboard. */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Over plain HTTP from another machine a page has no clipboard of its own; a selected field can still be copied.
    const field = document.createElement("textarea");
    field.value = text;
    field.className = "hidden";
    // Beside the focus: a dialog keeps what is outside of it from being selected.
    (document.activeElement?.closest("dialog") ?? document.body).append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

/** What was said last, for a moment, and the way to copy. */
export function useCopy(): readonly ["copied" | "refused" | null, (text: string) => Promise<void>] {
  const [said, setSaid] = useState<"copied" | "refused" | null>(null);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = async (text: string): Promise<void> => {
    setSaid((await copyText(text)) ? "copied" : "refused");
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setSaid(null), SAID_MS);
  };
  return [said, copy];
}

export const COPY_WORDS = { copied: "Copied", refused: "The browser refused" } as const;

export function CopyLink() {
  const [said, copy] = useCopy();
  return (
    <button type="button" class="button bare" data-copy-link onClick={() => void copy(location.href)}>
      <Icon name={said === "copied" ? "check" : "link"} />
      {said ? COPY_WORDS[said] : "Copy link"}
    </button>
  );
}

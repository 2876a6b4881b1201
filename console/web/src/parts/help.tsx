import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { PAGES } from "../app";

export const helpIsOpen = signal(false);

const KEYS: [string, string][] = [
  ["/", "Find jobs"],
  ["↑ ↓, j k", "Move between rows"],
  ["Page Up, Page Down, Home, End", "Move farther"],
  ["Enter", "Open the row"],
  ["t", "Change colours"],
  ["?", "Show this"],
];

export function Help() {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    if (helpIsOpen.value) dialog.current?.showModal();
    else dialog.current?.close();
  }, [helpIsOpen.value]);
  return (
    <dialog ref={dialog} aria-label="Keyboard" onClose={() => (helpIsOpen.value = false)}>
      <h2>Keyboard</h2>
      <dl class="keys">
        {PAGES.map((page) => (
          <div key={page.key}>
            <dt>
              <kbd>g</kbd> <kbd>{page.key}</kbd>
            </dt>
            <dd>{page.title}</dd>
          </div>
        ))}
        {KEYS.map(([key, what]) => (
          <div key={key}>
            <dt>
              <kbd>{key}</kbd>
            </dt>
            <dd>{what}</dd>
          </div>
        ))}
      </dl>
      <form method="dialog">
        <button type="submit">Close</button>
      </form>
    </dialog>
  );
}

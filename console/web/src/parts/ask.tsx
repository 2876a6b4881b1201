// An action with a question before it, which says whom it affects.

import { Fragment, type ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";

import { count, visible } from "../format";

/** Users or pools of one question that are named. */
const NAMED = 8;

interface Props {
  button: string;
  title: string;
  detail: string;
  /** Whom it affects: each kind with its number or names. */
  affected: [string, string][];
  verb: string;
  isDanger?: boolean;
  act: () => Promise<void>;
  /** Called when the question is asked. */
  onOpen?: () => void;
  /** More about its effects. */
  children?: ComponentChildren;
}

export function Ask({ button, title, detail, affected, verb, isDanger, act, onOpen, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isBusy, setBusy] = useState(false);
  const id = useId();
  const open = () => {
    onOpen?.();
    dialog.current?.showModal();
  };
  const run = async () => {
    setBusy(true);
    await act();
    setBusy(false);
    dialog.current?.close();
  };
  return (
    <>
      <button type="button" onClick={open}>
        {button}
      </button>
      <dialog ref={dialog} aria-label={title} aria-describedby={id}>
        <h2>{title}</h2>
        <div id={id}>
          <dl class="affected">
            {affected.map(([kind, names]) => (
              <Fragment key={kind}>
                <dt>{kind}</dt>
                <dd>
                  <bdi>{visible(names)}</bdi>
                </dd>
              </Fragment>
            ))}
          </dl>
          <p>{detail}</p>
          {children}
        </div>
        <div class="actions">
          <button type="button" class={isDanger ? "is-danger" : "is-main"} disabled={isBusy} onClick={() => void run()}>
            {isBusy ? "Working…" : verb}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Back
          </button>
        </div>
      </dialog>
    </>
  );
}

/** The different values, the most frequent first, with how many each has. */
export function tally(values: (string | null | undefined)[]): string {
  const counts = new Map<string, number>();
  for (const value of values) counts.set(value || "unknown", (counts.get(value || "unknown") ?? 0) + 1);
  const sorted = [...counts].sort(([, a], [, b]) => b - a);
  const named = sorted.slice(0, NAMED).map(([value, of]) => (sorted.length > 1 ? `${value} (${count(of)})` : value));
  return named.join(", ") + (sorted.length > NAMED ? ` and ${count(sorted.length - NAMED)} more` : "");
}

// An action with a question before it.

import { useRef, useState } from "preact/hooks";

interface Props {
  button: string;
  title: string;
  detail: string;
  verb: string;
  isDanger?: boolean;
  act: () => Promise<void>;
}

export function Ask({ button, title, detail, verb, isDanger, act }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    await act();
    setBusy(false);
    dialog.current?.close();
  };
  return (
    <>
      <button type="button" onClick={() => dialog.current?.showModal()}>
        {button}
      </button>
      <dialog ref={dialog} aria-label={title}>
        <h2>{title}</h2>
        <p>{detail}</p>
        <div class="actions">
          <button type="button" class={isDanger ? "is-danger" : "is-main"} disabled={isBusy} onClick={() => void run()}>
            {isBusy ? "Working…" : verb}
          </button>
          <button type="button" onClick={() => dialog.current?.close()}>
            Leave it
          </button>
        </div>
      </dialog>
    </>
  );
}

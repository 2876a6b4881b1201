// A text filter above a list.

import { useEffect, useState } from "preact/hooks";

interface Props {
  name: string;
  title: string;
  hint: string;
  value: string;
  change: (text: string) => void;
}

/** It keeps what is typed while new data draws the page again, and changes the list when the text is complete. */
export function Field({ name, title, hint, value, change }: Props) {
  const [draft, setDraft] = useState(value);
  useEffect(() => setDraft(value), [value]);
  return (
    <label>
      <span>{title}</span>
      <input
        name={name}
        type="text"
        placeholder={hint}
        value={draft}
        onInput={(event) => setDraft(event.currentTarget.value)}
        onChange={(event) => change(event.currentTarget.value)}
      />
    </label>
  );
}

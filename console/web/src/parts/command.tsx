// The command that does the same, to copy.

import { useState } from "preact/hooks";

import { visible } from "../format";

export function Command({ text }: { text: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    setCopied(true);
    setTimeout(() => setCopied(false), 2000);
  };
  return (
    <div class="command">
      <code>
        <span class="faint" aria-hidden="true">
          ${" "}
        </span>
        {visible(text)}
      </code>
      <button type="button" class="quiet" onClick={() => void copy()} aria-label={`Copy the command ${text}`}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

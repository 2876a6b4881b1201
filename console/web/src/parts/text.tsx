// Texts from jobs: names, labels, messages. They are shown as they are, never as markup, each in a direction of its own.

import { visible } from "../format";

/** Longer texts are cut; their page shows the rest. */
const CHARS_MAX = 300;
/** Sentences of gpufleet may be longer. */
const PROSE_CHARS_MAX = 2000;

export function Text({ children, cut = CHARS_MAX }: { children: string | null | undefined; cut?: number }) {
  if (!children) return <span class="faint">–</span>;
  return <bdi>{visible(shortened(children, cut))}</bdi>;
}

/** Sentences of gpufleet. What they have between backticks is code. */
export function Prose({ children }: { children: string }) {
  const parts = shortened(children, PROSE_CHARS_MAX).split("`");
  const isCode = (index: number) => index % 2 === 1 && index < parts.length - 1;
  return <bdi>{parts.map((part, index) => (isCode(index) ? <code key={index}>{visible(part)}</code> : visible(part)))}</bdi>;
}

function shortened(text: string, cut: number): string {
  return text.length > cut ? `${text.slice(0, cut)}…` : text;
}

// Texts from jobs: names, labels, messages. They are shown as they are, never as markup, each in a direction of its own.

import { visible } from "../format";

/** Longer texts are cut; their page shows the rest. */
const CHARS_MAX = 300;

export function Text({ children, cut = CHARS_MAX }: { children: string | null | undefined; cut?: number }) {
  if (!children) return <span class="faint">–</span>;
  const text = children.length > cut ? `${children.slice(0, cut)}…` : children;
  return <bdi>{visible(text)}</bdi>;
}

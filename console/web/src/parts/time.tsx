// Times, in the viewer's zone, with the exact time as a hint.

import { now } from "../live/store";
import { age, clock } from "../format";

/** How long ago, counting on. */
export function Ago({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={at}>
      {age(now.value - Date.parse(at))} ago
    </time>
  );
}

export function At({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={at}>
      {clock(at, now.value)}
    </time>
  );
}

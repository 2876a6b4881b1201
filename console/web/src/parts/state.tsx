// The state of a job, attempt or worker: a shape, a word and a colour, so that none is needed alone.

import type { AttemptState, Job, JobState } from "../api/types";

const SHAPES: Record<string, string> = {
  queued: "M8 3.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9M8 5a3 3 0 1 1 0 6a3 3 0 1 1 0-6",
  running: "M5 3.2v9.6L13 8z",
  succeeded: "M6.6 12.4 2.6 8.4l1.2-1.2 2.8 2.8 5.8-5.8 1.2 1.2z",
  failed: "M4.2 3 8 6.8 11.8 3 13 4.2 9.2 8l3.8 3.8-1.2 1.2L8 9.2 4.2 13 3 11.8 6.8 8 3 4.2z",
  cancelled: "M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 1 0 0-11M4.5 7.2h7v1.6h-7z",
  expired: "M3.5 2.5h9v1.6L9.2 8l3.3 3.9v1.6h-9v-1.6L6.8 8 3.5 4.1z",
  dead: "M8 1.8 14.2 8 8 14.2 1.8 8zM7.2 4.8v4h1.6v-4zM7.2 9.8v1.6h1.6V9.8z",
  lost: "M7.1 9.6V8.9c0-1.2 1.9-1.6 1.9-2.8 0-.6-.4-1-1-1s-1.1.4-1.2 1.1L5.2 6C5.4 4.5 6.5 3.6 8 3.6s2.6 1 2.6 2.4c0 2-2 2.3-2 3.2v.4zM7.1 12.4v-1.6h1.6v1.6z",
};
const ALIKE: Record<string, string> = { up: "succeeded", silent: "lost", left: "cancelled", sick: "dead", superseded: "cancelled" };

export type AnyState = JobState | AttemptState | "up" | "silent" | "left" | "sick" | "superseded";

export function Glyph({ state }: { state: AnyState }) {
  return (
    <svg class={`glyph is-${state}`} viewBox="0 0 16 16" aria-hidden="true">
      <path fill-rule="evenodd" d={SHAPES[ALIKE[state] ?? state] ?? SHAPES["lost"]} />
    </svg>
  );
}

export function State({ state, word }: { state: AnyState; word?: string }) {
  return (
    <span class="state" data-state={state}>
      <Glyph state={state} />
      {word ?? state}
    </span>
  );
}

export function isEnded(job: Job): boolean {
  return job.state !== "queued" && job.state !== "running";
}

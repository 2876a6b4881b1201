// What a page says instead of data: nothing there, not yet there, or why not.

import type { ComponentChildren } from "preact";

import type { Problem } from "../api/types";

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Loading() {
  return (
    <p class="empty" role="status">
      Loading…
    </p>
  );
}

export function ProblemNote({ problem }: { problem: Problem }) {
  return (
    <div class="note is-bad" role="alert">
      <strong>{problem.title}</strong>
      <p>{problem.detail}</p>
      <p class="faint">{problem.next}</p>
    </div>
  );
}

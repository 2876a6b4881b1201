// What a page shows instead of data: nothing there, not yet there, or why not.

import type { ComponentChildren } from "preact";

import type { Problem } from "../api/types";
import { Prose } from "./text";

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

/** Grey bars in the place of data that are not there yet. */
export function Skeleton({ rows = 6 }: { rows?: number }) {
  return (
    <div class="skeleton panel" role="status" aria-label="Loading">
      {Array.from({ length: rows }, (_, row) => (
        <span key={row} style={{ width: `${60 + ((row * 17) % 35)}%` }} />
      ))}
    </div>
  );
}

export function ProblemNote({ problem }: { problem: Problem }) {
  return (
    <div class="note is-bad" role="alert">
      <strong>{problem.title}</strong>
      <p>
        <Prose>{problem.detail}</Prose>
      </p>
      <p class="faint">
        <Prose>{problem.next}</Prose>
      </p>
    </div>
  );
}

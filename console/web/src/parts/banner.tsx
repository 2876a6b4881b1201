// Whether the page is live, and what keeps newer data away.

import { age } from "../format";
import { heardAt, now, streamState, trouble } from "../live/store";

/** A beat comes each second. */
const SILENT_MS = 5000;

function isSilent(): boolean {
  const state = streamState.value;
  if (state === "lost" || state === "refused") return true;
  return state === "live" && heardAt.value > 0 && now.value > 0 && Date.now() - heardAt.value > SILENT_MS;
}

export function Liveness() {
  const isLive = !isSilent() && !trouble.value && streamState.value === "live";
  const word = isLive ? "Live" : streamState.value === "connecting" || streamState.value === "idle" ? "Connecting" : "Not live";
  return (
    <p class={`liveness${isLive ? " is-live" : ""}`} role="status">
      <span class="dot" aria-hidden="true" />
      {word}
    </p>
  );
}

export function Banner() {
  if (isSilent()) {
    return (
      <div class="banner" role="alert">
        <strong>The console does not answer.</strong> This page shows data from {since(heardAt.value)}. It reconnects automatically.
      </div>
    );
  }
  const current = trouble.value;
  if (!current) return null;
  return (
    <div class="banner" role="alert">
      <strong>{current.problem.title}:</strong> {current.problem.detail}.{" "}
      {current.since > 0 ? `This page shows data from ${since(current.since)}.` : ""} It reconnects automatically.
    </div>
  );
}

function since(at: number): string {
  return at > 0 ? `${age(now.value - at)} ago` : "earlier";
}

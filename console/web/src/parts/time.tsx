// Times: how long ago, how long, or in the viewer's zone.

import { now } from "../live/store";
import type { Job } from "../api/types";
import { age, duration, elapsed, iso8601 } from "../format";

/** How long ago, counting on. */
export function Ago({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return (
    <time dateTime={at} title={iso8601(at)}>
      {age(now.value - Date.parse(at))} ago
    </time>
  );
}

/** How long a job waited for a worker, or has waited. */
export function Waited({ job }: { job: Job }) {
  const submitted = job.submitted_at ?? job.created_at;
  if (typeof job.queue_us === "number") return <>{duration(job.queue_us)}</>;
  const until = job.started_at ? Date.parse(job.started_at) : job.state === "queued" ? now.value : null;
  return <Elapsed from={Date.parse(submitted)} to={until} />;
}

/** How long a job ran, or has run since its start or the given one. */
export function Ran({ job, since = job.started_at }: { job: Job; since?: string | null | undefined }) {
  if (job.state !== "running") return typeof job.total_us === "number" ? <>{duration(job.total_us)}</> : <span class="faint">–</span>;
  return <Elapsed from={since ? Date.parse(since) : 0} to={since && !job.is_unheard ? now.value : null} />;
}

function Elapsed({ from, to }: { from: number; to: number | null }) {
  if (to === null) return <span class="faint">–</span>;
  return <span title="so far, by the clocks of two machines">{elapsed(to - from)}</span>;
}

export function At({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return <time dateTime={at}>{iso8601(at)}</time>;
}

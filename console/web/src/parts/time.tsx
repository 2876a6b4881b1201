// Times: how long ago, how long, or in the viewer's zone.

import { now } from "../live/store";
import type { Job } from "../api/types";
import { age, duration, iso8601 } from "../format";

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

/** How long a job ran, or has run. */
export function Ran({ job }: { job: Job }) {
  if (typeof job.total_us === "number") return <>{duration(job.total_us)}</>;
  const isRunning = job.state === "running" && !job.is_unheard && job.started_at;
  return <Elapsed from={job.started_at ? Date.parse(job.started_at) : 0} to={isRunning ? now.value : null} />;
}

function Elapsed({ from, to }: { from: number; to: number | null }) {
  if (to === null) return <span class="faint">–</span>;
  return <span title="so far, by the clocks of two machines">{age(to - from)}</span>;
}

export function At({ at }: { at: string | null | undefined }) {
  if (!at) return <span class="faint">–</span>;
  return <time dateTime={at}>{iso8601(at)}</time>;
}

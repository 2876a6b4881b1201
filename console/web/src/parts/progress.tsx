// How far running jobs are: a bar with its count, and how long the rest may take.

import type { Job, JobProgress, PageProgress } from "../api/types";
import { bytesOf, count, left, percent } from "../format";
import { now, useTopic } from "../live/store";
import { LiveText } from "./live-text";
import { Prose } from "./text";

/** Workers report how far jobs are from this age on. */
const LONG_MS = 1000;

/** How far the running jobs of a page of the read API are. `undefined` asks for nothing. */
export function useProgress(page: string | undefined): PageProgress | undefined {
  return useTopic<PageProgress>(page && `progress${page}`).body;
}

/** Whether the job has run for a second. Briefer ones come and go too fast to be watched. */
export function isRunningLong(job: Job): boolean {
  return job.state === "running" && !job.is_unheard && Boolean(job.started_at) && now.value - Date.parse(job.started_at ?? "") >= LONG_MS;
}

/** Whether its worker reports how far the job is. Sessions have nothing to report. */
export function isReported(job: Job): boolean {
  return isRunningLong(job) && job.program !== "session";
}

/** The count of a bar in words: `312 of 1,000 launches`, `fetching 12.0 of 40.0 GiB`. */
function counted({ count: of, unit, stage }: JobProgress): string {
  if (!of) return "";
  return unit === "bytes" ? `${stage} ${bytesOf(of.done, of.total)}` : `${count(of.done)} of ${count(of.total)} ${unit}`;
}

function rest({ left_ms }: JobProgress): string {
  return left_ms ? `about ${left(left_ms)} left` : "";
}

function shareOf({ count: of }: JobProgress): number {
  return of && of.total > 0 ? Math.min(of.done / of.total, 1) : 0;
}

/** What a bar tells those who do not see it. */
function described(progress: JobProgress) {
  const share = Math.round(100 * shareOf(progress));
  const text = [counted(progress), rest(progress)].filter(Boolean).join(", ");
  return { role: "progressbar" as const, "aria-label": "Progress", "aria-valuemin": 0, "aria-valuemax": 100, "aria-valuenow": share, "aria-valuetext": text };
}

/** A bar below its count, for a row of a list. */
export function ProgressInRow({ progress }: { progress: JobProgress | undefined }) {
  if (!progress?.count) return <span class="faint">–</span>;
  return (
    <span class="progress-in-row" title={described(progress)["aria-valuetext"]}>
      <span class="words">
        {counted(progress)}
        {progress.left_ms ? ` · ≈ ${left(progress.left_ms)} left` : ""}
      </span>
      <Bar progress={progress} />
    </span>
  );
}

/** A bar alone, which only a narrow window shows. */
export function ThinBar({ progress }: { progress: JobProgress | undefined }) {
  return progress?.count ? <Bar progress={progress} isThin /> : null;
}

/** The part of a job's page that shows how far it is, and what it has printed so far. */
export function Progress({ job }: { job: Job }) {
  const all = useProgress(`/v1/jobs/${job.job_id}`);
  const progress = all?.jobs[job.job_id];
  return (
    <>
      <section class="progress">
        <h2>Progress</h2>
        <div class="panel">
          <p>{progress ? <Words progress={progress} isHostProgram={job.program === "host"} /> : <Unknown job={job} problem={all?.problem} />}</p>
          <Bar progress={progress} />
        </div>
      </section>
      {progress?.printed && <LiveText printed={progress.printed} attempt={progress.attempt} isHostProgram={job.program === "host"} />}
    </>
  );
}

function Words({ progress, isHostProgram }: { progress: JobProgress; isHostProgram: boolean }) {
  if (isHostProgram) return <span class="faint">The command runs. There is nothing to count.</span>;
  if (!progress.count) {
    return <span class="faint">{progress.unit === "bytes" ? `It is ${progress.stage}.` : "It has a single launch and no counter, so there is nothing to count."}</span>;
  }
  return (
    <>
      <strong>{counted(progress)}</strong> <span>{percent(shareOf(progress))}</span> <span class="faint">{rest(progress)}</span>
    </>
  );
}

/** Why there is no count yet, or none at all. The bar keeps its place. */
function Unknown({ job, problem }: { job: Job; problem: string | null | undefined }) {
  if (problem) {
    return (
      <span class="faint">
        Only the elapsed time is known: <Prose>{problem}</Prose>
      </span>
    );
  }
  return <span class="faint">{isReported(job) ? "Its worker has not reported yet." : "Its worker reports from the first second on."}</span>;
}

/** An empty one if there is nothing to count. */
function Bar({ progress, isThin }: { progress: JobProgress | undefined; isThin?: boolean }) {
  if (!progress?.count) return <span class="meter" aria-hidden="true" />;
  return (
    <span class={isThin ? "meter is-thin" : "meter"} {...described(progress)}>
      <span style={{ width: `${100 * shareOf(progress)}%` }} />
    </span>
  );
}

// The attempts of a job over time, each with its stages. Lost, superseded and cancelled attempts are there too.
//
// Only the rows in sight are in the document, so a job may have thousands of attempts.

import { useMemo, useState } from "preact/hooks";

import type { Attempt, Job } from "../api/types";
import { duration } from "../format";
import { now } from "../live/store";
import { Glyph, State, type AnyState } from "./state";
import { Text } from "./text";
import { At } from "./time";

export const LEGEND = ["fetch", "compile", "load", "copy in", "kernel", "copy out"];

const ROW = 26;
const BEYOND = 10;
const HEIGHT_MAX = 520;

interface Bar {
  attempt: Attempt;
  start: number;
  end: number;
  stages: { kind: string; from: number; to: number }[];
}

export function Gantt({ job, attempts }: { job: Job; attempts: Attempt[] }) {
  const [top, setTop] = useState(0);
  const [open, setOpen] = useState<number | null>(null);
  const isRunning = attempts.some(({ state }) => state === "running");
  const until = isRunning ? now.value : 0;
  const bars = useMemo(() => attempts.map((attempt) => barOf(attempt, until)), [attempts, until]);
  const submitted = Date.parse(job.submitted_at ?? job.created_at);
  // Before the first attempt a job may have waited for days; a gap of a tenth shows that it waited.
  const first = Math.min(...bars.map(({ start }) => start));
  const last = Math.max(...bars.map(({ end }) => end), first + 1);
  const begin = Math.max(submitted, first - (last - first) * 0.15);
  const span = Math.max(last - begin, 1);
  const x = (at: number) => `${(100 * (Math.min(Math.max(at, begin), last) - begin)) / span}%`;
  const width = (from: number, to: number) => `${Math.max((100 * (to - from)) / span, 0.15)}%`;
  const height = Math.min(bars.length * ROW, HEIGHT_MAX);
  const from = Math.max(0, Math.floor(top / ROW) - BEYOND);
  const shown = bars.slice(from, Math.ceil((top + height) / ROW) + BEYOND);
  const chosen = attempts.find(({ attempt }) => attempt === open);
  const ticks = [0, 0.25, 0.5, 0.75, 1];
  return (
    <figure class="gantt" aria-label="Attempts over time">
      <div class="gantt-axis" aria-hidden="true">
        {ticks.map((share) => (
          <span key={share} style={{ left: `${share * 100}%` }}>
            {share === 0 ? "0" : `+${duration(span * share * 1000)}`}
          </span>
        ))}
      </div>
      <div
        class="gantt-rows"
        style={{ height: `${height}px` }}
        tabIndex={bars.length * ROW > HEIGHT_MAX ? 0 : -1}
        onScroll={(event) => setTop(event.currentTarget.scrollTop)}
      >
        <ol style={{ height: `${bars.length * ROW}px` }}>
          {shown.map((bar, offset) => {
            const { attempt } = bar;
            const state = stateOf(attempt);
            return (
              <li key={attempt.attempt} style={{ top: `${(from + offset) * ROW}px` }} aria-posinset={from + offset + 1} aria-setsize={bars.length}>
                <button
                  type="button"
                  class="gantt-name"
                  aria-expanded={open === attempt.attempt}
                  onClick={() => setOpen(open === attempt.attempt ? null : attempt.attempt)}
                  aria-label={`Attempt ${attempt.attempt} ${state}, ${duration((bar.end - bar.start) * 1000)}, worker ${attempt.worker}`}
                >
                  <Glyph state={state} />
                  {attempt.attempt} <span class="faint">{state}</span>
                </button>
                <div class="gantt-lane" aria-hidden="true">
                  {offset + from === 0 && submitted < bar.start && (
                    <span class="bar is-wait" style={{ left: x(begin), width: width(begin, bar.start) }} />
                  )}
                  <span class={`bar is-${state}`} style={{ left: x(bar.start), width: width(bar.start, bar.end) }} />
                  {bar.stages.map(({ kind, from, to }) => (
                    <span key={kind} class={`bar is-stage is-${kind.replace(" ", "-")}`} style={{ left: x(from), width: width(from, to) }} />
                  ))}
                </div>
              </li>
            );
          })}
        </ol>
      </div>
      <figcaption>
        {LEGEND.map((stage) => (
          <span key={stage}>
            <span class={`swatch is-${stage.replace(" ", "-")}`} aria-hidden="true" /> {stage}
          </span>
        ))}
        <span>
          <span class="swatch is-wait" aria-hidden="true" /> waited
        </span>
        <span>
          0 is <At at={new Date(begin).toISOString()} />
        </span>
      </figcaption>
      {chosen && <AttemptFacts attempt={chosen} />}
    </figure>
  );
}

function AttemptFacts({ attempt }: { attempt: Attempt }) {
  return (
    <div class="attempt" role="status">
      <p>
        <State state={stateOf(attempt)} word={`attempt ${attempt.attempt}: ${stateOf(attempt)}`} /> on <Text>{attempt.worker}</Text>
        {attempt.device_name ? `, device ${attempt.device} ` : ""}
        <Text>{attempt.device_name ?? ""}</Text>
      </p>
      {attempt.failure && (
        <p>
          <code>{attempt.failure.code}</code> <Text cut={1000}>{attempt.failure.message}</Text>
        </p>
      )}
      {attempt.superseded && <p class="faint">It ended after another attempt had decided the job.</p>}
      {attempt.retry_at && (
        <p class="faint">
          Tried again at <At at={attempt.retry_at} />.
        </p>
      )}
    </div>
  );
}

function stateOf(attempt: Attempt): AnyState {
  return attempt.superseded ? "superseded" : attempt.state;
}

/** Stages are known as lengths; they follow one another and end when the attempt ends. */
function barOf(attempt: Attempt, until: number): Bar {
  const timings = attempt.timings;
  const total = (timings?.total_us ?? 0) / 1000;
  const finished = attempt.finished_at ? Date.parse(attempt.finished_at) : undefined;
  const started = attempt.started_at ? Date.parse(attempt.started_at) : undefined;
  const end = finished ?? (attempt.state === "running" ? until : (started ?? 0));
  const start = started ?? end - total;
  const lengths: [string, number][] = [
    ["fetch", timings?.fetch_us ?? 0],
    ["compile", timings?.compile_us ?? 0],
    ["load", timings?.load_us ?? 0],
    ["copy in", timings?.copy_in_us ?? 0],
    ["kernel", (timings?.launches_us ?? []).reduce((sum, us) => sum + us, 0)],
    ["copy out", timings?.copy_out_us ?? 0],
  ];
  const stages: Bar["stages"] = [];
  // A program is compiled before the executor starts on the job, so its time is none of the executor's.
  const compile = (timings?.compile_us ?? 0) / 1000;
  const begin = Math.min(start, end) > 0 ? end - total - compile : start;
  let at = begin;
  for (const [kind, us] of lengths) {
    if (us <= 0) continue;
    const to = at + us / 1000;
    stages.push({ kind, from: at, to });
    at = to;
  }
  return { attempt, start: Math.min(start, end, begin), end: Math.max(end, start), stages };
}

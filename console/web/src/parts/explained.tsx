// What the fleet knows about one job beyond its record: why it waits, and how to make better use of the device.

import type { Broker, Explanation, Job, Report } from "../api/types";
import { count } from "../format";
import { useTopic } from "../live/store";
import { Skeleton } from "./messages";
import { Prose } from "./text";

/** The reasons why a queued job waits, the most likely one first. */
export function Waits({ job }: { job: Job }) {
  const { body } = useTopic<Explanation>(`/v1/jobs/${job.job_id}/why`);
  const { body: broker } = useTopic<Broker>("broker");
  // A session or a host program waits in a queue of its own.
  const queue = job.program === "session" || job.program === "host" ? undefined : broker?.pools.find(({ pool }) => pool === job.pool);
  // The read API does not ask the broker; the console does.
  const reasons = (body?.reasons ?? []).filter(({ reason }) => !queue || reason !== "ask_broker");
  return (
    <section>
      <h2>Why it waits</h2>
      {!body && <Skeleton rows={1} />}
      <ul>
        {reasons.map(({ reason, text }) => (
          <li key={reason}>
            <Prose>{text}</Prose>
          </li>
        ))}
        {queue && (
          <li>
            {count(queue.messages)} {queue.messages === 1 ? "message waits" : "messages wait"} in its pool, which{" "}
            {queue.consumers === 0 ? "no worker serves" : "workers serve"}.
          </li>
        )}
      </ul>
    </section>
  );
}

/** Advice on a job that succeeded. Nothing is shown if there is none. */
export function Advice({ job }: { job: Job }) {
  const { body } = useTopic<Report>(`/v1/jobs/${job.job_id}/report`);
  if (!body || body.advice.length === 0) return null;
  return (
    <section>
      <h2>Advice</h2>
      <ul>
        {body.advice.map((text) => (
          <li key={text}>
            <Prose>{text}</Prose>
          </li>
        ))}
      </ul>
    </section>
  );
}

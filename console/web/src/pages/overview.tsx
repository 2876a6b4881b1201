// The whole fleet at a glance: what needs action, how much it does, and what failed.

import { useMemo } from "preact/hooks";
import { Link } from "wouter-preact";

import type { Broker, Overview, Page, Series, StatisticsRow, Times, Workers } from "../api/types";
import { age, count, duration, percent, shortId } from "../format";
import { useTopic } from "../live/store";
import { Chart, type Line } from "../parts/chart";
import { Empty, Skeleton } from "../parts/messages";
import { Meter } from "../parts/meter";
import { isBehind, NeedsAction } from "../parts/needs-action";
import { useProgress } from "../parts/progress";
import { RangeChoice, useRange, type Range } from "../parts/range";
import { RunningJobs } from "../parts/running-jobs";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { Ago } from "../parts/time";
import { Tile } from "../parts/tile";

const VERDICTS: [keyof StatisticsRow, string][] = [
  ["verdict_user", "The job's own fault"],
  ["verdict_timeout", "Took too long"],
  ["verdict_out_of_memory", "Needed more memory"],
  ["verdict_device", "The device's fault"],
  ["verdict_infrastructure", "The fleet's fault"],
];

const RANGES: Range[] = ["15m", "1h", "24h"];
/** The points of a day are as far apart. */
const GRAIN_MS = 300_000;
/** The newest of the running jobs. */
const RUNNING = "/v1/jobs?state=running&limit=10";
const NO_POINTS: Series["points"] = [];

export function OverviewPage() {
  const { body: overview } = useTopic<Overview>("/v1/overview");
  const { body: workers } = useTopic<Workers>("/v1/workers");
  const { body: broker } = useTopic<Broker>("broker");
  const { body: series } = useTopic<Series>("/v1/statistics/series");
  const { body: troubled } = useTopic<Page>("/v1/jobs?state=failed&state=dead&state=expired&limit=8");
  const isReady = overview && workers && broker;
  return (
    <>
      <header class="page-head">
        <h1>Overview</h1>
      </header>
      {isReady ? (
        <>
          <NeedsAction overview={overview} workers={workers} broker={broker} />
          <Activity overview={overview} broker={broker} points={series?.points ?? NO_POINTS} />
          <Troubled jobs={troubled?.jobs} />
          <Running />
        </>
      ) : (
        <>
          <Skeleton rows={1} />
          <Skeleton rows={4} />
          <Skeleton rows={12} />
        </>
      )}
    </>
  );
}

/** It comes last, because its length changes all the time. */
function Running() {
  const { body } = useTopic<Page>(RUNNING);
  const progress = useProgress(RUNNING);
  return (
    <section>
      <header class="page-head">
        <h2>Running jobs</h2>
        {body?.next && <Link href="/jobs?state=running">See all</Link>}
      </header>
      {!body && <Skeleton rows={2} />}
      {body?.jobs.length === 0 && <Empty>None.</Empty>}
      {body && body.jobs.length > 0 && <RunningJobs jobs={body.jobs} progress={progress} place="Worker" />}
    </section>
  );
}

/** How many jobs run, wait and end, and how long they take. */
function Activity({ overview, broker, points }: { overview: Overview; broker: Broker; points: Series["points"] }) {
  const statisticsOf = (name: Range) => overview.windows.find(({ window }) => window === name);
  // The shortest range with all of the jobs: a young fleet has a quarter of an hour, and not an empty day.
  const day = statisticsOf("24h")?.statistics;
  const fitted = RANGES.find((name) => (statisticsOf(name)?.statistics.jobs ?? 0) === (day?.jobs ?? 0)) ?? "24h";
  const { range, minutes } = useRange(day?.jobs ? fitted : "1h");
  const ended = statisticsOf(range);
  const times = ended?.statistics;
  const sum = (state: string) => {
    const of = overview.unfinished.filter((row) => row.state === state);
    return atLeast({ jobs: of.reduce((jobs, row) => jobs + row.jobs, 0), isAtLeast: of.some((row) => row.is_at_least) });
  };
  const failed = times ? times.jobs - times.succeeded : 0;
  const behind = overview.recorder.behind_seconds;
  return (
    <section aria-label="Activity">
      <header class="page-head">
        <h2>Activity</h2>
        <RangeChoice range={range} of={RANGES} />
      </header>
      <dl class="tiles">
        <Tile title="Running" value={sum("running")} note={<Link href="/jobs?state=running">See them</Link>} />
        <Tile title="Waiting" value={sum("queued")} note={<Link href="/jobs?state=queued">See them</Link>} />
        <Tile title="Jobs ended" value={count(times?.jobs)} note={`${rate(ended?.jobs_per_second)} a second`} />
        <Tile title="Did not succeed" value={count(failed)} note={times?.jobs ? `${percent(failed / times.jobs)} of them` : ""} isBad={failed > 0} />
        <TimesTile title="Median wait (p50)" of={times?.queue} />
        <TimesTile title="Median run (p50)" of={times?.total} />
        <BrokerTile broker={broker} />
        <Tile
          title="Recorder"
          value={behind === null || behind === undefined ? "–" : isBehind(overview) ? "Behind" : "Current"}
          note={behind === null || behind === undefined ? "never caught up" : `caught up ${age(behind * 1000)} ago`}
          isBad={isBehind(overview)}
        />
      </dl>
      <div class="columns">
        <Throughput points={points} minutes={minutes} />
        <Durations points={points} minutes={minutes} />
        <Waiting overview={overview} broker={broker} />
        <Verdicts of={times} />
      </div>
    </section>
  );
}

function atLeast({ jobs, isAtLeast }: { jobs: number; isAtLeast: boolean }): string {
  return isAtLeast ? `≥ ${count(jobs)}` : count(jobs);
}

function rate(perSecond: number | undefined): string {
  if (perSecond === undefined) return "–";
  return perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

function TimesTile({ title, of }: { title: string; of: Times | null | undefined }) {
  return <Tile title={title} value={duration(of?.p50_us)} note={`95th percentile (p95): ${duration(of?.p95_us)}`} />;
}

function BrokerTile({ broker }: { broker: Broker }) {
  if (broker.state !== "up") {
    return <Tile title="Broker" value={broker.state === "absent" ? "None" : "Away"} note={broker.reason ?? ""} isBad={broker.state === "away"} />;
  }
  const messages = broker.pools.reduce((sum, pool) => sum + pool.messages, 0);
  const dead = broker.dead ?? 0;
  return <Tile title="Messages" value={count(messages)} note={<Link href="/dead">{count(dead)} dead letters</Link>} />;
}

/** The time of each point in seconds. Spans without jobs, which the ledger leaves out, are between them. */
function spansOf(points: Series["points"]): { at: number[]; spans: (Series["points"][number] | undefined)[] } {
  const known = new Map(points.map((point) => [Date.parse(point.at), point]));
  const [first, last] = [Math.min(...known.keys()), Math.max(...known.keys())];
  const at = new Set(known.keys());
  for (let time = first; time < last; time += GRAIN_MS) at.add(time);
  const sorted = [...at].sort((a, b) => a - b);
  return { at: sorted.map((time) => time / 1000), spans: sorted.map((time) => known.get(time)) };
}

function Throughput({ points, minutes }: { points: Series["points"]; minutes: number }) {
  const [at, lines] = useMemo((): [number[], Line[]] => {
    const { at, spans } = spansOf(points);
    const failed = spans.map((point) => (point ? point.jobs - point.succeeded : 0));
    const ended = spans.map((point) => point?.jobs ?? 0);
    return [
      at,
      [
        { title: "ended", colour: "line-strong", values: ended, isBars: true },
        { title: "did not succeed", colour: "bad", values: failed, isBars: true },
      ],
    ];
  }, [points]);
  return <Chart title="Jobs in each five minutes" at={at} lines={lines} minutes={minutes} unit="count" />;
}

function Durations({ points, minutes }: { points: Series["points"]; minutes: number }) {
  const [at, lines] = useMemo((): [number[], Line[]] => {
    const { at, spans } = spansOf(points);
    return [
      at,
      [
        { title: "wait", colour: "compile", values: spans.map((point) => point?.queue?.p95_us ?? null), dash: [6, 3] },
        { title: "run", colour: "accent", values: spans.map((point) => point?.total?.p95_us ?? null) },
      ],
    ];
  }, [points]);
  return <Chart title="Wait and run, 95th percentile (p95)" at={at} lines={lines} minutes={minutes} unit="time" />;
}

function Waiting({ overview, broker }: { overview: Overview; broker: Broker }) {
  const queued = overview.unfinished.filter(({ state }) => state === "queued");
  const names = [...new Set([...queued.map(({ pool }) => pool ?? ""), ...broker.pools.map(({ pool }) => pool)])].sort();
  const most = Math.max(1, ...queued.map(({ jobs }) => jobs));
  return (
    <section class="panel">
      <h2>Waiting by pool</h2>
      {names.length === 0 && <Empty>No workers and no waiting jobs.</Empty>}
      {names.length > 0 && (
        <div class="table-box">
          <table>
            <thead>
              <tr>
                <th scope="col">Pool</th>
                <th scope="col" class="is-end">
                  Jobs
                </th>
                <th scope="col">
                  <span class="visually-hidden">Share</span>
                </th>
                <th scope="col" class="is-end">
                  Messages
                </th>
                <th scope="col" class="is-end">
                  Served
                </th>
              </tr>
            </thead>
            <tbody>
              {names.map((name) => {
                const row = queued.find(({ pool }) => (pool ?? "") === name);
                const queue = broker.pools.find(({ pool }) => pool === name);
                return (
                  <tr key={name}>
                    <td>
                      <Text cut={60}>{name || "not known yet"}</Text>
                    </td>
                    <td class="is-end">{atLeast({ jobs: row?.jobs ?? 0, isAtLeast: row?.is_at_least ?? false })}</td>
                    <td>
                      <Meter share={(row?.jobs ?? 0) / most} />
                    </td>
                    <td class="is-end">{count(queue?.messages)}</td>
                    <td class={`is-end${queue?.consumers === 0 && (row || queue.messages > 0) ? " is-bad" : ""}`}>{served(queue)}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Whether a worker takes jobs of the pool. The broker counts subscriptions, of which a worker has several. */
function served(queue: { consumers: number } | undefined): string {
  if (!queue) return "–";
  return queue.consumers === 0 ? "no" : "yes";
}

function Verdicts({ of }: { of: StatisticsRow | undefined }) {
  const total = of ? VERDICTS.reduce((sum, [key]) => sum + Number(of[key]), 0) : 0;
  return (
    <section class="panel">
      <h2>Failures by verdict</h2>
      {of && total === 0 && <Empty>None.</Empty>}
      {of && total > 0 && (
        <table>
          <tbody>
            {VERDICTS.map(([key, title]) => (
              <tr key={key}>
                <th scope="row">{title}</th>
                <td class="is-end">{count(Number(of[key]))}</td>
                <td>
                  <Meter share={Number(of[key]) / total} isBad />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

function Troubled({ jobs }: { jobs: Page["jobs"] | undefined }) {
  return (
    <section>
      <h2>Latest jobs that did not succeed</h2>
      {!jobs && <Skeleton rows={4} />}
      {jobs?.length === 0 && <Empty>None.</Empty>}
      {jobs && jobs.length > 0 && (
        <div class="table-box">
          <table>
            <thead>
              <tr>
                <th scope="col">State</th>
                <th scope="col">Job</th>
                <th scope="col" class="is-extra">
                  Kernel
                </th>
                <th scope="col">Why</th>
                <th scope="col" class="is-end">
                  Ended
                </th>
              </tr>
            </thead>
            <tbody>
              {jobs.map((job) => (
                <tr key={job.job_id}>
                  <td>
                    <State state={job.state} />
                  </td>
                  <td>
                    <Link class="mono" href={`/jobs/${job.job_id}`}>
                      {shortId(job.job_id)}
                    </Link>
                  </td>
                  <td class="is-extra">
                    <Text cut={60}>{job.kernel}</Text>
                  </td>
                  <td class="is-wide">
                    <Text cut={160}>{job.failure?.message}</Text>
                  </td>
                  <td class="is-end">
                    <Ago at={job.finished_at} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

// The whole fleet at a glance.

import { useMemo } from "preact/hooks";
import { Link } from "wouter-preact";

import type { Broker, Overview, Page, Series, StatisticsRow } from "../api/types";
import { count, duration, percent, quoted, shortId } from "../format";
import { useTopic } from "../live/store";
import { Chart, hoursOf, type Line } from "../parts/chart";
import { Command } from "../parts/command";
import { Empty, Loading } from "../parts/messages";
import { Meter } from "../parts/meter";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { Ago } from "../parts/time";
import { Tile } from "../parts/tile";

/** An idle recorder looks for events every ten seconds. */
const BEHIND_SECONDS_MAX = 30;

export const VERDICTS: [keyof StatisticsRow, string][] = [
  ["verdict_user", "The job's own fault"],
  ["verdict_timeout", "Took too long"],
  ["verdict_out_of_memory", "Needed more memory"],
  ["verdict_device", "The device's fault"],
  ["verdict_infrastructure", "The fleet's fault"],
];

export function OverviewPage() {
  const { body: overview } = useTopic<Overview>("/v1/overview");
  const { body: broker } = useTopic<Broker>("broker");
  const { body: series } = useTopic<Series>("/v1/statistics/series");
  const { body: troubled } = useTopic<Page>("/v1/jobs?state=failed&state=dead&state=expired&limit=8");
  const hour = overview?.windows.find(({ window }) => window === "1h");
  const recent = overview?.windows.find(({ window }) => window === "15m");
  const day = overview?.windows.find(({ window }) => window === "24h")?.statistics;
  const sum = (state: string) => {
    const of = overview?.unfinished.filter((row) => row.state === state) ?? [];
    return { jobs: of.reduce((jobs, row) => jobs + row.jobs, 0), isAtLeast: of.some((row) => row.is_at_least) };
  };
  const behind = overview?.recorder.behind_seconds;
  return (
    <>
      <header class="page-head">
        <h1>Overview</h1>
      </header>
      <Unserved overview={overview} broker={broker} />
      {!overview && <Loading />}
      {overview && (
        <dl class="tiles">
          <Tile title="Running" value={atLeast(sum("running"))} note={<Link href="/jobs?state=running">See them</Link>} />
          <Tile title="Waiting" value={atLeast(sum("queued"))} note={<Link href="/jobs?state=queued">See them</Link>} />
          <Tile title="Jobs a second" value={rate(recent?.jobs_per_second)} note="over 15 min" />
          <Tile title="Did not succeed" value={failureRate(hour?.statistics)} note={`of ${count(hour?.statistics.jobs)} in an hour`} />
          <Tile title="Wait, median" value={duration(hour?.statistics.queue?.p50_us)} note={`95 %: ${duration(hour?.statistics.queue?.p95_us)}`} />
          <Tile title="Run, median" value={duration(hour?.statistics.total?.p50_us)} note={`95 %: ${duration(hour?.statistics.total?.p95_us)}`} />
          <BrokerTile broker={broker} />
          <Tile
            title="Recorder"
            value={behind === null || behind === undefined ? "–" : behind > BEHIND_SECONDS_MAX ? "Behind" : "Current"}
            note={behind === null || behind === undefined ? "never caught up" : `caught up ${Math.round(behind)} s ago`}
            isBad={(behind ?? 0) > BEHIND_SECONDS_MAX}
          />
        </dl>
      )}
      <div class="columns">
        <Throughput series={series} />
        <Waits series={series} />
        <Waiting overview={overview} broker={broker} />
        <Verdicts day={day} />
      </div>
      <section>
        <h2>Latest jobs that did not succeed</h2>
        {troubled && troubled.jobs.length === 0 && <Empty>None.</Empty>}
        {troubled && troubled.jobs.length > 0 && (
          <div class="table-box">
            <table>
              <thead>
                <tr>
                  <th scope="col">State</th>
                  <th scope="col">Job</th>
                  <th scope="col">Kernel</th>
                  <th scope="col">Why</th>
                  <th scope="col" class="is-end">
                    Ended
                  </th>
                </tr>
              </thead>
              <tbody>
                {troubled.jobs.map((job) => (
                  <tr key={job.job_id}>
                    <td>
                      <State state={job.state} />
                    </td>
                    <td>
                      <Link class="mono" href={`/jobs/${job.job_id}`}>
                        {shortId(job.job_id)}
                      </Link>
                    </td>
                    <td>
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
    </>
  );
}

function atLeast({ jobs, isAtLeast }: { jobs: number; isAtLeast: boolean }): string {
  return isAtLeast ? `≥ ${count(jobs)}` : count(jobs);
}

function rate(perSecond: number | undefined): string {
  if (perSecond === undefined) return "–";
  return perSecond >= 100 ? count(Math.round(perSecond)) : perSecond.toFixed(perSecond >= 10 ? 1 : 2);
}

function failureRate(of: StatisticsRow | undefined): string {
  return of && of.jobs > 0 ? percent((of.jobs - of.succeeded) / of.jobs) : "–";
}

function BrokerTile({ broker }: { broker: Broker | undefined }) {
  if (!broker) return <Tile title="Broker" value="–" note="" />;
  if (broker.state !== "up") {
    return <Tile title="Broker" value={broker.state === "absent" ? "None" : "Away"} note={broker.reason ?? ""} isBad={broker.state === "away"} />;
  }
  const messages = broker.pools.reduce((sum, pool) => sum + pool.messages, 0);
  return (
    <Tile
      title="Broker, messages"
      value={count(messages)}
      note={<Link href="/dead">{count(broker.dead ?? 0)} dead letters</Link>}
      isBad={(broker.dead ?? 0) > 0}
    />
  );
}

const seconds = (iso: string) => Date.parse(iso) / 1000;

function Throughput({ series }: { series: Series | undefined }) {
  const [at, lines] = useMemo((): [number[], Line[]] => {
    const points = series?.points ?? [];
    return [
      points.map((point) => seconds(point.at)),
      [
        { title: "ended", colour: "line-strong", values: points.map((point) => point.jobs), isBars: true },
        { title: "did not succeed", colour: "bad", values: points.map((point) => point.jobs - point.succeeded), isBars: true },
      ],
    ];
  }, [series]);
  return <Chart title="Jobs in five minutes" at={at} lines={lines} hours={hoursOf(at, 24)} shown={(value) => count(Math.round(value))} />;
}

function Waits({ series }: { series: Series | undefined }) {
  const [at, lines] = useMemo((): [number[], Line[]] => {
    const points = series?.points ?? [];
    return [
      points.map((point) => seconds(point.at)),
      [
        { title: "wait, 95 %", colour: "compile", values: points.map((point) => point.queue?.p95_us ?? null), dash: [6, 3] },
        { title: "run, 95 %", colour: "accent", values: points.map((point) => point.total?.p95_us ?? null) },
      ],
    ];
  }, [series]);
  return <Chart title="Wait and run, 95th percentile" at={at} lines={lines} hours={hoursOf(at, 24)} shown={duration} />;
}

/** Pools in which jobs wait that no worker serves. Nothing else on the page needs a person as much. */
function Unserved({ overview, broker }: { overview: Overview | undefined; broker: Broker | undefined }) {
  const pools = (broker?.pools ?? []).flatMap(({ pool, messages, consumers }) => {
    const queued = overview?.unfinished.find((row) => row.state === "queued" && row.pool === pool)?.jobs ?? 0;
    const jobs = Math.max(messages, queued);
    return consumers === 0 && jobs > 0 ? [{ pool, jobs }] : [];
  });
  return (
    <>
      {pools.map(({ pool, jobs }) => (
        <div key={pool} class="note is-bad" role="alert">
          <strong>
            {count(jobs)} {jobs === 1 ? "job waits" : "jobs wait"} in pool <Text cut={60}>{pool}</Text>, and no worker serves it.
          </strong>
          <p>Start a worker on a machine with a GPU:</p>
          <Command text={`gpufleet-worker run --pool ${quoted(pool)}`} />
        </div>
      ))}
    </>
  );
}

function Waiting({ overview, broker }: { overview: Overview | undefined; broker: Broker | undefined }) {
  const queued = overview?.unfinished.filter(({ state }) => state === "queued") ?? [];
  const names = [...new Set([...queued.map(({ pool }) => pool ?? ""), ...(broker?.pools.map(({ pool }) => pool) ?? [])])].sort();
  const most = Math.max(1, ...queued.map(({ jobs }) => jobs));
  return (
    <section class="panel">
      <h2>Waiting by pool</h2>
      {names.length === 0 && (overview && broker ? <Empty>No workers and no waiting jobs.</Empty> : <Loading />)}
      {names.length > 0 && (
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
              const queue = broker?.pools.find(({ pool }) => pool === name);
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
                  <td class={`is-end${queue?.consumers === 0 ? " is-bad" : ""}`}>{served(queue)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      )}
    </section>
  );
}

/** Whether a worker takes jobs of the pool. The broker counts subscriptions, of which a worker has several. */
function served(queue: { consumers: number } | undefined): string {
  if (!queue) return "–";
  return queue.consumers === 0 ? "no" : "yes";
}

function Verdicts({ day }: { day: StatisticsRow | undefined }) {
  const total = day ? VERDICTS.reduce((sum, [key]) => sum + Number(day[key]), 0) : 0;
  return (
    <section class="panel">
      <h2>Failures in 24 hours, by verdict</h2>
      {day && total === 0 && <Empty>None.</Empty>}
      {day && total > 0 && (
        <table>
          <tbody>
            {VERDICTS.map(([key, title]) => (
              <tr key={key}>
                <th scope="row">{title}</th>
                <td class="is-end">{count(Number(day[key]))}</td>
                <td>
                  <Meter share={Number(day[key]) / total} isBad />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </section>
  );
}

// Workers and their devices, the ones heard from last first.

import { useMemo, useState } from "preact/hooks";
import { Link, useSearch } from "wouter-preact";

import type { Device, Job, Page, PageProgress, Samples, Worker, Workers } from "../api/types";
import { bytes, count } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Chart, type Line } from "../parts/chart";
import { Command } from "../parts/command";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { Meter } from "../parts/meter";
import { isRunningLong, useProgress } from "../parts/progress";
import { RangeChoice, useRange, type Range } from "../parts/range";
import { RunningJobs } from "../parts/running-jobs";
import { fullHour } from "../parts/since";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { Ago } from "../parts/time";

/** The newest of the running jobs of all workers. */
const RUNNING = "/v1/jobs?state=running&limit=100";

export function WorkersPage() {
  const name = new URLSearchParams(useSearch()).get("name") ?? "";
  const { body, problem } = useTopic<Workers>(name ? `/v1/workers?name=${encodeURIComponent(name)}` : "/v1/workers");
  const running = useTopic<Page>(RUNNING);
  const progress = useProgress(RUNNING);
  const workers = body?.workers ?? [];
  // Briefer jobs would come and go.
  const jobsOf = (worker: Worker) => (running.body?.jobs ?? []).filter((job) => job.worker === worker.worker && isRunningLong(job));
  const isReady = body && (running.body || running.problem);
  const [here, gone] = useMemo(() => {
    const isHere = (worker: Worker) => worker.state !== "left";
    return [workers.filter(isHere), workers.filter((worker) => !isHere(worker))];
  }, [body]);
  const countOf = (wanted: string) => here.filter(({ state }) => state === wanted).length;
  return (
    <>
      <header class="page-head">
        <h1>Workers</h1>
        <p class="faint" role="status">
          {!name && body && `${count(countOf("up"))} up, ${count(countOf("silent"))} silent`}
          {name && (
            <>
              Only <Text>{name}</Text>. <Link href="/workers">Show all workers</Link>
            </>
          )}
        </p>
      </header>
      {problem && !isOutage(problem) && <ProblemNote problem={problem} />}
      {!isReady && !problem && <Skeleton />}
      {isReady && workers.length === 0 && <Empty>No worker has reported yet.</Empty>}
      {isReady && here.map((worker) => <WorkerPanel key={worker.worker} worker={worker} jobs={jobsOf(worker)} progress={progress} />)}
      {running.body?.next && here.length > 0 && (
        <p class="faint">
          Of the running jobs, the newest 100 are shown. <Link href="/jobs?state=running">All running jobs</Link>
        </p>
      )}
      {isReady && gone.length > 0 && (
        <section>
          <h2>
            Left <span class="faint">{count(gone.length)}</span>
          </h2>
          <div class="table-box">
            <table>
              <thead>
                <tr>
                  <th scope="col">Worker</th>
                  <th scope="col">Host</th>
                  <th scope="col" class="is-end">
                    Heard
                  </th>
                </tr>
              </thead>
              <tbody>
                {gone.slice(0, 50).map((worker) => (
                  <tr key={worker.worker}>
                    <td>
                      <Link href={`/workers?name=${encodeURIComponent(worker.worker)}`}>
                        <Text>{worker.worker}</Text>
                      </Link>
                    </td>
                    <td>
                      <Text>{worker.host}</Text>
                    </td>
                    <td class="is-end">
                      <Ago at={worker.heard_at} />
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </div>
        </section>
      )}
      {body && <Command text="gpufleet workers" />}
    </>
  );
}

function WorkerPanel({ worker, jobs, progress }: { worker: Worker; jobs: Job[]; progress: PageProgress | undefined }) {
  const [isOpen, setOpen] = useState(false);
  const { range, minutes } = useRange("48h");
  return (
    <article class="panel worker" aria-label={`Worker ${worker.worker}`}>
      <header>
        <h2>
          <Text>{worker.worker}</Text>
        </h2>
        <State state={worker.state} />
        <span class="faint">
          <Text>{worker.host}</Text>, process {worker.pid}, {worker.revision}, heard <Ago at={worker.heard_at} />
        </span>
        <Link href={`/jobs?worker=${encodeURIComponent(worker.worker)}`}>{count(worker.jobs_running)} running</Link>
        <button type="button" class="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? "Hide charts" : "Show charts"}
        </button>
      </header>
      <div class="table-box">
        <table>
          <thead>
            <tr>
              <th scope="col">Device</th>
              <th scope="col">Model</th>
              <th scope="col">State</th>
              <th scope="col" class="is-end">
                Jobs
              </th>
              <th scope="col">Use</th>
              <th scope="col">Memory</th>
              <th scope="col" class="is-end">
                Temperature
              </th>
              <th scope="col" class="is-end">
                Power
              </th>
              <th scope="col">Pools</th>
            </tr>
          </thead>
          <tbody>
            {worker.devices.map((device) => (
              <DeviceRow key={device.device} device={device} />
            ))}
          </tbody>
        </table>
      </div>
      {worker.programs && <Programs programs={worker.programs} />}
      {jobs.length > 0 && <RunningJobs jobs={jobs} progress={progress} place="Device" />}
      {isOpen && <RangeChoice range={range} of={["15m", "1h", "24h", "48h"]} />}
      {isOpen &&
        worker.devices.map((device) => (
          <DeviceHistory key={device.device} worker={worker.worker} device={device} range={range} minutes={minutes} />
        ))}
      {worker.devices.length === 0 && <p class="faint">Its latest heartbeat lists no devices.</p>}
    </article>
  );
}

/** What the worker offers for host programs, pool by pool. */
function Programs({ programs }: { programs: NonNullable<Worker["programs"]> }) {
  return (
    <p class="faint">
      Host programs:{" "}
      {programs.pools.map(({ pool, running, waiting, taken_max, environments = [], images = [] }) => (
        <span key={pool}>
          {`${pool} ${running} of ${taken_max}${waiting ? `, ${waiting} waiting` : ""} in `}
          <Text cut={400}>{[...environments, ...images].join(", ")}</Text>{" "}
        </span>
      ))}
    </p>
  );
}

/** The host program that has the device. */
function ProgramOf({ device }: { device: Device }) {
  const program = device.pools.find((pool) => pool.program)?.program;
  if (!program) return null;
  return (
    <Link href={`/jobs/${program.job_id}`}>
      <Text cut={40}>{program.label}</Text>
    </Link>
  );
}

/** Use, memory and temperature of a device over time. */
function DeviceHistory({ worker, device, range, minutes }: { worker: string; device: Device; range: Range; minutes: number }) {
  const { body } = useTopic<Samples>(`/v1/samples?worker=${encodeURIComponent(worker)}&device=${device.device}&since=${fullHour(range)}`);
  const [at, use, memory, heat] = useMemo((): [number[], Line[], Line[], Line[]] => {
    const points = body?.points ?? [];
    const hasUsed = points.some((point) => point.memory_used_bytes !== null && point.memory_used_bytes !== undefined);
    return [
      points.map((point) => Date.parse(point.at) / 1000),
      [{ title: "use", colour: "accent", values: points.map((point) => point.utilization_percent ?? null) }],
      [
        { title: "declared by jobs", colour: "compile", values: points.map((point) => point.declared_bytes), dash: [6, 3] },
        ...(hasUsed ? [{ title: "in use", colour: "accent", values: points.map((point) => point.memory_used_bytes ?? null) }] : []),
      ],
      [{ title: "temperature", colour: "accent", values: points.map((point) => point.temperature_celsius ?? null) }],
    ];
  }, [body]);
  if (!body) return <Skeleton />;
  if (at.length === 0) return <Empty>The ledger has no samples of device {device.device} yet.</Empty>;
  return (
    <div class="charts" role="group" aria-label={`Device ${device.device} over time`}>
      <Chart title={`Device ${device.device}: use`} at={at} lines={use} unit="percent" max={100} minutes={minutes} height={120} />
      <Chart title={`Device ${device.device}: memory`} at={at} lines={memory} unit="bytes" minutes={minutes} height={120} />
      {heat[0]?.values.some((value) => value !== null) && (
        <Chart title={`Device ${device.device}: temperature`} at={at} lines={heat} unit="celsius" minutes={minutes} height={120} />
      )}
    </div>
  );
}

function DeviceRow({ device }: { device: Device }) {
  const used = device.memory_used_bytes;
  const declared = device.pools.reduce((sum, pool) => sum + pool.memory_bytes, 0);
  const memory = used ?? declared;
  const who = { nvml: "measured by the driver, all processes", worker: "measured by the worker, its jobs alone" }[device.utilization_by ?? ""];
  return (
    <tr>
      <td>{device.device}</td>
      <td class="is-wide">
        <Text cut={60}>{device.name}</Text> <span class="faint">{device.compute_capability.join(".")}{device.emulated ? ", emulated" : ""}</span>
      </td>
      <td class="is-wide">
        {device.out_of_service ? (
          <>
            <State state="sick" word="out of service" />: <Text>{device.out_of_service}</Text>
          </>
        ) : (
          <State state="up" word="in service" />
        )}
      </td>
      <td class="is-end">
        {count(device.jobs_running)} <ProgramOf device={device} />
      </td>
      <td title={who}>
        {device.utilization_percent === null || device.utilization_percent === undefined ? (
          <span class="faint">–</span>
        ) : (
          <>
            <Meter share={device.utilization_percent / 100} /> {device.utilization_percent} % <span class="faint">{device.utilization_by}</span>
          </>
        )}
      </td>
      <td title={used === null || used === undefined ? "declared by its jobs" : "in use by all processes"}>
        <Meter share={memory / device.memory_bytes} /> {bytes(memory)} <span class="faint">of {bytes(device.memory_bytes)}</span>
      </td>
      <td class="is-end">{device.temperature_celsius === null || device.temperature_celsius === undefined ? "–" : `${device.temperature_celsius} °C`}</td>
      <td class="is-end">{device.power_milliwatts === null || device.power_milliwatts === undefined ? "–" : `${Math.round(device.power_milliwatts / 1000)} W`}</td>
      <td>
        {device.pools.map((pool) => (
          <Link key={pool.pool} class="label" href={`/jobs?pool=${encodeURIComponent(pool.pool)}`}>
            <Text cut={40}>{pool.pool}</Text>
            {pool.weight ? ` ×${pool.weight}` : ""}
          </Link>
        ))}
      </td>
    </tr>
  );
}

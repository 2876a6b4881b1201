// What needs a person, the most urgent first, each with the next step.

import type { ComponentChildren } from "preact";
import { Link } from "wouter-preact";

import type { Broker, Overview, Workers } from "../api/types";
import { age, count, quoted } from "../format";
import { now } from "../live/store";
import { Command } from "./command";
import { Text } from "./text";

/** An idle recorder looks for events every ten seconds. */
const BEHIND_SECONDS_MAX = 30;
/** Workers or devices of one finding that are named. */
const NAMED = 3;

interface Finding {
  key: string;
  what: ComponentChildren;
  next: ComponentChildren;
  command?: string;
}

interface Known {
  overview: Overview;
  broker: Broker;
  workers: Workers;
}

export function NeedsAction(known: Known) {
  const found = [...brokerAway(known), ...unserved(known), ...outOfService(known), ...unheard(known), ...dead(known), ...behind(known)];
  return (
    <section class={`panel needs-action${found.length > 0 ? " is-bad" : ""}`} aria-label="Needs action">
      <div role="status">
        <h2>{found.length > 0 ? `Needs action: ${count(found.length)}` : "Nothing needs action."}</h2>
      </div>
      {found.length > 0 && (
        <ul>
          {found.map(({ key, what, next, command }) => (
            <li key={key}>
              <strong>{what}</strong> {next}
              {command && <Command text={command} />}
            </li>
          ))}
        </ul>
      )}
      {known.broker.state === "absent" && <p class="faint">Queues and dead letters are not checked: {known.broker.reason}.</p>}
    </section>
  );
}

function brokerAway({ broker }: Known): Finding[] {
  if (broker.state !== "away") return [];
  const next = <>Check the broker and GPUFLEET_AMQP_URL: {broker.reason}.</>;
  return [{ key: "broker", what: "The console has no connection to the broker.", next }];
}

/** Pools in which jobs wait that no worker serves. */
function unserved({ overview, broker, workers }: Known): Finding[] {
  const queued = new Map(overview.unfinished.filter(({ state }) => state === "queued").map(({ pool, jobs }) => [pool ?? "", jobs] as const));
  queued.delete("");
  const pools = [...new Set([...broker.pools.map(({ pool }) => pool), ...queued.keys()])];
  return pools.flatMap((pool) => {
    const queue = broker.pools.find((other) => other.pool === pool);
    const jobs = Math.max(queue?.messages ?? 0, queued.get(pool) ?? 0);
    // Only the broker knows for certain. Without its answer, heartbeats have to do.
    const isHeard = isBehind(overview) || workers.workers.some((worker) => worker.state === "up" && worker.pools.includes(pool));
    const isServed = queue ? queue.consumers > 0 : isHeard;
    if (isServed || jobs === 0) return [];
    const what = (
      <>
        {count(jobs)} {jobs === 1 ? "job waits" : "jobs wait"} in pool <Text cut={60}>{pool}</Text>, and no worker serves it.
      </>
    );
    const command = `gpufleet-worker run --pool ${quoted(pool)}`;
    return [{ key: `pool ${pool}`, what, next: "Start a worker on a machine with a GPU:", command }];
  });
}

function outOfService({ workers }: Known): Finding[] {
  const devices = workers.workers.flatMap((worker) => {
    const sick = worker.state !== "up" ? [] : worker.devices.filter((device) => device.out_of_service);
    return sick.map((device) => ({ worker, device }));
  });
  const [first] = devices;
  if (!first) return [];
  const names = devices.map(({ worker, device }) => `${worker.worker} device ${device.device}`);
  const what = (
    <>
      {count(devices.length)} {devices.length === 1 ? "device is" : "devices are"} out of service: <Names of={names} />.
    </>
  );
  const next = (
    <>
      The reason: <Text cut={200}>{first.device.out_of_service}</Text>. Test it on host <Text cut={60}>{first.worker.host}</Text>, then restart the{" "}
      <Link href="/workers">worker</Link>:
    </>
  );
  return [{ key: "devices", what, next, command: "nvidia-smi -q; gpufleet-worker selftest" }];
}

/** If the recorder is behind, heartbeats are late too, and say nothing about workers. */
function unheard({ workers, overview }: Known): Finding[] {
  const silent = workers.workers.filter(({ state }) => state === "silent");
  const [first] = silent;
  if (!first || isBehind(overview)) return [];
  const running = silent.reduce((sum, worker) => sum + worker.jobs_running, 0);
  const what = (
    <>
      {count(silent.length)} {silent.length === 1 ? "worker is" : "workers are"} unheard: <Names of={silent.map(({ worker }) => worker)} />.
    </>
  );
  const next = (
    <>
      The last heartbeat came {age(now.value - Date.parse(first.heard_at))} ago.{" "}
      {running > 0 && `Other workers run the ${count(running)} ${running === 1 ? "job" : "jobs"} again. `}
      Check the machine and the log of the <Link href="/workers">worker</Link>, then start it again.
    </>
  );
  return [{ key: "workers", what, next }];
}

function dead({ broker }: Known): Finding[] {
  const letters = broker.dead ?? 0;
  if (letters === 0) return [];
  const what = `${count(letters)} ${letters === 1 ? "message is" : "messages are"} dead-lettered.`;
  const next = (
    <>
      Read the reasons, then replay or discard them: <Link href="/dead">Dead letters</Link>
    </>
  );
  return [{ key: "dead", what, next }];
}

function behind({ overview }: Known): Finding[] {
  if (!isBehind(overview)) return [];
  const what = `The recorder is ${age(overview.recorder.behind_seconds! * 1000)} behind.`;
  const next = "Jobs run, but these pages are out of date. If the ledger’s queue has no consumer, start gpufleet-ledger:";
  return [{ key: "recorder", what, next, command: "rabbitmqctl list_queues name messages consumers" }];
}

export function isBehind(overview: Overview): boolean {
  return (overview.recorder.behind_seconds ?? 0) > BEHIND_SECONDS_MAX;
}

function Names({ of }: { of: string[] }) {
  return (
    <>
      {of.slice(0, NAMED).map((name, index) => (
        <span key={name}>
          {index > 0 && ", "}
          <Text cut={60}>{name}</Text>
        </span>
      ))}
      {of.length > NAMED && ` and ${count(of.length - NAMED)} more`}
    </>
  );
}

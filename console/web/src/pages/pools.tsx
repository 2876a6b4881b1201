// Pools: the share that each received against its weight, what it runs, and how deep its queues are.

import { Link } from "wouter-preact";

import type { Broker, Pool, Pools } from "../api/types";
import { bytes, bytesOf, count, duration, percent } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Command } from "../parts/command";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { Meter } from "../parts/meter";
import { Text } from "../parts/text";

export function PoolsPage() {
  const { body, problem } = useTopic<Pools>("/v1/pools");
  const { body: broker } = useTopic<Broker>("broker");
  const pools = body?.pools ?? [];
  const hasSessions = pools.some((pool) => pool.sessions_max > 0);
  const hasPrograms = pools.some(takesPrograms);
  const share = (value: number | null | undefined) => (value === null || value === undefined ? undefined : value / 100);
  return (
    <>
      <header class="page-head">
        <h1>Pools</h1>
        <p class="faint">Device time of the last hour. The mark is the share that a pool's weight gives it.</p>
      </header>
      {broker && broker.state !== "up" && <p class="note">No queue depths: {broker.reason}.</p>}
      {problem && !isOutage(problem) && <ProblemNote problem={problem} />}
      {!body && !problem && <Skeleton />}
      {body && pools.length === 0 && <Empty>No worker serves a pool, and no job has ended.</Empty>}
      {pools.length > 0 && (
        <div class="table-box">
          <table>
            <thead>
              <tr>
                <th scope="col">Pool</th>
                <th scope="col" class="is-end">
                  Messages
                </th>
                <th scope="col" class="is-end">
                  Workers
                </th>
                <th scope="col" class="is-end">
                  Running
                </th>
                <th scope="col" class="is-end">
                  Memory declared
                </th>
                <th scope="col" class="is-end">
                  Guaranteed
                </th>
                <th scope="col" class="is-end">
                  Borrowed
                </th>
                <th scope="col">Received against due</th>
                <th scope="col" class="is-end">
                  Received
                </th>
                <th scope="col" class="is-end">
                  Due
                </th>
                <th scope="col" class="is-end">
                  Device time
                </th>
                {hasSessions && (
                  <>
                    <th scope="col" class="is-end">
                      Open sessions
                    </th>
                    <th scope="col" class="is-end">
                      Session memory
                    </th>
                  </>
                )}
                {hasPrograms && (
                  <th scope="col" class="is-end">
                    Host programs
                  </th>
                )}
              </tr>
            </thead>
            <tbody>
              {pools.map((pool) => {
                const queue = broker?.pools.find((other) => other.pool === pool.pool);
                return (
                  <tr key={pool.pool}>
                    <td>
                      <Link href={`/jobs?pool=${encodeURIComponent(pool.pool)}`}>
                        <Text cut={60}>{pool.pool}</Text>
                      </Link>
                    </td>
                    <td class="is-end">{count(queue?.messages)}</td>
                    <td class={`is-end${queue?.consumers === 0 ? " is-bad" : ""}`}>{count(queue?.consumers === 0 ? 0 : pool.workers)}</td>
                    <td class="is-end">{count(pool.jobs_running)}</td>
                    <td class="is-end">{bytes(pool.memory_bytes)}</td>
                    <td class="is-end">{pool.guaranteed_bytes ? bytes(pool.guaranteed_bytes) : <span class="faint">–</span>}</td>
                    <td class="is-end">{pool.borrowed_bytes ? bytes(pool.borrowed_bytes) : <span class="faint">–</span>}</td>
                    <td>
                      <Meter share={share(pool.got_percent) ?? 0} mark={share(pool.due_percent)} />
                    </td>
                    <td class="is-end">{percent(share(pool.got_percent))}</td>
                    <td class="is-end">{percent(share(pool.due_percent))}</td>
                    <td class="is-end">{duration(pool.device_us)}</td>
                    {hasSessions && <Sessions pool={pool} />}
                    {hasPrograms && <Programs pool={pool} />}
                  </tr>
                );
              })}
            </tbody>
          </table>
        </div>
      )}
      {body && <Command text="gpufleet pools" />}
    </>
  );
}

function takesPrograms(pool: Pool): boolean {
  return (pool.programs_max ?? 0) > 0;
}

/** The host programs that run of those that the workers take, and those that wait for a device. */
function Programs({ pool }: { pool: Pool }) {
  if (!takesPrograms(pool)) return <td class="is-end faint">–</td>;
  const waiting = pool.programs_waiting ? `, ${count(pool.programs_waiting)} waiting` : "";
  return (
    <td class="is-end" title={`environments: ${(pool.environments ?? []).join(", ")}`}>
      {`${count(pool.programs_running)} of ${count(pool.programs_max)}${waiting}`}
    </td>
  );
}

/** The open sessions of those that may be open, and their memory. */
function Sessions({ pool }: { pool: Pool }) {
  const none = <span class="faint">–</span>;
  return (
    <>
      <td class="is-end">{pool.sessions_max ? `${count(pool.sessions_open)} of ${count(pool.sessions_max)}` : none}</td>
      <td class="is-end">{pool.sessions_max ? bytesOf(pool.session_bytes, pool.session_bytes_max) : none}</td>
    </>
  );
}

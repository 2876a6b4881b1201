// The jobs that may start again if a running job is cancelled, for the question before that.

import type { Neighbour, Problem } from "../api/types";
import { count, elapsed, shortId } from "../format";
import { Prose, Text } from "./text";

/** Further ones are counted. */
const NAMED = 8;

/** The jobs, why they are not known, or nothing while they are looked for. */
export type Neighbourhood = { neighbours: Neighbour[] } | { problem: Problem } | undefined;

export function Neighbours({ found }: { found: Neighbourhood }) {
  return (
    <div role="status" class="neighbours">
      <Found found={found} />
    </div>
  );
}

function Found({ found }: { found: Neighbourhood }) {
  if (!found) return <p class="faint">Looking for other jobs of its pool on this device…</p>;
  if ("problem" in found) {
    return (
      <p>
        Other jobs in the same executor start again from the beginning. Which ones is not known: <Prose>{found.problem.detail}</Prose>.
      </p>
    );
  }
  const { neighbours } = found;
  if (neighbours.length === 0) return <p>Other jobs are not affected.</p>;
  return (
    <>
      <p>
        <strong>
          {neighbours.length === 1
            ? "1 other job runs in its pool on this device. In the same executor, it starts again from the beginning:"
            : `${count(neighbours.length)} other jobs run in its pool on this device. Those in the same executor start again from the beginning:`}
        </strong>
      </p>
      <ul>
        {neighbours.slice(0, NAMED).map((neighbour) => (
          <li key={neighbour.job_id}>
            <Text cut={60}>{neighbour.name || neighbour.kernel || "without a name"}</Text> <span class="mono faint">{shortId(neighbour.job_id)}</span>, running
            for {elapsed(neighbour.running_us / 1000)}
          </li>
        ))}
        {neighbours.length > NAMED && <li>and {count(neighbours.length - NAMED)} more</li>}
      </ul>
    </>
  );
}

// The dead letters of one reason, and what can be done with all of them.

import { Link } from "wouter-preact";

import type { DeadLetter } from "../api/types";
import { bytes, count, shortId } from "../format";
import { Ask, tally } from "./ask";
import { Text } from "./text";
import { Ago } from "./time";

/** Letters of a group that are listed; the actions are for more. */
const LISTED = 50;
/** Jobs of one letter that are listed. */
const JOBS_LISTED = 4;
/** The most of one action. */
const ACTED_MAX = 1000;

/** Sends the letters to an action, and says what it did. */
type Act = (what: string, path: string, letters: DeadLetter[]) => Promise<void>;

interface Group {
  reason: string;
  letters: DeadLetter[];
  /** Absent if the viewer may not act now. */
  act: Act | undefined;
}

export function DeadGroup({ reason, letters, act }: Group) {
  return (
    <section class="panel" aria-label={`Reason ${reason}`}>
      <header class="page-head">
        <h2>
          <Text cut={400}>{reason}</Text> <span class="faint">{count(letters.length)}</span>
        </h2>
        {act && <GroupActions letters={letters} act={act} />}
      </header>
      <div class="table-box">
        <table>
          <thead>
            <tr>
              <th scope="col">Job</th>
              <th scope="col">User</th>
              <th scope="col">From</th>
              <th scope="col" class="is-end">
                Size
              </th>
              <th scope="col" class="is-end">
                Since
              </th>
            </tr>
          </thead>
          <tbody>
            {letters.slice(0, LISTED).map((letter) => (
              <LetterRow key={letter.key} letter={letter} />
            ))}
          </tbody>
        </table>
      </div>
      {letters.length > LISTED && <p class="faint">{count(letters.length - LISTED)} more are not listed here.</p>}
    </section>
  );
}

function GroupActions({ letters, act }: { letters: DeadLetter[]; act: Act }) {
  const meant = letters.slice(0, ACTED_MAX);
  const jobs = meant.flatMap((letter) => letter.jobs.map(() => letter));
  const affected: [string, string][] = [
    ["Jobs", count(jobs.length)],
    ["Users", tally(jobs.map(({ user }) => user))],
    ["Pools", tally(jobs.map(({ origin }) => poolOf(origin)))],
  ];
  const word = letters.length === 1 ? "message" : "messages";
  const oldest = meant.length < letters.length ? `the oldest ${count(meant.length)} of ` : "";
  const many = `${oldest}${count(letters.length)} ${word}`;
  return (
    <div class="actions">
      <Ask
        button="Replay…"
        title={`Submit ${many} again?`}
        affected={affected}
        detail="They become new jobs with the label replay-of. The old jobs stay dead in the history."
        verb="Replay"
        act={() => act("Submitted again:", "/actions/dead/replay", meant)}
      />
      <Ask
        button="Discard…"
        title={`Discard ${many}?`}
        affected={affected}
        detail="Their tasks are lost for good. The history stays."
        verb="Discard"
        isDanger
        act={() => act("Discarded:", "/actions/dead/discard", meant)}
      />
    </div>
  );
}

/** The pool in a routing key or the name of a queue, such as `gpufleet.v1.tasks.default.normal`. */
function poolOf(origin: string): string | undefined {
  return /^(?:gpufleet\.v1\.tasks\.)?(.+?)(?:\.\d+)?\.[^.]+$/.exec(origin)?.[1];
}

function LetterRow({ letter }: { letter: DeadLetter }) {
  const { jobs } = letter;
  return (
    <tr>
      <td>
        {jobs.length === 0 && <Text cut={60}>{letter.id || "no task"}</Text>}
        {jobs.slice(0, JOBS_LISTED).map((job) => (
          <Link key={job} class="mono" href={`/jobs/${job}`}>
            {shortId(job)}{" "}
          </Link>
        ))}
        {jobs.length > JOBS_LISTED && <span class="faint">+{jobs.length - JOBS_LISTED}</span>}
      </td>
      <td>
        <Text cut={60}>{letter.user}</Text>
      </td>
      <td>
        <Text cut={80}>{letter.origin}</Text>
      </td>
      <td class="is-end">
        {bytes(letter.bytes)} {letter.is_cut && <span class="is-bad">cut</span>}
      </td>
      <td class="is-end">
        <Ago at={letter.timestamp ? new Date(letter.timestamp * 1000).toISOString() : null} />
      </td>
    </tr>
  );
}

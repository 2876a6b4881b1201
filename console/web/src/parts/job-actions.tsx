// What a viewer may do with a job: cancel it, or submit it again once it is dead.

import { useState } from "preact/hooks";

import { get, post, problemIn } from "../api/ask";
import type { Acted, Broker, Cancelled, Job, Neighbour } from "../api/types";
import { useTopic } from "../live/store";
import { me } from "../session";
import { Ask, tally } from "./ask";
import { Neighbours, type Neighbourhood } from "./neighbours";
import { isEnded } from "./state";

/** What an action has done, in words. */
function outcome(what: string, { only_own, done, failed, stopped }: Partial<Cancelled & Acted>): Message {
  if (only_own) return { text: "Only jobs of the console's own broker user are cancelled.", isBad: true };
  if (failed?.[0]) return { text: `The message stays: ${failed[0][1]}.`, isBad: true };
  if (stopped) return { text: `Not certain: ${stopped}.`, isBad: true };
  if (done === 0) return { text: "The dead-letter queue has no message of this job.", isBad: true };
  return { text: what, isBad: false };
}

interface Message {
  text: string;
  isBad: boolean;
}

export function JobActions({ job }: { job: Job }) {
  const [said, setSaid] = useState<Message | null>(null);
  const [neighbourhood, setNeighbourhood] = useState<Neighbourhood>(undefined);
  const { body: broker } = useTopic<Broker>(me.value?.actions ? "broker" : undefined);
  if (!me.value?.actions) return null;
  if (broker?.state !== "up") return broker && <p class="faint">No actions: {broker.reason}</p>;
  const isRunning = job.state === "running";
  // A worker cancels a running job by killing its executor, and other jobs with it.
  const look = async () => {
    setNeighbourhood(undefined);
    try {
      setNeighbourhood(await get<{ neighbours: Neighbour[] }>(`/api/v1/jobs/${job.job_id}/neighbours`));
    } catch (error) {
      setNeighbourhood({ problem: problemIn(error) });
    }
  };
  const affected: [string, string][] = [
    ["Jobs", `1, ${job.state}${isRunning && job.worker ? ` on ${job.worker}` : ""}`],
    ["User", tally([job.user_id])],
    ["Pool", tally([job.pool])],
  ];
  const run = async (what: string, path: string, body: unknown) => {
    try {
      const answer = await post<Partial<Cancelled & Acted>>(path, body);
      setSaid(outcome(what, answer));
    } catch (error) {
      const problem = problemIn(error);
      setSaid({ text: `${problem.title}: ${problem.detail}`, isBad: true });
    }
  };
  return (
    <div class="actions">
      {said && (
        <span role="status" class={said.isBad ? "is-bad" : "faint"}>
          {said.text}
        </span>
      )}
      {!isEnded(job) && (
        <Ask
          title="Cancel this job?"
          affected={affected}
          detail={isRunning ? "The worker stops it, and its results are lost." : "It never runs. Other jobs are not affected."}
          onOpen={() => isRunning && void look()}
          verb="Cancel the job"
          button="Cancel…"
          isDanger
          act={() => run("Cancellation requested.", "/actions/cancel", { jobs: [job.job_id] })}
        >
          {isRunning && <Neighbours found={neighbourhood} />}
        </Ask>
      )}
      {job.state === "dead" && (
        <Ask
          title="Submit this job again?"
          affected={affected}
          detail={`It becomes a new job with the label replay-of=${job.job_id}. This one stays dead.`}
          verb="Submit again"
          button="Submit again…"
          act={() => run("Submitted again.", "/actions/dead/replay", { letters: [job.job_id] })}
        />
      )}
    </div>
  );
}

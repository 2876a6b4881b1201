// Dead letters: jobs that the fleet will not retry, grouped by reason. The list is read when the page opens and when the number of
// letters changes, because reading takes the letters from the queue for a moment.

import { useEffect, useRef, useState } from "preact/hooks";

import { get, post, problemIn } from "../api/ask";
import type { Acted, Broker, DeadLetter, DeadList, Problem } from "../api/types";
import { count, shortId } from "../format";
import { useTopic } from "../live/store";
import { Command } from "../parts/command";
import { DeadGroup } from "../parts/dead-group";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { me } from "../session";

export function DeadPage() {
  const { body: broker } = useTopic<Broker>("broker");
  const isUp = broker?.state === "up";
  const { list, problem, read } = useDeadLetters(isUp, broker?.dead);
  const [said, setSaid] = useState("");
  const act = async (what: string, path: string, letters: DeadLetter[]) => {
    try {
      const acted = await post<Acted>(path, { letters: letters.map(({ key }) => key) });
      const failed = acted.failed.map(([id, why]) => ` ${shortId(id)} stays: ${why}.`).join("");
      const stopped = acted.stopped ? ` The others were left alone: ${acted.stopped}.` : "";
      setSaid(`${what} ${count(acted.done)}.${failed}${stopped}`);
    } catch (error) {
      const problem = problemIn(error);
      setSaid(`${problem.title}: ${problem.detail}.`);
    }
    await read();
  };
  return (
    <>
      <header class="page-head">
        <h1>Dead letters</h1>
        <p class="faint" role="status">
          {broker?.dead !== null && broker?.dead !== undefined && `${count(broker.dead)} in the queue`}
        </p>
        <div class="actions">
          <button type="button" onClick={() => void read()} disabled={!isUp}>
            Read again
          </button>
        </div>
      </header>
      {said && (
        <p class="note" role="status">
          {said}
        </p>
      )}
      {broker && !isUp && <p class="note">Dead letters are on the broker: {broker.reason}.</p>}
      {problem && isUp && <ProblemNote problem={problem} />}
      {(!broker || isUp) && !list && !problem && <Skeleton />}
      {list?.has_other_consumers && <p class="note">Another reader holds letters at the moment, so this list may lack some.</p>}
      {list && list.letters.length === 0 && <Empty>No dead letters.</Empty>}
      {grouped(list?.letters ?? []).map(([reason, letters]) => (
        <DeadGroup key={reason} reason={reason} letters={letters} act={isUp && me.value?.actions ? act : undefined} />
      ))}
      {list && list.unseen > 0 && <p class="note">These are the oldest; there are {count(list.unseen)} more.</p>}
      {(list || (broker && !isUp)) && <Command text="gpufleet dead list" />}
    </>
  );
}

/** The letters of the queue. They are read anew when their number changes. */
function useDeadLetters(isUp: boolean, count: number | null | undefined) {
  const [list, setList] = useState<DeadList | null>(null);
  const [problem, setProblem] = useState<Problem | null>(null);
  const isReading = useRef(false);
  const read = async () => {
    if (isReading.current) return;
    isReading.current = true;
    try {
      setList(await get<DeadList>("/api/dead"));
      setProblem(null);
    } catch (error) {
      setProblem(problemIn(error));
    }
    isReading.current = false;
  };
  useEffect(() => {
    if (isUp) void read();
  }, [isUp, count]);
  return { list, problem, read };
}

/** By reason, without what is particular to one letter; the largest group first. */
function grouped(letters: DeadLetter[]): [string, DeadLetter[]][] {
  const groups = new Map<string, DeadLetter[]>();
  for (const letter of letters) {
    const reason = letter.reason.replace(/[0-9a-f]{8}-[0-9a-f-]{27}/g, "…").replace(/\b\d+\b/g, "…");
    groups.set(reason, [...(groups.get(reason) ?? []), letter]);
  }
  return [...groups].sort(([, a], [, b]) => b.length - a.length);
}

// What a session or a host program did, in a sentence. It has no stages.

import type { Attempt, SessionUse } from "../api/types";
import { bytes, count, duration } from "../format";

export function SessionLine({ attempt, used }: { attempt: Attempt; used: SessionUse }) {
  const open = attempt.timings?.total_us;
  const parts = [
    open ? `Attempt ${attempt.attempt}: open for ${duration(open)}` : `Attempt ${attempt.attempt}`,
    `device busy for ${duration(used.busy_us)}`,
    `${count(used.calls)} calls, of which ${count(used.waits)} were waited for`,
    `${bytes(used.sent_bytes)} in, ${bytes(used.received_bytes)} out`,
    `at most ${bytes(used.memory_bytes_peak)} of device memory`,
    ending(used),
  ];
  return <p class="faint stages">{parts.filter(Boolean).join("; ")}</p>;
}

export function ProgramLine({ attempt, used }: { attempt: Attempt; used: SessionUse }) {
  const ran = attempt.timings?.total_us;
  const parts = [ran ? `Attempt ${attempt.attempt}: ran for ${duration(ran)}` : `Attempt ${attempt.attempt}`, ending(used)];
  return <p class="faint stages">{parts.filter(Boolean).join("; ")}</p>;
}

function ending({ exit_code, signal }: SessionUse): string {
  if (typeof exit_code === "number") return `its program exited with ${exit_code}`;
  return typeof signal === "number" ? `signal ${signal} ended its program` : "";
}

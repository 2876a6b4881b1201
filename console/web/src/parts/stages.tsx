// How long each stage of an attempt took, as numbers beside the picture.

import type { Attempt } from "../api/types";
import { bytes, duration, percent } from "../format";
import { LEGEND } from "./gantt";
import { ProgramLine, SessionLine } from "./session-use";

export function Stages({ attempt, isHostProgram }: { attempt: Attempt | undefined; isHostProgram: boolean }) {
  if (attempt?.session && isHostProgram) return <ProgramLine attempt={attempt} used={attempt.session} />;
  if (attempt?.session) return <SessionLine attempt={attempt} used={attempt.session} />;
  const timings = attempt?.timings;
  if (!attempt || !timings) return null;
  const kernel = (timings.launches_us ?? []).reduce((sum, us) => sum + us, 0);
  const values: Record<string, number> = {
    fetch: timings.fetch_us ?? 0,
    compile: timings.compile_us ?? 0,
    load: timings.load_us ?? 0,
    "copy in": timings.copy_in_us ?? 0,
    kernel,
    "copy out": timings.copy_out_us ?? 0,
  };
  const total = (timings.total_us ?? 0) + (timings.compile_us ?? 0) || 1;
  const caption = [
    `Attempt ${attempt.attempt}: ${duration(timings.total_us)} in the executor`,
    timings.wait_us ? `after ${duration(timings.wait_us)} on the worker` : "",
    timings.device_bytes_peak ? `at most ${bytes(timings.device_bytes_peak)} of device memory` : "",
  ];
  const sentence = caption.filter(Boolean).join(", ");
  // An attempt that crashed has no times of its stages.
  const isMeasured = Object.values(values).some((us) => us > 0);
  return (
    <>
      <p class="faint stages">{sentence}</p>
      {isMeasured && (
        <div class="table-box" role="group" aria-label="Stages" tabIndex={0}>
          <table class="small">
            <thead>
              <tr>
                {LEGEND.map((stage) => (
                  <th key={stage} scope="col" class="is-end">
                    <span class={`swatch is-${stage.replace(" ", "-")}`} aria-hidden="true" /> {stage}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              <tr>
                {LEGEND.map((stage) => (
                  <td key={stage} class="is-end">
                    {duration(values[stage])} <span class="faint">{percent((values[stage] ?? 0) / total)}</span>
                  </td>
                ))}
              </tr>
            </tbody>
          </table>
        </div>
      )}
    </>
  );
}

// What a job's attempts printed.

import { useState } from "preact/hooks";

import type { Attempt } from "../api/types";
import { bytes, visible } from "../format";

/** The output of one attempt; of the decisive one at first. */
export function Printed({ attempts, decisive }: { attempts: Attempt[]; decisive: number | null }) {
  const printed = attempts.filter((attempt) => attempt.printf_output);
  const [chosen, setChosen] = useState<number | null>(null);
  const attempt = printed.find(({ attempt }) => attempt === (chosen ?? decisive)) ?? printed.at(-1);
  const output = attempt?.printf_output;
  if (!attempt || !output) return null;
  const title = output.is_tail ? "End of the output" : "Output of printf";
  return (
    <section>
      <h2>
        {title}{" "}
        {printed.length > 1 && (
          <select aria-label="Attempt" value={attempt.attempt} onChange={(event) => setChosen(Number(event.currentTarget.value))}>
            {printed.map(({ attempt }) => (
              <option key={attempt} value={attempt}>
                attempt {attempt}
              </option>
            ))}
          </select>
        )}
      </h2>
      <pre class="log" tabIndex={0} aria-label={title}>
        {visible(output.text)}
      </pre>
      {(output.dropped_bytes ?? 0) > 0 && (
        <p class="faint">
          {output.is_tail ? `${bytes(output.dropped_bytes)} were written before.` : `${bytes(output.dropped_bytes)} more were printed and dropped.`}
        </p>
      )}
    </section>
  );
}

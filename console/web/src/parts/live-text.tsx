// What a running job has printed so far. The box shows the end, and follows it until the reader scrolls up.

import { useLayoutEffect, useRef, useState } from "preact/hooks";

import type { JobProgress } from "../api/types";
import { visible } from "../format";

/** The reader is at the end within this many pixels. */
const AT_END = 4;

export function LiveText({ printed, attempt, isHostProgram }: { printed: NonNullable<JobProgress["printed"]>; attempt: number; isHostProgram: boolean }) {
  const title = isHostProgram ? "Output so far" : "Output of printf so far";
  const box = useRef<HTMLPreElement>(null);
  const [follows, setFollows] = useState(true);
  useLayoutEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [printed.text, follows]);
  return (
    <section>
      <header class="page-head live-head">
        <h2>
          {title} <span class="faint">{attempt > 1 ? `attempt ${attempt}` : ""}</span>
        </h2>
        {!follows && (
          <button type="button" onClick={() => setFollows(true)}>
            Follow the end
          </button>
        )}
      </header>
      {/* A reader who can't see it looks at it when they want to: it may change each second. */}
      <pre
        class="log"
        ref={box}
        role="log"
        aria-live="off"
        tabIndex={0}
        aria-label={title}
        onScroll={({ currentTarget: { scrollTop, scrollHeight, clientHeight } }) => setFollows(scrollHeight - scrollTop - clientHeight <= AT_END)}
      >
        {visible(printed.text)}
      </pre>
      {printed.is_cut && (
        <p class="faint">
          More was printed before.{" "}
          {isHostProgram ? "The output that the job keeps has all of it." : "The job's page shows the output from its beginning once the job has ended."}
        </p>
      )}
    </section>
  );
}

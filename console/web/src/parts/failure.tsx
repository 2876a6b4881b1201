// Why an attempt failed: verdict, message, the source with a caret at the line, and the report.

import type { Failure } from "../api/types";
import { visible } from "../format";
import { Text } from "./text";

const VERDICTS: Record<string, string> = {
  user: "the job's own fault",
  timeout: "took too long",
  out_of_memory: "needs more memory",
  device: "the device's fault",
  infrastructure: "the fleet's fault",
};

export function FailureReport({ failure }: { failure: Failure }) {
  return (
    <div class="failure">
      <p>
        <strong>
          <Text cut={2000}>{failure.message}</Text>
        </strong>
      </p>
      <p class="faint">
        <code>{failure.code}</code>, {VERDICTS[failure.verdict] ?? failure.verdict}
        {failure.line ? `, at line ${failure.line}` : ""}
      </p>
      <Source failure={failure} />
      {failure.detail && (
        <pre class="log" tabIndex={0} aria-label="Report">
          {visible(failure.detail)}
        </pre>
      )}
    </div>
  );
}

/** The lines around the failure, if the worker knew the line. */
function Source({ failure }: { failure: Failure }) {
  const { source, line } = failure;
  if (!source || !line) return null;
  const lines = source.text.replace(/\n$/, "").split("\n");
  const width = String(source.first_line + lines.length - 1).length;
  return (
    <pre class="source" tabIndex={0} aria-label={`Source around line ${line}`}>
      {lines.map((text, index) => {
        const number = source.first_line + index;
        const isHere = number === line;
        const indent = text.length - text.trimStart().length;
        return (
          <>
            <span key={number} class={isHere ? "is-here" : ""}>
              <span class="faint">{String(number).padStart(width)} │ </span>
              {visible(text)}
              {"\n"}
            </span>
            {isHere && (
              <span class="caret">
                {" ".repeat(width)} │ {text.slice(0, indent)}
                {"^".repeat(Math.max(1, Math.min(text.trim().length, 80)))}
                {"\n"}
              </span>
            )}
          </>
        );
      })}
    </pre>
  );
}

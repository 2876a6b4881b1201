// Why an attempt failed: verdict, message, the lines of the source around it, and the report.

import type { Failure } from "../api/types";
import { visible } from "../format";
import { Code } from "./code";
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
      {failure.source && failure.line && <Code source={failure.source} line={failure.line} />}
      {failure.detail && (
        <pre class="log" tabIndex={0} aria-label="Report">
          {visible(failure.detail)}
        </pre>
      )}
    </div>
  );
}

// One job: its attempts over time, why it failed, what it printed, what it keeps.

import { Link } from "wouter-preact";

import type { Attempt, Failure, HostProgram, Job, JobDetail, JobState, Output, Problem } from "../api/types";
import { bytes, count, labels } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Command } from "../parts/command";
import { Advice, Waits } from "../parts/explained";
import { FailureReport } from "../parts/failure";
import { Gantt } from "../parts/gantt";
import { JobActions } from "../parts/job-actions";
import { KeptOutput } from "../parts/kept-output";
import { ProblemNote, Skeleton } from "../parts/messages";
import { Printed } from "../parts/printed";
import { Progress } from "../parts/progress";
import { Stages } from "../parts/stages";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { At, Ran, Waited } from "../parts/time";

export function JobPage({ id }: { id: string }) {
  const { body, problem } = useTopic<JobDetail>(`/v1/jobs/${encodeURIComponent(id)}`);
  if (!body) {
    return problem && !isOutage(problem) ? <NotFound id={id} problem={problem} /> : <JobSkeleton />;
  }
  const { job, attempts, outputs } = body;
  const decisive = attempts.find(({ attempt }) => attempt === job.attempt);
  const failure = decisive?.failure ?? job.failure;
  return (
    <>
      <header class="page-head">
        <h1>
          <span class="faint">Job</span> <Text>{job.name || job.kernel || "without a name"}</Text>
        </h1>
        <State state={job.state} word={job.is_unheard ? "running, worker unheard" : job.state} />
        <JobActions job={job} />
      </header>
      <p class="mono faint id">{job.job_id}</p>
      <Facts job={job} attempt={decisive} />
      {job.state === "queued" && <Waits job={job} />}
      {job.state === "running" && !job.is_unheard && job.program !== "session" && <Progress job={job} />}
      {failure && <WhyItFailed state={job.state} failure={failure as Failure} />}
      <Attempts job={job} attempts={attempts} decisive={decisive} />
      <Printed attempts={attempts} decisive={job.attempt ?? null} />
      <KeptOutputs job={job} outputs={outputs} />
      <OnTheCommandLine detail={body} />
      {job.state === "succeeded" && job.attempt && <Advice job={job} />}
    </>
  );
}

/** The kind of a program in words. */
function kind(program: string): string {
  return program === "host" ? "host program" : program;
}

function JobSkeleton() {
  return (
    <>
      <h1>Job</h1>
      <Skeleton rows={4} />
      <Skeleton rows={8} />
    </>
  );
}

function Facts({ job, attempt }: { job: Job; attempt: Attempt | undefined }) {
  return (
    <dl class="facts">
      <Fact title={job.program === "host" ? "Command" : "Kernel"}>
        <Text>{job.kernel}</Text> {job.program && <span class="faint">{kind(job.program)}</span>}
      </Fact>
      {job.host_program && <ProgramFacts program={job.host_program} />}
      <Fact title="Pool">
        <Text>{job.pool}</Text> {job.priority && <span class="faint">{job.priority}</span>}
      </Fact>
      <Fact title="User">
        <Text>{job.user_id}</Text>
      </Fact>
      <Fact title="Worker">
        {job.worker ? (
          <Link href={`/workers?name=${encodeURIComponent(job.worker)}`}>
            <Text>{job.worker}</Text>
          </Link>
        ) : (
          <span class="faint">–</span>
        )}
      </Fact>
      <Fact title="Device">
        {job.device === null || job.device === undefined ? <span class="faint">–</span> : `${job.device} `}
        {job.device_name && <Text>{job.device_name}</Text>}
      </Fact>
      <Fact title="Submitted">
        <At at={job.submitted_at ?? job.created_at} />
      </Fact>
      <Fact title="Started">
        <At at={job.started_at} />
      </Fact>
      <Fact title="Ended">
        <At at={job.finished_at} />
      </Fact>
      <Fact title={job.state === "queued" ? "Waiting for" : "Waited"}>
        <Waited job={job} />
      </Fact>
      <Fact title={job.state === "running" ? "Running for" : "Ran"}>
        <Ran job={job} since={attempt?.started_at ?? job.started_at} />
      </Fact>
      <Fact title="In, out">
        {bytes(job.input_bytes)}, {bytes(job.output_bytes)}
      </Fact>
      <Fact title="Labels">
        {labels(job.labels).length === 0 && <span class="faint">–</span>}
        {Object.entries(job.labels).map(([key, value]) => (
          <Link key={key} class="label" href={`/jobs?label=${encodeURIComponent(`${key}=${value}`)}`}>
            <Text cut={120}>{`${key}=${value}`}</Text>
          </Link>
        ))}
      </Fact>
    </dl>
  );
}

/** What a host program runs in. The ledger has no values of its variables. */
function ProgramFacts({ program }: { program: HostProgram }) {
  const place = program.environment ?? program.image ?? "";
  return (
    <>
      <Fact title={program.image ? "Image" : "Environment"}>
        <Link href={`/jobs?env=${encodeURIComponent(place)}`}>
          <Text>{place}</Text>
        </Link>{" "}
        {program.network && <span class="faint">with network</span>}
      </Fact>
      <Fact title="Variables">
        {program.variables?.length ? <Text cut={400}>{program.variables.join(", ")}</Text> : <span class="faint">–</span>}
      </Fact>
    </>
  );
}

function Fact({ title, children }: { title: string; children: preact.ComponentChildren }) {
  return (
    <div>
      <dt>{title}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function WhyItFailed({ state, failure }: { state: JobState; failure: Failure }) {
  const what = { succeeded: "was tried again", running: "fails" }[state as string] ?? "did not succeed";
  return (
    <section>
      <h2>Why it {what}</h2>
      <FailureReport failure={failure} />
    </section>
  );
}

function Attempts({ job, attempts, decisive }: { job: Job; attempts: Attempt[]; decisive: Attempt | undefined }) {
  return (
    <section>
      <h2>
        Attempts <span class="faint">{count(attempts.length)}</span>
      </h2>
      {attempts.length === 0 ? (
        <p class="empty">No worker has reported an attempt yet.</p>
      ) : (
        <>
          <Gantt job={job} attempts={attempts} />
          <Stages attempt={decisive ?? attempts.at(-1)} isHostProgram={job.program === "host"} />
        </>
      )}
    </section>
  );
}

function KeptOutputs({ job, outputs }: { job: Job; outputs: Output[] }) {
  if (outputs.length === 0) return null;
  return (
    <section>
      <h2>Kept outputs</h2>
      {outputs.map((output) => (
        <KeptOutput key={output.name} job={job.job_id} output={output} isFile={job.program === "host"} />
      ))}
    </section>
  );
}

/** The commands that show the same. */
function OnTheCommandLine({ detail: { job, attempts, outputs } }: { detail: JobDetail }) {
  return (
    <section>
      <h2>On the command line</h2>
      <Command text={`gpufleet show ${job.job_id}`} />
      {job.state === "running" && job.program !== "session" && <Command text={`gpufleet logs --follow ${job.job_id}`} />}
      {attempts.some((attempt) => attempt.printf_output) && <Command text={`gpufleet logs ${job.job_id}`} />}
      {outputs.some((output) => !output.is_expired) && <Command text={`gpufleet fetch ${job.job_id} --dir outputs`} />}
    </section>
  );
}

function NotFound({ id, problem }: { id: string; problem: Problem }) {
  const others = problem.jobs ?? [];
  return (
    <>
      <h1>Job</h1>
      <p class="mono">
        <Text cut={64}>{id}</Text>
      </p>
      <ProblemNote problem={problem} />
      <ul>
        {others.map((other) => (
          <li key={other}>
            <Link class="mono" href={`/jobs/${other}`}>
              {other}
            </Link>
          </li>
        ))}
      </ul>
    </>
  );
}


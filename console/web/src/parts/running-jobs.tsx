// Running jobs in a table, each with its elapsed time and how far it is.

import { Link } from "wouter-preact";

import type { Job, PageProgress } from "../api/types";
import { shortId } from "../format";
import { ProgressInRow } from "./progress";
import { Text } from "./text";
import { Ran } from "./time";

interface Props {
  jobs: Job[];
  progress: PageProgress | undefined;
  /** Where a job runs, in the column of this name. */
  place: "Worker" | "Device";
}

export function RunningJobs({ jobs, progress, place }: Props) {
  return (
    <div class="table-box">
      <table class="running" aria-label="Running jobs">
        <thead>
          <tr>
            <th scope="col">Job</th>
            <th scope="col">Name</th>
            <th scope="col" class="is-extra">
              Pool
            </th>
            <th scope="col" class="is-extra">
              {place}
            </th>
            <th scope="col">Progress</th>
            <th scope="col" class="is-end">
              Running for
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <tr key={job.job_id}>
              <td>
                <Link class="mono" href={`/jobs/${job.job_id}`} title={job.job_id}>
                  {shortId(job.job_id)}
                </Link>
              </td>
              <td class="is-wide">
                <Text cut={60}>{job.name || job.kernel}</Text>
              </td>
              <td class="is-extra">
                <Text cut={40}>{job.pool}</Text>
              </td>
              <td class="is-extra">{place === "Worker" ? <Text cut={40}>{job.worker}</Text> : (job.device ?? <span class="faint">–</span>)}</td>
              <td>
                <ProgressInRow progress={progress?.jobs[job.job_id]} />
              </td>
              <td class="is-end">
                <Ran job={job} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

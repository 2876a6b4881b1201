// The jobs, newest first. Filters are in the URL. The newest ones are live; older ones are loaded as they come into sight.

import { useCallback, useEffect, useMemo, useRef, useState } from "preact/hooks";
import { Link, useLocation, useSearch } from "wouter-preact";

import { get, problemIn } from "../api/ask";
import { STATES, type Job, type JobState, type Page, type PageProgress, type Problem } from "../api/types";
import { count, labels, shortId } from "../format";
import { isOutage, useTopic } from "../live/store";
import { Command } from "../parts/command";
import { Empty, ProblemNote, Skeleton } from "../parts/messages";
import { isReported, ProgressInRow, ThinBar, useProgress } from "../parts/progress";
import { Rows, type Column } from "../parts/rows";
import { State } from "../parts/state";
import { Text } from "../parts/text";
import { Ago, At, Ran, Waited } from "../parts/time";
import { apiQuery, cliCommand, readFilters, writeFilters, type Filters } from "./filters";

const NEWEST = 100;
const OLDER = 500;
/** A list of this length is enough to scroll; a link continues after it. */
const ROWS_MAX = 10_000;

const COLUMNS: Column<Job>[] = [
  { title: "State", width: "7.5rem", cell: (job) => <State state={job.state} word={job.is_unheard ? "unheard" : job.state} /> },
  {
    title: "Job",
    width: "6.5rem",
    cell: (job) => (
      <Link href={`/jobs/${job.job_id}`} class="mono" tabIndex={-1} title={job.job_id}>
        {shortId(job.job_id)}
      </Link>
    ),
  },
  { title: "Name", width: "minmax(5rem, 1fr)", cell: (job) => <Text cut={80}>{job.name}</Text> },
  { title: "Kernel", width: "minmax(6rem, 1fr)", isExtra: true, cell: (job) => <Text cut={80}>{job.kernel}</Text> },
  { title: "Labels", width: "minmax(9rem, 1.8fr)", isExtra: true, cell: (job) => <LabelList of={job.labels} /> },
  { title: "Pool", width: "5.5rem", isExtra: true, cell: (job) => <Text cut={40}>{job.pool}</Text> },
  { title: "Worker", width: "minmax(6rem, 1fr)", isExtra: true, cell: (job) => <Text cut={60}>{job.worker}</Text> },
  { title: "Waited", width: "6rem", isExtra: true, align: "end", cell: (job) => <Waited job={job} /> },
  { title: "Ran", width: "6rem", align: "end", cell: (job) => <Ran job={job} /> },
  { title: "Tries", width: "3.5rem", isExtra: true, align: "end", cell: (job) => count(job.attempts) },
  { title: "Submitted", width: "6rem", isExtra: true, align: "end", cell: (job) => <Ago at={job.submitted_at ?? job.created_at} /> },
];

/** The columns, with that of progress among them. The others then have less room. */
function withProgress(progress: PageProgress | undefined): Column<Job>[] {
  const of = (job: Job) => progress?.jobs[job.job_id];
  const column: Column<Job> = { title: "Progress", width: "minmax(11rem, 2fr)", isExtra: true, cell: (job) => <ProgressInRow progress={of(job)} /> };
  const ran = (job: Job) => (
    <>
      <Ran job={job} />
      <ThinBar progress={of(job)} />
    </>
  );
  return COLUMNS.flatMap((other) => {
    const narrower = { ...other, width: NARROWER[other.title] ?? other.width, cell: other.title === "Ran" ? ran : other.cell };
    return other.title === "Waited" ? [column, narrower] : [narrower];
  });
}

const NARROWER: Record<string, string> = {
  State: "7rem",
  Job: "5.5rem",
  Kernel: "minmax(4.5rem, 0.8fr)",
  Labels: "minmax(5rem, 1.2fr)",
  Pool: "5rem",
  Worker: "minmax(5rem, 0.8fr)",
  Tries: "3rem",
};

export function JobsPage() {
  const search = useSearch();
  const [, navigate] = useLocation();
  const filters = useMemo(() => readFilters(search), [search]);
  const query = useMemo(() => apiQuery(filters), [filters]);
  const isFirst = filters.before === "";
  const path = `/v1/jobs?${query}&limit=${NEWEST}`;
  const newest = useTopic<Page>(path);
  const progress = useProgress(path);
  const list = useOlder(query, newest.body);
  // Once it is there, the column stays, so that the others do not move as jobs come and go.
  const hasProgress = useRef(false);
  hasProgress.current ||= newest.body?.jobs.some(isReported) ?? false;
  const columns = useMemo(() => (hasProgress.current ? withProgress(progress) : COLUMNS), [progress, hasProgress.current]);
  const change = (next: Filters) => navigate(`/jobs${writeFilters(next)}`, { replace: true });
  const refused = newest.problem && !isOutage(newest.problem) ? newest.problem : list.problem;
  return (
    <>
      <header class="page-head">
        <h1>Jobs</h1>
        <p class="faint" role="status">
          {newest.body && (list.next ? `at least ${count(list.jobs.length)}` : count(list.jobs.length))}{" "}
          {newest.body && (isFirst ? "jobs, newest first" : "older jobs")}
        </p>
      </header>
      <States filters={filters} change={change} />
      {refused && <ProblemNote problem={refused} />}
      {newest.body?.searched_since && (
        <p class="note">
          Only jobs since <At at={newest.body.searched_since} /> were searched, because no label of the filter has an index. To search more, add{" "}
          <code>since:</code> with an earlier time.
        </p>
      )}
      {!newest.body && !refused && <Skeleton rows={20} />}
      {newest.body && list.jobs.length === 0 && !refused && <Empty>No jobs match these filters.</Empty>}
      {list.jobs.length > 0 && (
        <Rows
          label="Jobs"
          columns={columns}
          rows={list.jobs}
          rowKey={(job) => job.job_id}
          href={(job) => `/jobs/${job.job_id}`}
          open={navigate}
          onEnd={list.load}
          isOpenEnded={Boolean(list.next)}
        />
      )}
      {list.next && list.jobs.length >= ROWS_MAX && (
        <p>
          <Link href={`/jobs${writeFilters({ ...filters, before: list.next })}`}>Continue with older jobs</Link>
        </p>
      )}
      {(newest.body || refused) && <Command text={cliCommand(filters)} />}
    </>
  );
}

function LabelList({ of }: { of: Record<string, string> }) {
  const all = labels(of);
  if (all.length === 0) return <span class="faint">–</span>;
  return (
    <span class="labels">
      {all.slice(0, 3).map((label) => (
        <span class="label" key={label}>
          <Text cut={40}>{label}</Text>
        </span>
      ))}
      {all.length > 3 && <span class="faint">+{all.length - 3}</span>}
    </span>
  );
}

interface List {
  jobs: Job[];
  /** Where the next page begins; none at the end. */
  next: string | null;
  problem: Problem | null;
  load: () => void;
}

/** The live page of the newest jobs, followed by older ones. */
function useOlder(query: string, newest: Page | undefined): List {
  const [older, setOlder] = useState<{ query: string; jobs: Job[]; next: string | null | undefined }>({
    query,
    jobs: [],
    next: undefined,
  });
  const [failed, setFailed] = useState<{ query: string; problem: Problem | null }>({ query, problem: null });
  const problem = failed.query === query ? failed.problem : null;
  const current = useRef(query);
  current.current = query;
  const isLoading = useRef(false);
  const known = older.query === query ? older : { query, jobs: [], next: undefined };

  // Jobs that leave the newest page as others arrive are kept. If more arrived than fit, the list begins anew.
  const previous = useRef<{ query: string; jobs: Job[] }>({ query, jobs: [] });
  useEffect(() => {
    if (!newest) return;
    const before = previous.current;
    previous.current = { query, jobs: newest.jobs };
    if (before.query !== query || before.jobs.length === 0 || known.next === undefined) return;
    const ids = new Set(newest.jobs.map((job) => job.job_id));
    const gone = before.jobs.filter((job) => !ids.has(job.job_id));
    // Others are gone because they no longer match, such as a queued job that runs.
    const last = newest.jobs.at(-1);
    const left = newest.next && last ? gone.filter((job) => isOlder(job, last)) : [];
    if (left.length === 0) return;
    if (left.length === before.jobs.length) setOlder({ query, jobs: [], next: undefined });
    else setOlder({ query, jobs: [...left, ...known.jobs], next: known.next });
  }, [newest, query]);

  const next = known.next === undefined ? (newest?.next ?? null) : known.next;
  const jobs = useMemo(() => {
    const first = newest?.jobs ?? [];
    if (known.jobs.length === 0) return first;
    const ids = new Set(first.map((job) => job.job_id));
    return [...first, ...known.jobs.filter((job) => !ids.has(job.job_id))];
  }, [newest, known.jobs]);

  const load = useCallback(() => {
    if (!next || isLoading.current || jobs.length >= ROWS_MAX) return;
    isLoading.current = true;
    const rest = new URLSearchParams(query);
    rest.set("before", next);
    rest.set("limit", String(OLDER));
    if (newest?.searched_since && !rest.has("since")) rest.set("since", newest.searched_since);
    get<Page>(`/api/v1/jobs?${rest}`)
      .then((page) => {
        if (current.current !== query) return;
        setFailed({ query, problem: null });
        setOlder((older) => {
          const jobs = older.query === query ? older.jobs : [];
          return { query, jobs: [...jobs, ...page.jobs], next: page.next ?? null };
        });
      })
      .catch((error: unknown) => setFailed({ query, problem: problemIn(error) }))
      .finally(() => (isLoading.current = false));
  }, [next, query, jobs.length, newest?.searched_since]);

  return { jobs, next, problem, load };
}

/** Whether the list has `job` after `other`. */
function isOlder(job: Job, other: Job): boolean {
  const [one, two] = [Date.parse(job.created_at), Date.parse(other.created_at)];
  return one === two ? job.job_id < other.job_id : one < two;
}

function States({ filters, change }: { filters: Filters; change: (next: Filters) => void }) {
  const toggle = (state: JobState) => {
    const states = filters.state.includes(state) ? filters.state.filter((other) => other !== state) : [...filters.state, state];
    change({ ...filters, state: states, before: "" });
  };
  return (
    <fieldset class="chips">
      <legend class="visually-hidden">State</legend>
      {STATES.map((state) => (
        <label key={state} class={`chip${filters.state.includes(state) ? " is-on" : ""}`}>
          <input type="checkbox" checked={filters.state.includes(state)} onChange={() => toggle(state)} />
          <State state={state} />
        </label>
      ))}
    </fieldset>
  );
}

// One box to find jobs, on every page. It says how it reads what is typed.

import { useEffect, useState } from "preact/hooks";
import { Link, useLocation, useSearch } from "wouter-preact";

import { get, problemIn } from "../api/ask";
import type { JobDetail, Page } from "../api/types";
import { visible } from "../format";
import { described, readFilters, readSearch, writeFilters, writeSearch, type Filters } from "../pages/filters";
import { Prose } from "./text";

/** The beginning or the end of an id. */
const ID = /^[0-9a-f-]{4,36}$/i;

/** Where a word leads: to a job, or to the jobs of that name or kernel. */
interface Found {
  title: string;
  href: string;
}

export function Search() {
  const [path, navigate] = useLocation();
  const search = useSearch();
  const applied = readFilters(path === "/jobs" ? search : "");
  const shown = writeSearch(applied);
  const [draft, setDraft] = useState(shown);
  const [said, setSaid] = useState<{ text: string; found: Found[] } | null>(null);
  const reset = () => {
    setDraft(shown);
    setSaid(null);
  };
  useEffect(reset, [path, shown]);
  const run = async () => {
    const { filters, words } = readSearch(draft);
    const states = filters.state.length > 0 ? filters.state : applied.state;
    const hrefOf = (more: Partial<Filters>) => `/jobs${writeFilters({ ...filters, state: states, ...more })}`;
    if (!words) return navigate(hrefOf({}));
    try {
      const found = await find(words, hrefOf);
      if (found.length === 1) return navigate(found[0]!.href);
      const isNone = found.length === 0;
      const text = isNone
        ? `No job has the id, the name or the kernel “${words}”. Names and kernels match as a whole, ids by their beginning or end.`
        : `“${words}” can mean:`;
      setSaid({ text, found });
    } catch (error) {
      const { title, detail } = problemIn(error);
      setSaid({ text: `${title}: ${detail}.`, found: [] });
    }
  };
  return (
    <form
      class="search"
      role="search"
      onSubmit={(event) => {
        event.preventDefault();
        void run();
      }}
    >
      <input
        type="search"
        aria-label="Find jobs by id, name, kernel or label"
        aria-describedby="understood"
        placeholder="Find jobs: id, name, kernel or key=value"
        autocomplete="off"
        spellcheck={false}
        value={draft}
        onInput={(event) => {
          setDraft(event.currentTarget.value);
          setSaid(null);
        }}
        onKeyDown={(event) => {
          if (event.key === "Escape") reset();
        }}
      />
      <p id="understood" role="status" class={said && said.found.length === 0 ? "is-bad" : "faint"}>
        {said ? <bdi>{visible(said.text)}</bdi> : <Understood draft={draft} isApplied={draft === shown} />}
        {said?.found.map(({ title, href }) => (
          <Link key={href} href={href}>
            {title}
          </Link>
        ))}
        {!said && draft === shown && path === "/jobs" && writeFilters(applied) && <Link href="/jobs">Show all jobs</Link>}
      </p>
    </form>
  );
}

function Understood({ draft, isApplied }: { draft: string; isApplied: boolean }) {
  const { filters, words } = readSearch(draft);
  const parts = described(filters);
  if (words) parts.push(`“${words}” as an id, a name or a kernel`);
  if (parts.length === 0) return <Prose>More: `pool:` `user:` `worker:` `since:2h` `until:`</Prose>;
  return <bdi>{visible(`${isApplied ? "Jobs with" : "Enter finds jobs with"} ${parts.join(", ")}`)}</bdi>;
}

/** Asks what these words are. */
async function find(words: string, hrefOf: (more: Partial<Filters>) => string): Promise<Found[]> {
  const has = async (field: "name" | "kernel"): Promise<Found[]> => {
    const { jobs } = await get<Page>(`/api/v1/jobs?${field}=${encodeURIComponent(words)}&limit=1`);
    return jobs.length > 0 ? [{ title: `jobs with the ${field}`, href: hrefOf({ [field]: words }) }] : [];
  };
  const job = async (): Promise<Found[]> => {
    if (!ID.test(words)) return [];
    try {
      const { job } = await get<JobDetail>(`/api/v1/jobs/${encodeURIComponent(words)}`);
      return [{ title: `job ${job.job_id}`, href: `/jobs/${job.job_id}` }];
    } catch (error) {
      const { status, type } = problemIn(error);
      if (type === "gpufleet:ambiguous-job") return [{ title: "several ids", href: `/jobs/${encodeURIComponent(words)}` }];
      if (status === 404 || status === 400) return [];
      throw error;
    }
  };
  return (await Promise.all([job(), has("name"), has("kernel")])).flat();
}

// Long lists and jobs with many attempts: no task of the browser takes longer than 200 ms, by its own trace.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { test } from "node:test";

import { browse, console_, fakeApi, until } from "./harness.mjs";

const TASK_MS_MAX = 200;
const ATTEMPTS = 1000;
const JOBS = 10_000;

const id = (number) => `01990f3e-0000-7000-8000-${String(number).padStart(12, "0")}`;
const at = (ms) => new Date(Date.UTC(2026, 10, 20) + ms).toISOString();

function jobOf(number) {
  return {
    job_id: id(number),
    state: "succeeded",
    name: `job ${number}`,
    labels: { run: String(number % 7), team: "vision" },
    pool: "default",
    kernel: "saxpy",
    created_at: at(number * 10),
    attempts: 1,
    attempt: 1,
    worker: "w1",
    is_unheard: false,
    queue_us: 1000,
    total_us: 2000,
  };
}

function page(url) {
  const query = new URL(url, "http://api").searchParams;
  const before = Number(query.get("before")?.split(".")[1] ?? JOBS);
  const limit = Number(query.get("limit"));
  const jobs = [];
  for (let number = before - 1; number >= 0 && jobs.length < limit; number -= 1) jobs.push(jobOf(number));
  const last = before - jobs.length;
  return { jobs, next: last > 0 ? `k.${last}` : null };
}

const attempts = Array.from({ length: ATTEMPTS }, (_, index) => ({
  attempt: index + 1,
  state: index + 1 === ATTEMPTS ? "succeeded" : "lost",
  superseded: false,
  worker: `w${index % 5}`,
  is_unheard: false,
  started_at: at(index * 1000),
  finished_at: at(index * 1000 + 900),
  timings: { total_us: 800_000, compile_us: 10_000, load_us: 5000, copy_in_us: 100_000, launches_us: [500_000], copy_out_us: 90_000 },
}));

/** The longest task of a page's main thread while `work` runs, in milliseconds. */
async function longestTask(page, context, work) {
  const session = await context.newCDPSession(page);
  const events = [];
  session.on("Tracing.dataCollected", ({ value }) => events.push(...value));
  const complete = new Promise((resolve) => session.once("Tracing.tracingComplete", resolve));
  await session.send("Tracing.start", { transferMode: "ReportEvents", traceConfig: { includedCategories: ["toplevel", "devtools.timeline"] } });
  await work();
  await session.send("Tracing.end");
  await complete;
  const renderers = new Set(events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain").map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = events.filter(({ name, pid, tid }) => /RunTask/.test(name) && renderers.has(`${pid} ${tid}`));
  assert.ok(tasks.length > 50, `the trace has only ${tasks.length} tasks`);
  // By the time that the thread worked: others use the processors too.
  return Math.max(...tasks.map(({ dur = 0, tdur = dur }) => tdur)) / 1000;
}

test("ten thousand rows and a thousand attempts take no long task", async () => {
  const api = await fakeApi({
    "/v1/jobs": page,
    "/v1/workers": { workers: [] },
    [`/v1/jobs/${id(1)}`]: { job: { ...jobOf(1), attempts: ATTEMPTS, attempt: ATTEMPTS }, attempts, outputs: [] },
  });
  const server = await console_(api.url, [], { GPUFLEET_AMQP_URL: "" });
  try {
    await browse(async (page, context) => {
      const list = await longestTask(page, context, async () => {
        await page.goto(`${server.url}/jobs`);
        await page.locator(".rows-body .row").first().waitFor();
        // The list grows as its end comes into sight, and then its end is farther down.
        await until("the last of all rows is in sight", async () => {
          await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
          const isComplete = (await page.locator(".rows").getAttribute("aria-rowcount")) === String(JOBS + 1);
          return isComplete && (await page.locator(".rows-body .row", { hasText: /job 0(?!\d)/ }).count()) === 1;
        });
        assert.ok((await page.locator(".rows-body .row").count()) < 120, "only rows in sight are in the document");
        await page.evaluate(() => scrollTo(0, 0));
        await page.locator(".rows-body .row", { hasText: `job ${JOBS - 1}` }).waitFor();
      });
      assert.ok(list <= TASK_MS_MAX, `a task of the list took ${list} ms`);
      const gantt = await longestTask(page, context, async () => {
        await page.goto(`${server.url}/jobs/${id(1)}`);
        await page.getByText("1,000", { exact: true }).waitFor();
        await page.locator(".gantt-rows").evaluate((element) => element.scrollTo(0, element.scrollHeight));
        await page.locator(".gantt-name", { hasText: "1000" }).waitFor();
        assert.ok((await page.locator(".gantt li").count()) < 100);
      });
      assert.ok(gantt <= TASK_MS_MAX, `a task of the job's page took ${gantt} ms`);
    });
  } finally {
    await server.stop();
    await api.stop();
  }
});

test("the first load is one page, one style and one script from the console alone", async () => {
  const api = await fakeApi({ "/v1/workers": { workers: [] } });
  const server = await console_(api.url, [], { GPUFLEET_AMQP_URL: "" });
  try {
    await browse(async (page) => {
      const hosts = new Set();
      page.on("request", (request) => hosts.add(new URL(request.url()).origin));
      await page.goto(`${server.url}/workers`);
      await page.getByText("No worker has reported yet.").waitFor();
      assert.deepEqual([...hosts], [server.url]);
    });
    const index = await readFile(new URL("../dist/index.html", import.meta.url), "utf8");
    assert.doesNotMatch(index, /https?:/);
  } finally {
    await server.stop();
    await api.stop();
  }
});

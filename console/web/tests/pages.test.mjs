// The pages on a real fleet: live, complete, accessible, usable by keyboard.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";

import { api, browse, console_, fakeApi, gpufleet, mandelbrot, staged, submit, submitted, until, waiting, wire, worker } from "./harness.mjs";
import { ago, calm, detailOf, jobOf, jobs, progressOf, troubled } from "./stage.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const PAGES = ["/", "/jobs", "/workers", "/pools", "/dead", "/kernels", "/usage"];

/** It prints at its beginning, and ends a second later. */
const TALKS = `
extern "C" __global__ void talks(unsigned *y) {
    printf("a launch begins\\n");
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < 1000000000);
    y[0] = 1;
}`;

let ledger;
let server;
let job;

before(async () => {
  ledger = await api();
  server = await console_(ledger.url, ["--actions"]);
  job = await submit("--name", "the-first", "--label", "run=1", "--keep", "1d");
  await submit("--name", "the-second");
});
after(async () => {
  await server.stop();
  await ledger.stop();
});

const state = (page, word) => page.locator(".page-head .state", { hasText: word });

/** How long after the time in the ledger each state was on the screen, for the table in `bench/README.md`. */
async function delays(id, seen) {
  const { job } = await (await fetch(`${ledger.url}/v1/jobs/${id}`)).json();
  const entered = { queued: job.submitted_at, running: job.started_at, succeeded: job.finished_at };
  return seen.map(({ word, at }) => `${word} after ${at - Date.parse(entered[word])} ms`).join(", ");
}

test("a job goes from queued over running to succeeded without a reload", async (context) => {
  await browse(async (page, _, problems) => {
    await page.goto(`${server.url}/jobs?name=watched`);
    await page.getByText("No jobs match these filters.").waitFor();
    const loads = [];
    page.on("load", () => loads.push(1));
    // It notes every state that the row shows, and when.
    await page.evaluate(() => {
      globalThis.seen = [];
      const look = () => {
        const word = document.querySelector(".rows-body .state")?.dataset.state;
        if (word && globalThis.seen.at(-1)?.word !== word) globalThis.seen.push({ word, at: Date.now() });
      };
      new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
    });
    // The queues of a pool exist once a worker has served it. Without one, the job waits.
    await (await worker("late")).stop();
    // The console looks once a second.
    const id = await waiting(10, "--name", "watched", "--pool", "late");
    await page.locator(".rows-body .state[data-state=queued]").waitFor();
    const late = await worker("late");
    await page.locator(".rows-body .state[data-state=succeeded]").waitFor();
    const seen = await page.evaluate(() => globalThis.seen);
    assert.deepEqual(
      seen.map(({ word }) => word),
      ["queued", "running", "succeeded"],
    );
    context.diagnostic(`on the screen: ${await delays(id, seen)}`);
    assert.deepEqual(loads, []);
    await page.locator(".rows-body .row").first().click();
    await state(page, "succeeded").waitFor();
    assert.match(page.url(), new RegExp(id));
    assert.deepEqual(problems, []);
    await late.stop();
  });
});

/** Without serious faults for axe. */
async function isAccessible(page, what) {
  // By the debugger: the policy of the page refuses it as a script.
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
  const told = serious.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 200)).join(" | ")}`);
  assert.deepEqual(told, [], what);
}

const isLoaded = (page) => until("the page has loaded", async () => !(await page.locator(".skeleton").count()));

test("every page shows its heading and no error, in light, dark and narrow, without serious faults for axe", async () => {
  const variants = [{ colorScheme: "light" }, { colorScheme: "dark" }, { colorScheme: "light", viewport: { width: 420, height: 900 } }];
  for (const options of variants) {
    await browse(async (page, _, problems) => {
      for (const path of [...PAGES, `/jobs/${job}`, "/jobs?state=succeeded&label=run%3D1"]) {
        await page.goto(server.url + path);
        await page.locator("h1").first().waitFor();
        await page.locator(".liveness.is-live").waitFor();
        await isLoaded(page);
        await isAccessible(page, `${path} with ${JSON.stringify(options)}`);
        assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth), `${path} is wider than its window`);
      }
      assert.deepEqual(problems, []);
    }, options);
  }
});

test("pages of a fleet in trouble and their dialogs have no serious faults for axe", async () => {
  const [, runs, , failed] = jobs();
  const press = (name) => (page) => page.getByRole("button", { name, exact: true }).first().click();
  const pages = [
    ["/"], ["/workers", press("Show charts")], ["/dead", press("Discard…")], [`/jobs/${runs.job_id}`, press("Cancel…")], [`/jobs/${failed.job_id}`],
  ];
  for (const colorScheme of ["light", "dark"]) {
    await browse(
      async (page, _, problems) => {
        await staged(page, troubled());
        for (const [path, act] of pages) {
          await page.goto(server.url + path);
          await page.locator(".liveness.is-live").waitFor();
          await isLoaded(page);
          await act?.(page);
          await isAccessible(page, `${path} in ${colorScheme}`);
        }
        assert.deepEqual(problems, []);
      },
      { colorScheme },
    );
  }
});

test("the start page begins with what needs action, each with the next step", async () => {
  await browse(async (page) => {
    const topics = troubled();
    await staged(page, topics);
    await page.goto(server.url);
    const found = page.getByRole("region", { name: "Needs action" });
    await found.getByRole("heading", { name: "Needs action: 4" }).waitFor();
    assert.deepEqual(await found.locator("li strong").allInnerTexts(), [
      "5 jobs wait in pool night, and no worker serves it.",
      "1 device is out of service: gpu-2 device 0.",
      "1 worker is unheard: gpu-3.",
      "3 messages are dead-lettered.",
    ]);
    await found.getByText("gpufleet-worker run --pool night").waitFor();
    await found.getByText("the CUDA context was lost").waitFor();
    await found.getByText("The last heartbeat came 4 min ago.").waitFor();
    await found.getByRole("link", { name: "Dead letters" }).waitFor();
    const first = await page.evaluate(() => document.querySelector("h1").closest("header").nextElementSibling.getAttribute("aria-label"));
    assert.equal(first, "Needs action");
    // Late heartbeats of a recorder that is behind say nothing about workers.
    topics["/v1/overview"].recorder.behind_seconds = 95;
    await page.reload();
    await found.getByText("The recorder is 1 min behind.").waitFor();
    assert.equal(await found.getByText("unheard").count(), 0);
    topics.broker = { state: "away", reason: "refused", pools: [], dead: null };
    await page.reload();
    assert.equal(await found.locator("li strong").first().innerText(), "The console has no connection to the broker.");
    Object.assign(topics, calm());
    await page.reload();
    await found.getByRole("heading", { name: "Nothing needs action." }).waitFor();
    assert.equal(await found.locator("li").count(), 0);
  });
});

test("charts have ranges, and their axes fit the data", async () => {
  await browse(async (page) => {
    await staged(page, calm());
    await page.goto(server.url);
    const ranges = page.getByRole("group", { name: "Range" });
    await ranges.waitFor();
    assert.deepEqual(await ranges.locator("label").allInnerTexts(), ["15 min", "1 h", "24 h"]);
    // All 60 jobs are of the last day, and 40 of them of the last hour.
    assert.ok(await ranges.getByRole("radio", { name: "24 h" }).isChecked());
    const ended = page.locator(".tile", { hasText: "Jobs ended" });
    await ended.getByText("60").waitFor();
    /** Minutes from the left end of the first chart, and the marks of its axis. */
    const axis = async () => {
      const shown = page.locator(".u-legend .u-value").first();
      await page.mouse.move(0, 0);
      await until("the legend shows the latest values", async () => (await shown.innerText()) === "latest");
      const { x, y } = await page.locator(".chart .u-over").first().boundingBox();
      await page.mouse.move(x + 1, y + 40);
      await until("the legend shows a time", async () => /^2/.test(await shown.innerText()));
      return (Date.now() - Date.parse(await shown.innerText())) / 60_000;
    };
    const day = await axis();
    assert.ok(day > 110 && day < 130, `two hours of data take ${day} min of a day`);
    await ranges.getByRole("radio", { name: "24 h" }).press("ArrowLeft");
    await page.waitForURL(/range=1h/);
    await ended.getByText("40").waitFor();
    const hour = await axis();
    assert.ok(hour > 50 && hour <= 61, `${hour} min`);
    await ranges.getByRole("radio", { name: "15 min" }).check();
    await ended.getByText("10", { exact: true }).waitFor();
    const quarter = await axis();
    assert.ok(quarter >= 5 && quarter <= 16, `${quarter} min`);
    await page.reload();
    assert.ok(await ranges.getByRole("radio", { name: "15 min" }).isChecked());
    await page.goto(`${server.url}/workers`);
    await page.getByRole("button", { name: "Show charts" }).click();
    await ranges.waitFor();
    assert.deepEqual(await ranges.locator("label").allInnerTexts(), ["15 min", "1 h", "24 h", "48 h"]);
    await page.getByRole("img", { name: /Device 0: memory\. Latest: .* GiB/ }).waitFor();
    // A range that the page does not have is the one that fits the data.
    await page.goto(`${server.url}/?range=toString`);
    await ended.getByText("60").waitFor();
    assert.ok(await ranges.getByRole("radio", { name: "24 h" }).isChecked());
  });
});

test("one box finds jobs by id, name, kernel and label, and says what it understood", async () => {
  await browse(async (page) => {
    const box = page.getByRole("searchbox", { name: "Find jobs" });
    const understood = page.locator("#understood");
    const find = async (text) => {
      await box.fill(text);
      await box.press("Enter");
    };
    await page.goto(`${server.url}/workers`);
    for (const part of [job.slice(0, 23), job.slice(-8)]) {
      await find(part);
      await page.waitForURL(`${server.url}/jobs/${job}`);
      await page.goto(`${server.url}/workers`);
    }
    await box.fill('the-first run=1 pool:"a b"');
    await understood.getByText("Enter finds jobs with pool a b, label run=1, “the-first” as an id, a name or a kernel").waitFor();
    await box.press("Escape");
    assert.equal(await box.inputValue(), "");
    await find("the-first");
    await page.waitForURL(/\/jobs\?name=the-first$/);
    await page.locator(".rows-body .row", { hasText: "the-first" }).waitFor();
    await understood.getByText("Jobs with name the-first").waitFor();
    assert.equal(await box.inputValue(), "name:the-first");
    await find("saxpy run=1");
    await page.waitForURL(/\/jobs\?kernel=saxpy&label=run%3D1$/);
    await page.locator(".rows-body .row", { hasText: "the-first" }).waitFor();
    await submit("--name", "saxpy");
    const named = async () => (await (await page.request.get(`${server.url}/api/v1/jobs?name=saxpy&limit=1`)).json()).jobs;
    await until("the console knows the job", async () => (await named()).length > 0);
    await find("saxpy");
    await understood.getByRole("link", { name: "jobs with the kernel" }).waitFor();
    await understood.getByRole("link", { name: "jobs with the name" }).click();
    await page.waitForURL(/\/jobs\?name=saxpy$/);
    await find("nobody-has-this");
    await understood.getByText("No job has the id, the name or the kernel “nobody-has-this”.").waitFor();
    await understood.getByRole("link").waitFor({ state: "detached" });
  });
});

test("grey bars hold the place of data that are not there yet, and nothing jumps when they come", async () => {
  const shown = jobs().map(({ job_id }) => `/jobs/${job_id}`);
  for (const viewport of [{ width: 1280, height: 800 }, { width: 420, height: 900 }]) {
    await browse(
      async (page) => {
        let data, arrive;
        await staged(page, troubled(), () => data);
        await page.addInitScript(() => {
          globalThis.shifts = [];
          globalThis.observer = new PerformanceObserver((list) => globalThis.shifts.push(...list.getEntries()));
          globalThis.observer.observe({ type: "layout-shift", buffered: true });
        });
        for (const path of [...PAGES, ...shown]) {
          data = new Promise((resolve) => (arrive = resolve));
          await page.goto(server.url + path);
          await page.getByRole("status", { name: "Loading" }).first().waitFor();
          assert.equal(await page.getByText(/^No /).count(), 0, `${path} says that there is nothing before it knows`);
          arrive();
          await isLoaded(page);
          const shift = await page.evaluate(async () => {
            for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);
            return [...globalThis.shifts, ...globalThis.observer.takeRecords()].reduce((sum, { value }) => sum + value, 0);
          });
          assert.ok(shift < 0.05, `${path} jumps by ${shift} at ${viewport.width}`);
        }
      },
      { viewport },
    );
  }
});

test("jobs count on, dates are of ISO 8601 with the zone, and percentiles are named in words", async () => {
  await browse(
    async (page) => {
      await staged(page, troubled());
      const [good, runs, waits] = jobs();
      await page.goto(`${server.url}/jobs`);
      const row = page.locator(".rows-body .row", { hasText: "run-2" });
      const elapsed = async () => /2 min \d+ s/.exec(await row.innerText())?.[0];
      const first = await until("the elapsed time is shown", elapsed);
      await until("it counts on", async () => (await elapsed()) !== first);
      const fact = (title) => page.locator(".facts div", { has: page.locator("dt", { hasText: title }) }).locator("dd");
      for (const [job, title] of [[runs, "Running for"], [waits, "Waiting for"]]) {
        await page.goto(`${server.url}/jobs/${job.job_id}`);
        assert.match(await fact(title).innerText(), /^[23] min \d+ s$/);
      }
      await page.goto(`${server.url}/jobs/${good.job_id}`);
      const date = await fact("Submitted").innerText();
      assert.match(date, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+05:30$/);
      assert.ok(Math.abs(Date.parse(date) - Date.parse(good.submitted_at)) < 5000);
      await page.goto(server.url);
      await page.getByText("Median wait (p50)").waitFor();
      await page.getByText("95th percentile (p95)").first().waitFor();
      await page.goto(`${server.url}/kernels`);
      await page.getByRole("columnheader", { name: "Median (p50)" }).waitFor();
      await page.getByText("p95 is the 95th percentile").waitFor();
    },
    { timezoneId: "Asia/Kolkata" },
  );
});

test("cards beside each other have the same height, and failures have the colour of failures", async () => {
  for (const viewport of [{ width: 1280, height: 800 }, { width: 420, height: 900 }]) {
    await browse(
      async (page) => {
        await staged(page, troubled());
        await page.goto(server.url);
        await isLoaded(page);
        const rows = await page.evaluate(() => {
          const of = (selector) => [...document.querySelectorAll(selector)].map((card) => card.getBoundingClientRect());
          const heights = (cards) => {
            const rows = Object.values(Object.groupBy(cards, ({ top }) => Math.round(top)));
            return rows.map((row) => row.map(({ height }) => Math.round(height)));
          };
          return [...heights(of(".tile")), ...heights(of(".columns > *"))];
        });
        assert.ok(rows.length > 2);
        for (const row of rows) assert.deepEqual(row, row.map(() => row[0]));
        const [bad, ...shown] = await page.evaluate(() => {
          const probe = document.body.appendChild(document.createElement("p"));
          probe.style.color = "var(--bad)";
          const colour = (selector, property = "color") => getComputedStyle(document.querySelector(selector))[property];
          const bar = colour(".meter.is-bad > span", "backgroundColor");
          return [getComputedStyle(probe).color, bar, colour("[data-state=failed]"), colour("[data-state=failed] svg", "fill"), colour(".tile .is-bad")];
        });
        assert.deepEqual(shown, shown.map(() => bad));
      },
      { viewport },
    );
  }
});

test("running jobs show how far they are on every page that lists them, and brief and ended ones do not", async () => {
  const [, runs] = jobs();
  const session = jobOf(6, { state: "running", started_at: ago(3700), finished_at: null, total_us: null, program: "session", kernel: "python train.py", name: null });
  const text = "312 of 1,000 launches · ≈ 4 min 50 s left";
  await browse(async (page, _, problems) => {
    const topics = calm();
    const { jobs: known } = topics["/v1/jobs"]("state=running");
    const list = topics["/v1/jobs"];
    topics["/v1/jobs"] = (topic) => (topic.includes("state=running") ? { jobs: [session, ...known], next: null } : list(topic));
    await staged(page, topics);
    const bar = (of) => of.getByRole("progressbar", { name: "Progress" });
    await page.goto(`${server.url}/jobs`);
    const row = page.locator(".rows-body .row", { hasText: "run-2" });
    await row.getByText(text).waitFor();
    assert.equal(await bar(row).getAttribute("aria-valuenow"), "31");
    assert.equal(await bar(row).getAttribute("aria-valuetext"), "312 of 1,000 launches, about 4 min 50 s left");
    assert.equal(await bar(page).count(), 1, "other jobs have no bar");
    for (const path of ["/", "/workers"]) {
      await page.goto(server.url + path);
      const running = page.getByRole("table", { name: "Running jobs" });
      await running.getByRole("row", { name: "run-2" }).getByText(text).waitFor();
      assert.match(await running.getByRole("row", { name: "run-2" }).innerText(), /2 min \d+ s/);
      assert.match(await running.getByRole("row", { name: "python train.py" }).innerText(), /–\s+1 h 2 min/);
    }
    const page_ = `progress/v1/jobs/${runs.job_id}`;
    await page.goto(`${server.url}/jobs/${runs.job_id}`);
    const progress = page.locator("section.progress");
    const shows = (text) => progress.getByText(text, { exact: true }).waitFor();
    await shows("312 of 1,000 launches");
    await shows("about 4 min 50 s left");
    assert.equal(await bar(progress).getAttribute("aria-valuenow"), "31");
    for (const [more, text] of [
      [{ unit: "steps", count: { done: 7100, total: 20_000 }, left_ms: null }, "7,100 of 20,000 steps"],
      [{ unit: "bytes", stage: "fetching", count: { done: 3 * 2 ** 30, total: 10 * 2 ** 30 } }, "fetching 3.00 of 10.0 GiB"],
      [{ unit: "bytes", stage: "storing", count: { done: 5, total: 2 ** 20 }, left_ms: 1 }, "storing 5 B of 1.00 MiB"],
      [{ count: null, left_ms: null }, "It has a single launch and no counter, so there is nothing to count."],
    ]) {
      topics[page_] = progressOf(runs, more);
      await shows(text);
    }
    assert.equal(await bar(progress).count(), 0);
    topics[page_] = { problem: "the console was started without a broker", jobs: {} };
    await shows("Only the elapsed time is known: the console was started without a broker");
    assert.deepEqual(problems, []);
  });
});

test("what kernels print is shown while they run, and the box follows its end until the reader scrolls up", async () => {
  const [, runs] = jobs();
  await browse(async (page) => {
    const topics = calm();
    const lines = (count) => Array.from({ length: count }, (_, line) => `step ${line} <b>\u202e\n`).join("");
    const say = (count, is_cut = false) => (topics[`progress/v1/jobs/${runs.job_id}`] = progressOf(runs, { printed: { text: lines(count), is_cut } }));
    say(100);
    await staged(page, topics);
    await page.goto(`${server.url}/jobs/${runs.job_id}`);
    const log = page.getByRole("log", { name: "Output of printf so far" });
    const isAtEnd = () => log.evaluate(({ scrollTop, scrollHeight, clientHeight }) => scrollHeight - scrollTop - clientHeight < 2);
    await log.getByText("step 99 <b>\\u202e").waitFor();
    assert.ok(await isAtEnd());
    assert.equal(await log.locator("b").count(), 0);
    say(150);
    await log.getByText("step 149").waitFor();
    assert.ok(await isAtEnd(), "it follows");
    await log.focus();
    await page.keyboard.press("Home");
    await page.getByRole("button", { name: "Follow the end" }).waitFor();
    say(200, true);
    await log.getByText("step 199").waitFor();
    assert.equal(await log.evaluate(({ scrollTop }) => scrollTop), 0, "the reader is left alone");
    await page.getByText("More was printed before.").waitFor();
    await page.getByRole("button", { name: "Follow the end" }).click();
    await until("the end is in sight", isAtEnd);
    assert.equal(await page.getByRole("button", { name: "Follow the end" }).count(), 0);
    await isAccessible(page, "a job that prints");
  });
});

test("a real job shows its launches and its text before it ends", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-page-"));
  await writeFile(join(folder, "talks.cu"), TALKS);
  const launch = { entry: "talks", grid: { blocks: [1] }, block: { threads: [1] }, repeat: 60, args: [{ buffer: "y" }] };
  const task = { program: { source: { file: "talks.cu" } }, buffers: [{ name: "y", dtype: "u32", shape: [1] }], launches: [launch], outputs: ["y"] };
  await writeFile(join(folder, "talks.json"), JSON.stringify(task));
  const id = await submitted("--file", join(folder, "talks.json"));
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs/${id}`);
    await page.locator("section.progress").getByText(/^[1-9]\d? of 60 launches$/).waitFor();
    await page.getByRole("log").getByText("a launch begins").waitFor();
    await page.goto(`${server.url}/jobs?state=running`);
    await page.locator(".rows-body .row", { hasText: id.slice(-8) }).getByRole("progressbar").waitFor();
    await gpufleet("cancel", id);
  });
  await rm(folder, { recursive: true });
});

test("the question before a running job is cancelled names the jobs that start again with it", async () => {
  const [, runs] = jobs();
  const path = `/v1/jobs/${runs.job_id}/neighbours`;
  const neighbour = (number, more) => ({ job_id: jobOf(number).job_id, name: `run-${number}`, pool: "default", kernel: "saxpy", running_us: number * 61e6, ...more });
  await browse(async (page) => {
    const topics = calm();
    await staged(page, topics);
    const ask = async () => {
      await page.goto(`${server.url}/jobs/${runs.job_id}`);
      await page.getByRole("button", { name: "Cancel…" }).click();
      return page.getByRole("dialog").locator(".neighbours");
    };
    await (await ask()).getByText("Other jobs are not affected.").waitFor();
    topics[path] = { neighbours: [neighbour(7), neighbour(8, { name: null })] };
    const named = await ask();
    await named.getByText("2 other jobs run in its pool on this device. Those in the same executor start again from the beginning:").waitFor();
    assert.deepEqual(await named.locator("li").allInnerTexts(), ["run-7 00000007, running for 7 min 7 s", "saxpy 00000008, running for 8 min 8 s"]);
    topics[path] = { neighbours: Array.from({ length: 11 }, (_, index) => neighbour(20 + index)) };
    await (await ask()).getByText("and 3 more").waitFor();
    delete topics[path];
    await (await ask()).getByText("Which ones is not known: the ledger has no such job.").waitFor();
  });
});

test("dialogs say who is affected", async () => {
  const [, runs] = jobs();
  await browse(async (page) => {
    const dead = jobOf(5, { state: "dead" });
    await staged(page, { ...troubled(), [`/v1/jobs/${dead.job_id}`]: detailOf(dead) });
    const affected = (dialog) => dialog.locator(".affected").innerText();
    await page.goto(`${server.url}/jobs/${runs.job_id}`);
    await page.getByRole("button", { name: "Cancel…" }).click();
    assert.equal((await affected(page.getByRole("dialog"))).replace(/\s+/g, " "), "Jobs 1, running on gpu-1 User alice Pool default");
    await page.goto(`${server.url}/dead`);
    for (const button of ["Replay…", "Discard…"]) {
      await page.getByRole("button", { name: button }).click();
      const dialog = page.getByRole("dialog");
      assert.equal((await affected(dialog)).replace(/\s+/g, " "), "Jobs 5 Users alice (4), bob (1) Pools default (4), night (1)");
      await dialog.getByRole("button", { name: "Back" }).click();
    }
    await page.goto(`${server.url}/jobs/${dead.job_id}`);
    await page.getByRole("button", { name: "Submit again…" }).click();
    assert.equal((await affected(page.getByRole("dialog"))).replace(/\s+/g, " "), "Jobs 1, dead User alice Pool default");
  });
});

test("pools that take sessions show how many are open, and their memory", async () => {
  await browse(async (page) => {
    const topics = calm();
    const [pool] = topics["/v1/pools"].pools;
    await staged(page, topics);
    await page.goto(`${server.url}/pools`);
    await page.getByRole("columnheader", { name: "Device time" }).waitFor();
    assert.equal(await page.getByRole("columnheader", { name: "Open sessions" }).count(), 0, "no pool takes any");
    const sessions = { sessions_open: 2, sessions_max: 4, session_bytes: 12 * 2 ** 30, session_bytes_max: 40 * 2 ** 30 };
    topics["/v1/pools"].pools = [pool, { ...pool, ...sessions, pool: "team-a" }];
    await page.reload();
    const cells = page.getByRole("row", { name: "team-a" }).getByRole("cell");
    await page.getByRole("columnheader", { name: "Open sessions" }).waitFor();
    assert.deepEqual((await cells.allInnerTexts()).slice(-2), ["2 of 4", "12.0 of 40.0 GiB"]);
    assert.deepEqual((await page.getByRole("row", { name: "default" }).getByRole("cell").allInnerTexts()).slice(-2), ["–", "–"]);
  });
});

test("pools and workers that take host programs show how many run, and where", async () => {
  await browse(async (page) => {
    const topics = calm();
    const [pool] = topics["/v1/pools"].pools;
    const programs = { programs_running: 1, programs_waiting: 2, programs_max: 4, environments: ["science", "torch"] };
    topics["/v1/pools"].pools = [pool, { ...pool, ...programs, pool: "train" }];
    const [worker] = topics["/v1/workers"].workers;
    const [, runs] = jobs();
    worker.programs = { pools: [{ pool: "default", taken_max: 4, running: 1, waiting: 2, environments: ["science", "torch"], images: [] }] };
    worker.devices[0].pools[0].program = { job_id: runs.job_id, label: "python train.py" };
    await staged(page, topics);
    await page.goto(`${server.url}/pools`);
    await page.getByRole("columnheader", { name: "Host programs" }).waitFor();
    const last = async (name) => (await page.getByRole("row", { name }).getByRole("cell").allInnerTexts()).at(-1);
    assert.deepEqual([await last("train"), await last("default")], ["1 of 4, 2 waiting", "–"]);
    await page.goto(`${server.url}/workers`);
    await page.getByText("default 1 of 4, 2 waiting in science, torch").waitFor();
    await page.getByRole("link", { name: "python train.py" }).click();
    await page.waitForURL(`**/jobs/${runs.job_id}`);
  });
});

test("a host program shows its output while it runs, and then its end and its files", async () => {
  const train = await worker("train:programs=1", "--environment", "plain=/usr");
  // A viewer gets what is printed from then on.
  const script = "for step in $(seq 1 $STEPS); do echo step $step; sleep 0.5; done; mkdir out; echo kept > out/x; exit 3";
  const options = ["--pool", "train", "--env", "plain", "--variable", "STEPS=30", "--download", "out/**", "--detach"];
  try {
    const { code, text, errors } = await gpufleet("run", "--on-worker", ...options, "--", "sh", "-c", script);
    assert.equal(code, 0, errors);
    const id = text.trim();
    await browse(async (page) => {
      await page.goto(`${server.url}/jobs/${id}`);
      const log = page.getByRole("log", { name: "Output so far" });
      await log.getByText(/step \d+/).waitFor();
      await page.locator("dl.facts").getByRole("link", { name: "plain" }).waitFor();
      await page.locator("dl.facts").getByText("STEPS", { exact: true }).waitFor();
      await state(page, "failed").waitFor();
      await page.getByText("its program exited with 3").waitFor();
      await page.getByLabel("End of the output").getByText("step 30").waitFor();
      const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download", exact: true }).click()]);
      assert.equal(download.suggestedFilename(), "files.tar");
      assert.ok((await readFile(await download.path())).includes("kept\n"));
      await page.locator("dl.facts").getByRole("link", { name: "plain" }).click();
      await page.locator(".rows-body .row", { hasText: id.slice(-8) }).waitFor();
    });
  } finally {
    await train.stop();
  }
});

test("only jobs that succeeded have advice, and code in it is shown as code", async () => {
  const [good, , , failed] = jobs();
  await browse(async (page) => {
    const topics = calm();
    await staged(page, topics);
    await page.goto(`${server.url}/jobs/${good.job_id}`);
    await page.locator("section", { hasText: "Advice" }).locator("code", { hasText: /^gpufleet pools$/ }).waitFor();
    assert.equal(await page.getByText("`").count(), 0);
    await page.goto(`${server.url}/jobs/${failed.job_id}`);
    await page.getByText("illegal access of 4 bytes").waitFor();
    await page.waitForTimeout(300);
    assert.equal(await page.getByRole("heading", { name: "Advice" }).count(), 0, "the ledger has advice, but the job failed");
  });
});

test("filters are in the URL, and a wrong one is named", async () => {
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs`);
    const box = page.getByRole("searchbox");
    await box.fill("run=1");
    // New data draws the page again, and what is typed stays.
    await submit("--name", "meanwhile");
    await page.locator(".rows-body .row", { hasText: "meanwhile" }).waitFor();
    await box.press("Enter");
    await page.waitForURL(/label=run%3D1/);
    await page.locator(".rows-body .row", { hasText: "the-first" }).waitFor();
    await page.getByRole("checkbox", { name: "failed" }).check();
    await page.waitForURL(/state=failed/);
    await page.getByText("No jobs match these filters.").waitFor();
    await page.reload();
    assert.ok(await page.getByRole("checkbox", { name: "failed" }).isChecked());
    await page.goto(`${server.url}/jobs?since=yesterday-ish`);
    await page.getByRole("alert").filter({ hasText: "since" }).waitFor();
  });
});

test("the last tick of an attempt is inside of its card", async () => {
  const [, runs] = jobs();
  await browse(async (page) => {
    await staged(page, calm());
    await page.goto(`${server.url}/jobs/${runs.job_id}`);
    const card = await page.locator(".gantt").boundingBox();
    const last = await page.locator(".gantt-axis span").last().boundingBox();
    assert.ok(last.x + last.width <= card.x + card.width + 0.5);
  });
});

test("everything can be done with the keyboard", async () => {
  await browse(async (page) => {
    await page.goto(server.url);
    // The page hears keys once its application runs.
    await page.getByRole("heading", { level: 1 }).waitFor();
    await page.keyboard.press("g");
    await page.keyboard.press("j");
    await page.getByRole("heading", { name: "Jobs", exact: true }).waitFor();
    await page.locator(".rows-body .row").nth(1).waitFor();
    await page.keyboard.press("/");
    await until("the search box has the focus", () => page.evaluate(() => document.activeElement.type === "search"));
    await page.locator(".rows-body .row[tabindex='0']").focus();
    await page.keyboard.press("ArrowDown");
    await until("the second row has the focus", () => page.evaluate(() => document.activeElement.dataset.index === "1"));
    await page.keyboard.press("ArrowUp");
    await until("the first row has the focus", () => page.evaluate(() => document.activeElement.dataset.index === "0"));
    await page.keyboard.press("Enter");
    await page.waitForURL(/\/jobs\/[0-9a-f-]{36}/);
    await page.keyboard.press("?");
    const help = page.getByRole("dialog", { name: "Keyboard" });
    await help.waitFor();
    await page.keyboard.press("Escape");
    await help.waitFor({ state: "hidden" });
    const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
    assert.equal(await theme(), "light");
    await page.keyboard.press("t");
    await page.keyboard.press("t");
    await until("the theme is dark", async () => (await theme()) === "dark");
  });
});

test("a kept output can be looked at and downloaded", async () => {
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs/${job}`);
    await page.getByRole("button", { name: "Preview" }).click();
    await page.getByText("64 elements, from 3 to 3").waitFor();
    const [download] = await Promise.all([page.waitForEvent("download"), page.getByRole("link", { name: "Download .npy" }).click()]);
    const file = await readFile(await download.path());
    assert.equal(file.subarray(1, 6).toString(), "NUMPY");
    assert.equal(file.readFloatLE(file.length - 4), 3);
  });
});

test("the source is shown with line numbers, and the line that failed is marked", async () => {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-page-"));
  const file = join(folder, "wild.cu");
  await writeFile(file, 'extern "C" __global__ void wild(float *y) {\n    int i = threadIdx.x;\n    y[i + 4096] = 1;\n}\n');
  const { text, code } = await gpufleet("submit", "--source", file, "--entry", "wild", "--cover", "32", "--block", "32", "--zeros", "y=f32[32]", "--args", "y", "-o", "json");
  assert.notEqual(code, 0);
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs/${JSON.parse(text).job_id}`);
    const source = page.getByLabel("Source around line 3");
    await source.locator(".is-here", { hasText: "y[i + 4096] = 1;" }).waitFor();
    assert.match(await source.innerText(), /2 │ +int i = threadIdx\.x;\n3 │ +y\[i \+ 4096\] = 1;\n +│ +\^{16}\n4 │ }/);
    await page.getByText("illegal access of 4 bytes").waitFor();
    assert.equal(await source.locator("mark").count(), 1);
    assert.equal(await source.locator(".is-word", { hasText: /^__global__$/ }).count(), 1);
  });
  await rm(folder, { recursive: true });
});

test("a job that waits says why", async () => {
  await (await worker("unserved")).stop();
  const id = await submit("--pool", "unserved");
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs/${id}`);
    await page.getByText("no worker serves pool unserved").waitFor();
    await page.getByText("1 message waits in its pool, which no worker serves.").waitFor();
    await page.goto(server.url);
    const alarm = page.getByRole("region", { name: "Needs action" });
    await alarm.getByText("1 job waits in pool unserved, and no worker serves it.").waitFor();
    await alarm.getByText("gpufleet-worker run --pool unserved").waitFor();
  });
  const served = await worker("unserved");
  await served.stop();
});

test("hostile names, labels and output are text", async () => {
  const hostile = "<script>globalThis.harmed=1</script><img src=x onerror=globalThis.harmed=1>";
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-page-"));
  const file = join(folder, "printing.cu");
  await writeFile(file, `extern "C" __global__ void printing(int *y) { printf("${hostile}\\342\\200\\256\\033[31mred\\n"); y[0] = 1; }\n`);
  const id = await submitted("--source", file, "--entry", "printing", "--cover", "1", "--block", "1", "--zeros", "y=i32[1]", "--args", "y", "--name", hostile, "--label", "note=\u202e<b>evil</b>");
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs?name=${encodeURIComponent(hostile)}`);
    await page.locator(".rows-body .row", { hasText: "<script>" }).waitFor();
    await page.goto(`${server.url}/jobs/${id}`);
    await page.locator("h1", { hasText: "<script>" }).waitFor();
    await page.locator(".label", { hasText: "\\u202e<b>evil</b>" }).waitFor();
    await page.locator(".log", { hasText: `${hostile}\\u202e\ufffd[31mred` }).waitFor();
    assert.equal(await page.evaluate(() => globalThis.harmed), undefined);
    assert.equal(await page.locator("h1 img, h1 script, .label b, .log img, .log script").count(), 0);
  });
  await rm(folder, { recursive: true });
});

test("lines of 256 KiB in labels, output and failures are text, and no page grows wider than its window", async () => {
  const line = "<b>\u202e".padEnd(256 << 10, "x");
  const id = "01990f3e-0000-7000-8000-000000000001";
  const at = "2026-11-20T10:00:00Z";
  const failed = { verdict: "user", code: "compile_failed", message: line, detail: line, line: 1, source: { first_line: 1, text: line } };
  const long = {
    job_id: id, state: "failed", name: line, labels: { note: line }, pool: "default", kernel: line, created_at: at, finished_at: at,
    attempts: 1, attempt: 1, worker: line, is_unheard: false, failure: failed, user_id: line,
  };
  const attempts = [{ attempt: 1, state: "failed", superseded: false, worker: line, is_unheard: false, started_at: at, finished_at: at, failure: failed, printf_output: { text: line, dropped_bytes: 0 } }];
  const fake = await fakeApi({
    "/v1/jobs": { jobs: [long], next: null },
    [`/v1/jobs/${id}`]: { job: long, attempts, outputs: [] },
    "/v1/workers": { workers: [] },
  });
  const own = await console_(fake.url, [], { GPUFLEET_AMQP_URL: "" });
  try {
    await browse(async (page) => {
      const isWithinWindow = () => page.evaluate(() => document.documentElement.scrollWidth <= innerWidth);
      await page.goto(`${own.url}/jobs`);
      await page.locator(".rows-body .row", { hasText: "<b>\\u202e" }).waitFor();
      assert.ok(await isWithinWindow(), "the list");
      await page.goto(`${own.url}/jobs/${id}`);
      for (const log of ["Report", "Output of printf"]) {
        const shown = await page.getByLabel(log).innerText();
        assert.equal(shown.slice(0, 12), "<b>\\u202exxx");
        assert.equal(shown.length, line.length + "\\u202e".length - 1, log);
      }
      assert.ok(await isWithinWindow(), "the job's page");
      assert.equal(await page.locator("main b").count(), 0);
    });
  } finally {
    await own.stop();
    await fake.stop();
  }
});

test("a job is cancelled from its page by keyboard, and the log has a record of it", async () => {
  await (await worker("cancelled")).stop();
  const id = await mandelbrot("--pool", "cancelled");
  await browse(async (page) => {
    await page.goto(`${server.url}/jobs/${job}`);
    await state(page, "succeeded").waitFor();
    assert.equal(await page.getByRole("button", { name: "Cancel…" }).count(), 0, "a job that has ended can't be cancelled");
    await page.goto(`${server.url}/jobs/${id}`);
    await state(page, "queued").waitFor();
    await page.getByRole("button", { name: "Cancel…" }).focus();
    await page.keyboard.press("Enter");
    await page.getByRole("dialog", { name: "Cancel this job?" }).waitFor();
    await page.keyboard.press("Enter");
    await page.getByText("Cancellation requested.").waitFor();
    const served = await worker("cancelled");
    await state(page, "cancelled").waitFor();
    await served.stop();
  });
  await until("the record", () => server.log.some((line) => line.includes('action="cancel"') && line.includes(id)));
});

test("tabs of one browser share a stream, and hidden ones have none", async () => {
  await browse(async (page, context) => {
    const streams = new Set();
    context.on("request", (request) => request.url().includes("/live?") && streams.add(request));
    const done = (request) => streams.delete(request);
    context.on("requestfailed", done);
    context.on("requestfinished", done);
    await page.goto(`${server.url}/jobs`);
    await page.locator(".liveness.is-live").waitFor();
    const other = await context.newPage();
    await other.goto(`${server.url}/workers`);
    await other.locator(".liveness.is-live").waitFor();
    await other.getByText(/\d+ up/).waitFor();
    await until("one stream is left", () => streams.size === 1);
    await other.evaluate(() => {
      Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await page.evaluate(() => {
      Object.defineProperty(document, "hidden", { get: () => true, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    });
    await until("no stream is left", () => streams.size === 0);
  });
});

test("with the API away a banner shows the age of the data, and the page recovers alone", async () => {
  let passing = await api(["--listen", "127.0.0.1:0"]);
  const port = passing.port;
  const own = await console_(passing.url);
  try {
    await browse(async (page) => {
      await page.goto(`${own.url}/jobs`);
      await page.locator(".rows-body .row").first().waitFor();
      await passing.stop();
      await page.locator(".banner", { hasText: "The read API is not available" }).waitFor();
      await page.locator(".banner", { hasText: /data from \d+ s ago/ }).waitFor();
      assert.ok((await page.locator(".rows-body .row").count()) > 0, "the last data stay");
      passing = await api(["--listen", `127.0.0.1:${port}`]);
      await page.locator(".banner").waitFor({ state: "detached" });
      await page.locator(".liveness.is-live").waitFor();
    });
  } finally {
    await own.stop();
    await passing.stop();
  }
});

test("with Postgres away a banner shows the age of the data, and the page recovers alone", async () => {
  const way = await wire("GPUFLEET_DATABASE_URL");
  const reading = await api(["--listen", "127.0.0.1:0"], way.url);
  const own = await console_(reading.url);
  try {
    await browse(async (page) => {
      await page.goto(`${own.url}/jobs`);
      await page.locator(".rows-body .row").first().waitFor();
      await way.cut();
      await page.locator(".banner", { hasText: "The ledger is not available" }).waitFor();
      await page.locator(".banner", { hasText: /data from \d+ s ago/ }).waitFor();
      assert.ok((await page.locator(".rows-body .row").count()) > 0, "the last data stay");
      await way.mend();
      await page.locator(".banner").waitFor({ state: "detached" });
      await page.locator(".liveness.is-live").waitFor();
    });
  } finally {
    await own.stop();
    await reading.stop();
    await way.cut();
  }
});

test("without a broker the pages say so, and there are no actions", async () => {
  const own = await console_(ledger.url, [], { GPUFLEET_AMQP_URL: "" });
  try {
    await browse(async (page) => {
      await page.goto(`${own.url}/dead`);
      await page.getByText("the console was started without a broker").first().waitFor();
      assert.equal((await page.request.post(`${own.url}/actions/cancel`)).status(), 405);
    });
  } finally {
    await own.stop();
  }
});

test("while the broker is away there are no actions, and they return alone", async () => {
  const way = await wire("GPUFLEET_AMQP_URL");
  const own = await console_(ledger.url, ["--actions"], { GPUFLEET_AMQP_URL: way.url });
  await (await worker("parted")).stop();
  const id = await mandelbrot("--pool", "parted");
  try {
    await browse(async (page) => {
      await page.goto(`${own.url}/jobs/${id}`);
      const cancel = page.getByRole("button", { name: "Cancel…" });
      await cancel.waitFor();
      await way.cut();
      await page.getByText("No actions:").waitFor();
      assert.equal(await cancel.count(), 0);
      await state(page, "queued").waitFor();
      const refused = await page.evaluate(async (id) => {
        const body = JSON.stringify({ jobs: [id] });
        const answer = await fetch("/actions/cancel", { method: "POST", headers: { "content-type": "application/json" }, body });
        return [answer.status, (await answer.json()).type];
      }, id);
      assert.deepEqual(refused, [503, "gpufleet:broker-unavailable"]);
      await way.mend();
      await cancel.waitFor();
      await cancel.click();
      await page.getByRole("button", { name: "Cancel the job" }).click();
      await page.getByText("Cancellation requested.").waitFor();
    });
  } finally {
    await own.stop();
    await way.cut();
  }
  const served = await worker("parted");
  await until("the job is cancelled", async () => /cancelled/.test((await gpufleet("show", id)).text));
  await served.stop();
});

test("a token opens the pages, and signing out closes them", async () => {
  const folder = await mkdtemp(`${tmpdir()}/gpufleet-token-`);
  await writeFile(`${folder}/tokens`, "0123456789abcdef-of-a-test\n");
  const own = await console_(ledger.url, ["--token-file", `${folder}/tokens`]);
  try {
    await browse(async (page, context) => {
      await page.goto(`${own.url}/workers`);
      await page.getByLabel("Token").fill("wrong-token-of-a-test");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByRole("alert").waitFor();
      await page.getByLabel("Token").fill("0123456789abcdef-of-a-test");
      await page.getByRole("button", { name: "Sign in" }).click();
      await page.getByText(/\d+ up/).waitFor();
      const [cookie] = await context.cookies();
      assert.ok(cookie.httpOnly && cookie.sameSite === "Strict");
      assert.equal(await page.evaluate(() => document.cookie), "");
      await page.getByRole("button", { name: "Sign out" }).click();
      await page.getByLabel("Token").waitFor();
      // As in the address that a local fleet prints.
      await page.goto("about:blank");
      await page.goto(`${own.url}/workers#token=0123456789abcdef-of-a-test`);
      await page.getByText(/\d+ up/).waitFor();
      assert.equal(page.url(), `${own.url}/workers`);
    });
  } finally {
    await own.stop();
    await rm(folder, { recursive: true });
  }
});

// Pictures of every page, light, dark and narrow, of a fleet that has just worked: `cargo xtask console --pictures FOLDER`.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { api, browse, console_, gpufleet, mandelbrot, submit, staged, submitted, until, worker } from "./harness.mjs";
import { jobs, progressOf, troubled } from "./stage.mjs";

const folder = process.argv[2];
const BLUR = `
extern "C" __global__ void blur(const float *in, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    printf("block %d\\n", blockIdx.x);
    float sum = in[i - 1] + in[i] + in[i + 1];
    out[i] = sum / 3;
}
`;

/** Jobs of several kinds and states; the id of one that failed, and of one that succeeded. */
async function work(files) {
  const blur = join(files, "blur.cu");
  await writeFile(blur, BLUR.trimStart());
  const args = ["--entry", "blur", "--cover", "64", "--block", "32", "--fill", "in=f32[64]:1", "--zeros", "out=f32[64]", "--args", "in,out,n:i32=64"];
  for (let run = 1; run <= 6; run += 1) {
    const labels = ["--label", `run=${run}`, "--label", `team=${run % 2 ? "vision" : "physics"}`];
    await submit("--name", `scale-${run}`, ...labels);
    await submitted("reduce_sum", "--fill", "values=f32[100000]:1", "--name", `sum-${run}`, ...labels);
    await submitted("monte_carlo_pi", "--arg", "samples=200000", "--name", `pi-${run}`, "--pool", "batch", ...labels);
  }
  const failed = await submitted("--source", blur, ...args, "--name", "blur", "--label", "team=vision");
  const good = await submit("--name", "the-result", "--label", "team=vision", "--keep", "1d");
  await mandelbrot("--name", "poster", "--label", "team=vision");
  await until("the jobs have ended", async () => /failed/.test((await gpufleet("show", failed)).text) && /succeeded/.test((await gpufleet("show", good)).text));
  return { failed, good };
}

const VARIANTS = {
  light: { colorScheme: "light", viewport: { width: 1280, height: 800 } },
  dark: { colorScheme: "dark", viewport: { width: 1280, height: 800 } },
  narrow: { colorScheme: "light", viewport: { width: 420, height: 900 } },
};

/** A picture of each page in each variant. `prepare` opens a dialog, for example. */
async function shoot(url, pages, prepare = async () => {}) {
  for (const [variant, options] of Object.entries(VARIANTS)) {
    await browse(async (page) => {
      await prepare(page);
      for (const [name, [path, act]] of Object.entries(pages)) {
        await page.goto(url + path);
        await page.locator(".liveness.is-live").waitFor();
        await until("the page has loaded", async () => !(await page.locator(".skeleton").count()));
        await act?.(page);
        await page.screenshot({ path: join(folder, `${name}-${variant}.png`), fullPage: process.env.FULL_PAGE === "1" });
      }
    }, options);
  }
}

/** The pages of a fleet in which everything needs action, its dialogs, and what is shown before the data are there. */
async function shootStaged(url) {
  const [, runs, , failed] = jobs();
  const press = (name) => (page) => page.getByRole("button", { name, exact: true }).first().click();
  const showCharts = async (page) => {
    await press("Show charts")(page);
    await page.locator(".u-over").last().waitFor();
  };
  const pages = {
    action: ["/"], charts: ["/workers", showCharts], letters: ["/dead"], discard: ["/dead", press("Discard…")],
    cancel: [`/jobs/${runs.job_id}`, press("Cancel…")], failure: [`/jobs/${failed.job_id}`], keys: ["/jobs", press("Keyboard ?")],
    running: [`/jobs/${runs.job_id}`], "running-list": ["/jobs?state=running"], "running-workers": ["/workers"],
    search: ["/jobs?kernel=saxpy", (page) => page.getByRole("searchbox").fill("kernel:saxpy run=1 poster")],
  };
  const text = Array.from({ length: 200 }, (_, epoch) => `epoch ${epoch}: loss ${(3 / (epoch + 1)).toFixed(4)}\n`).join("");
  const topics = { ...troubled(), [`progress/v1/jobs/${runs.job_id}`]: progressOf(runs, { printed: { text, is_cut: false } }) };
  await shoot(url, pages, (page) => staged(page, topics));
  for (const [variant, options] of Object.entries(VARIANTS)) {
    await browse(async (page) => {
      await staged(page, {}, () => new Promise(() => {}));
      await page.goto(url);
      await page.locator(".skeleton").first().waitFor();
      await page.screenshot({ path: join(folder, `loading-${variant}.png`) });
    }, options);
  }
}

const files = await mkdtemp(join(tmpdir(), "gpufleet-pictures-"));
const ledger = await api();
const server = await console_(ledger.url, ["--actions"]);
const batch = await worker("batch");
try {
  const { failed, good } = await work(files);
  await shoot(server.url, {
    overview: ["/"], jobs: ["/jobs"], job: [`/jobs/${failed}`], result: [`/jobs/${good}`], workers: ["/workers"], pools: ["/pools"], dead: ["/dead"],
    kernels: ["/kernels"], usage: ["/usage?by=kernel"],
  });
  await shootStaged(server.url);
} finally {
  await batch.stop();
  await server.stop();
  await ledger.stop();
  await rm(files, { recursive: true });
}

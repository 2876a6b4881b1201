// Pictures of every page, light and dark, of a fleet that has just worked: `cargo xtask console --pictures FOLDER`.

import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";

import { api, browse, console_, gpufleet, mandelbrot, submit, submitted, until, worker } from "./harness.mjs";

const folder = process.argv[2];
const VIEWPORT = { width: 1280, height: 800 };
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

const files = await mkdtemp(join(tmpdir(), "gpufleet-pictures-"));
const ledger = await api();
const server = await console_(ledger.url, ["--actions"]);
const batch = await worker("batch");
try {
  const { failed, good } = await work(files);
  const pages = {
    overview: "/", jobs: "/jobs", job: `/jobs/${failed}`, result: `/jobs/${good}`, workers: "/workers", pools: "/pools", dead: "/dead",
    kernels: "/kernels", usage: "/usage?by=kernel",
  };
  for (const colorScheme of ["light", "dark"]) {
    await browse(
      async (page) => {
        for (const [name, path] of Object.entries(pages)) {
          await page.goto(server.url + path);
          await page.locator(".liveness.is-live").waitFor();
          await until("the page has loaded", async () => !(await page.getByText("Loading…").count()));
          await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
        }
      },
      { colorScheme, viewport: VIEWPORT },
    );
  }
} finally {
  await batch.stop();
  await server.stop();
  await ledger.stop();
  await rm(files, { recursive: true });
}

// Programs, a browser and jobs for the tests. `cargo xtask console` starts a private fleet and names it in the environment.

import { spawn } from "node:child_process";
import { access, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { connect, createServer as listen } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after } from "node:test";

import { chromium } from "playwright-core";

const CHROMIUM = "/usr/bin/chromium";
const FLAGS = [
  "--headless",
  "--no-sandbox",
  "--disable-gpu",
  "--disable-quic",
  "--no-first-run",
  "--disable-background-networking",
  "--disable-component-update",
  "--disable-sync",
];
/** The limit of every wait. On two busy cores a second of work can take far longer. */
export const WAIT = 60_000;

const fleet = {
  GPUFLEET_AMQP_URL: required("GPUFLEET_AMQP_URL"),
  GPUFLEET_DATABASE_URL: required("GPUFLEET_DATABASE_URL"),
  GPUFLEET_BLOBS: required("GPUFLEET_BLOBS"),
};
const programs = required("GPUFLEET_BIN_DIR");

function required(name) {
  const value = process.env[name];
  if (!value) throw new Error(`${name} is not set; run these tests with \`cargo xtask console\``);
  return value;
}

/** Programs of ours that run. A test that fails may leave some, and Node would wait for them for ever. */
const running = new Set();
after(() => running.forEach((child) => child.kill("SIGKILL")));

function start(program, args, options) {
  const child = spawn(join(programs, program), args, options);
  running.add(child);
  child.on("exit", () => running.delete(child));
  return child;
}

/** The environment without variables of another fleet. */
function environment(more) {
  const own = Object.entries(process.env).filter(([name]) => !name.startsWith("GPUFLEET_") || name.startsWith("GPUFLEET_EMULATOR"));
  return { ...Object.fromEntries(own), ...more };
}

/** A server of ours, once its log names its address. */
async function serve(program, args, more) {
  const child = start(program, args, { env: environment({ GPUFLEET_LOG: "info", ...more }), stdio: ["ignore", "ignore", "pipe"] });
  const log = [];
  const address = await new Promise((resolve, reject) => {
    createInterface({ input: child.stderr }).on("line", (line) => {
      log.push(line);
      const found = /address=([\d.:]+)/.exec(line);
      if (found) resolve(found[1]);
    });
    child.on("exit", (code) => reject(new Error(`${program} ended with ${code}: ${log.join("\n")}`)));
  });
  return {
    url: `http://${address}`,
    port: Number(address.split(":").at(-1)),
    pid: child.pid,
    log,
    signal: (name) => child.kill(name),
    stop: () =>
      new Promise((resolve) => {
        child.removeAllListeners("exit");
        child.on("exit", () => resolve(running.delete(child)));
        child.kill("SIGTERM");
      }),
  };
}

export function api(args = ["--listen", "127.0.0.1:0"], database = fleet.GPUFLEET_DATABASE_URL) {
  return serve("gpufleet-ledger", ["serve", ...args], { GPUFLEET_DATABASE_URL: database });
}

export function console_(apiUrl, args = [], more = {}) {
  const variables = { GPUFLEET_AMQP_URL: fleet.GPUFLEET_AMQP_URL, GPUFLEET_BLOBS: fleet.GPUFLEET_BLOBS, ...more };
  return serve("gpufleet-console", ["--listen", "127.0.0.1:0", "--api", apiUrl, ...args], variables);
}

/** A way to a service of the fleet that can be cut and mended: its URL, `cut` and `mend`. */
export async function wire(variable) {
  const service = new URL(fleet[variable]);
  // Postgres may be reached through a socket of the file system, which the query then names.
  service.search = "";
  const sockets = new Set();
  const track = (socket, other) => {
    sockets.add(socket);
    socket.on("error", () => other.destroy());
    socket.on("close", () => {
      sockets.delete(socket);
      other.destroy();
    });
  };
  const open = async (port) => {
    const server = listen((near) => {
      const far = connect(Number(service.port), service.hostname);
      track(near, far);
      track(far, near);
      near.pipe(far).pipe(near);
    });
    await new Promise((resolve) => server.listen(port, "127.0.0.1", resolve));
    return server;
  };
  let server = await open(0);
  const { port } = server.address();
  const url = new URL(service);
  url.port = String(port);
  const cut = async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    sockets.forEach((socket) => socket.destroy());
    await closed;
  };
  return { url: url.href, cut, mend: async () => (server = await open(port)) };
}

/** Runs the command `gpufleet`, and returns what it prints. */
export async function gpufleet(...args) {
  const child = start("gpufleet", args, { env: environment(fleet), stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  let errors = "";
  child.stdout.on("data", (data) => (text += data));
  child.stderr.on("data", (data) => (errors += data));
  const code = await new Promise((resolve) => child.on("close", resolve));
  return { code, text, errors };
}

/** A submitted job; its id. */
export async function submitted(...args) {
  const { code, text, errors } = await gpufleet("submit", "--detach", ...args);
  if (code !== 0) throw new Error(errors);
  return text.trim().split(/\s+/)[0];
}

const WAITING = `
extern "C" __global__ void waits(unsigned *x, unsigned long long nanoseconds) {
    unsigned long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    do asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)); while (now - begin < nanoseconds);
    x[0] = 1;
}`;

/** A job that runs for this time; its id. */
export async function waiting(seconds, ...args) {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-source-"));
  const source = join(folder, "waits.cu");
  await writeFile(source, WAITING);
  const form = ["--source", source, "--entry", "waits", "--grid", "1", "--block", "1", "--zeros", "x=u32[1]"];
  try {
    return await submitted(...form, "--args", `x,nanoseconds:u64=${seconds * 1e9}`, ...args);
  } finally {
    await rm(folder, { recursive: true });
  }
}

/** A job of some work; its id. */
export function mandelbrot(...args) {
  return submitted("mandelbrot", "--arg", "max_iterations=8000", ...args);
}

/** A worker that serves a pool, once it is ready. */
export async function worker(pool, ...more) {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-worker-"));
  const ready = join(folder, "ready");
  const [name] = pool.split(":");
  const args = ["run", "--name", `worker-of-${name}`, "--pool", pool, "--cuda", "emulated", "--ready-file", ready, ...more];
  const variables = { ...fleet, GPUFLEET_CACHE_DIR: join(folder, "modules") };
  const child = start("gpufleet-worker", args, { env: environment(variables), stdio: "ignore" });
  const ended = new Promise((resolve) => child.on("exit", resolve));
  await until("the worker is ready", () => access(ready).then(() => true, () => false));
  return {
    stop: async () => {
      child.kill("SIGTERM");
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** A saxpy that was submitted; its id. */
export function submit(...args) {
  return submitted("saxpy", "--arg", "a=2.0", "--fill", "x=f32[64]:1", "--fill", "y=f32[64]:1", ...args);
}

/** A browser of its own, which ends with the callback. */
export async function browse(work, options = {}) {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-browser-"));
  const context = await chromium.launchPersistentContext(folder, {
    executablePath: CHROMIUM,
    args: FLAGS,
    headless: true,
    viewport: { width: 1280, height: 800 },
    ...options,
  });
  context.setDefaultTimeout(WAIT);
  const problems = [];
  const listen = (page) => {
    page.on("pageerror", (error) => problems.push(String(error)));
    page.on("console", (message) => {
      const text = message.text();
      // A refused request is the subject of some tests.
      if (message.type() === "error" && !text.startsWith("Failed to load resource")) problems.push(text);
    });
  };
  context.pages().forEach(listen);
  context.on("page", listen);
  try {
    return await work(context.pages()[0] ?? (await context.newPage()), context, problems);
  } finally {
    await context.close();
    await rm(folder, { recursive: true, force: true, maxRetries: 5 });
  }
}

/**
 * Shows a page these bodies by topic, in the place of the stream and of the read API: `broker`, or a path without its query. What is not
 * there stays unknown. A change of the object reaches the page with its next reload; that of a topic of progress, with the next beat. Each
 * body waits for `ready()`. A body may be a function of the topic.
 */
export async function staged(page, topics, ready = async () => {}) {
  const bodyOf = (topic) => {
    const body = topics[topic.split("?")[0]];
    return typeof body === "function" ? body(topic) : body;
  };
  await page.exposeFunction("stagedBody", async (topic) => {
    await ready();
    return bodyOf(topic);
  });
  await page.addInitScript(() => {
    globalThis.EventSource = class {
      static CLOSED = 2;
      readyState = 1;
      listeners = {};
      constructor(url) {
        const names = new URL(url, location.href).searchParams.getAll("topic");
        const beat = () => this.listeners.beat({ data: JSON.stringify({ now_ms: Date.now(), at_ms: names.map(() => Date.now()) }) });
        const show = async (topic) => {
          const body = await globalThis.stagedBody(topic);
          if (body) this.listeners.snapshot({ data: JSON.stringify({ topic, at_ms: Date.now(), problem: null, body }) });
        };
        setTimeout(() => {
          this.onopen();
          beat();
          names.forEach(show);
        });
        this.beats = setInterval(() => {
          beat();
          names.filter((topic) => topic.startsWith("progress")).forEach(show);
        }, 1000);
      }
      addEventListener(kind, listener) {
        this.listeners[kind] = listener;
      }
      close() {
        clearInterval(this.beats);
      }
    };
  });
  await page.route(/\/api\/(v1\/|dead$)/, async (route) => {
    const { pathname, search } = new URL(route.request().url());
    await ready();
    const body = bodyOf(pathname.replace("/api", "") + search);
    const missing = { type: "gpufleet:unknown-job", title: "No such job", status: 404, detail: "the ledger has no such job", next: "" };
    await route.fulfill({ status: body ? 200 : 404, json: body ?? missing });
  });
}

/** A read API that answers with these bodies by path. Counts what is asked. */
export async function fakeApi(answers) {
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url);
    const path = request.url.split("?")[0];
    const answer = answers[path];
    const body = typeof answer === "function" ? answer(request.url) : answer;
    response.writeHead(body === undefined ? 404 : 200, { "content-type": "application/json" });
    response.end(JSON.stringify(body ?? { type: "gpufleet:not-found", title: "x", status: 404, detail: "x", next: "x" }));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, asked, stop: () => new Promise((resolve) => server.close(resolve)) };
}

export async function until(what, condition) {
  const deadline = Date.now() + WAIT;
  while (Date.now() < deadline) {
    const value = await condition();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${what} did not happen within ${WAIT / 1000} s`);
}

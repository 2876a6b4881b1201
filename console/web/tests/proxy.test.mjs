// Through a real nginx: the viewer's name comes from the proxy alone, and events arrive at once.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";

import { api, browse, console_, gpufleet, mandelbrot, until, worker } from "./harness.mjs";

async function freePort() {
  const server = createServer();
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address();
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function nginx(upstream) {
  const folder = await mkdtemp(join(tmpdir(), "gpufleet-nginx-"));
  const port = await freePort();
  await mkdir(join(folder, "tmp"));
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((name) => `${name}_temp_path ${folder}/tmp/${name};`);
  const text = `
    daemon off; pid ${folder}/pid; error_log ${folder}/error.log;
    events {}
    http {
      access_log off; ${paths.join(" ")}
      server {
        listen 127.0.0.1:${port};
        location / {
          proxy_pass ${upstream};
          proxy_set_header Host $http_host;
          proxy_set_header X-User ann;
          proxy_http_version 1.1;
          proxy_read_timeout 1h;
        }
      }
    }`;
  await writeFile(join(folder, "nginx.conf"), text);
  const child = spawn("/usr/sbin/nginx", ["-p", folder, "-c", "nginx.conf", "-e", join(folder, "error.log")], { stdio: "ignore" });
  const url = `http://127.0.0.1:${port}`;
  await until("nginx serves", () => fetch(`${url}/api/me`).then(() => true, () => false));
  return {
    url,
    stop: async () => {
      const ended = new Promise((resolve) => child.on("exit", resolve));
      child.kill("SIGTERM");
      await ended;
      await rm(folder, { recursive: true, force: true });
    },
  };
}

test("nginx names the viewer, and events pass it at once", async () => {
  const ledger = await api();
  const server = await console_(ledger.url, ["--user-header", "X-User", "--trusted-proxy", "127.0.0.1/32"]);
  const proxy = await nginx(server.url);
  try {
    const me = await (await fetch(`${proxy.url}/api/me`, { headers: { "X-User": "mallory" } })).json();
    assert.equal(me.viewer, "ann", "what the browser sends does not count");
    const untrusted = await console_(ledger.url, ["--user-header", "X-User", "--trusted-proxy", "10.9.9.9/32"]);
    assert.equal((await fetch(`${untrusted.url}/api/me`, { headers: { "X-User": "mallory" } })).status, 401);
    await untrusted.stop();
    await browse(async (page) => {
      await page.goto(`${proxy.url}/workers`);
      await page.locator(".liveness.is-live").waitFor();
      // A proxy that collects events would deliver none of these few bytes.
      const beats = await page.evaluate(
        () =>
          new Promise((resolve) => {
            const source = new EventSource("/live?topic=broker");
            let count = 0;
            source.addEventListener("beat", () => {
              count += 1;
              if (count === 3) {
                source.close();
                resolve(count);
              }
            });
          }),
      );
      assert.equal(beats, 3);
    });
  } finally {
    await proxy.stop();
    await server.stop();
    await ledger.stop();
  }
});

test("an action through nginx is recorded under the name that nginx gave", async () => {
  const ledger = await api();
  const named = ["--user-header", "X-User", "--trusted-proxy", "127.0.0.1/32", "--actions"];
  const server = await console_(ledger.url, named);
  const proxy = await nginx(server.url);
  await (await worker("proxied")).stop();
  const id = await mandelbrot("--pool", "proxied");
  try {
    await browse(async (page) => {
      await page.goto(`${proxy.url}/jobs/${id}`);
      await page.getByRole("button", { name: "Cancel…" }).click();
      await page.getByRole("button", { name: "Cancel the job" }).click();
      await page.getByText("Cancellation requested.").waitFor();
    });
    const served = await worker("proxied");
    await until("the job is cancelled", async () => /cancelled/.test((await gpufleet("show", id)).text));
    await served.stop();
    await until("the record", () => server.log.some((line) => line.includes('action="cancel"') && line.includes(id) && line.includes("ann")));
  } finally {
    await proxy.stop();
    await server.stop();
    await ledger.stop();
  }
});

// Bodies of the read API and the broker for `staged`: a fleet of two hours in which everything that can need action does.

export const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();
export const times = (us) => ({ p50_us: us, p95_us: us * 3, p99_us: us * 5, max_us: us * 9 });

/** Numbers of jobs that ended, of which two of five succeeded. */
export const ended = (jobs) => ({
  value: "saxpy", jobs, succeeded: Math.ceil(jobs * 0.4), failed: Math.floor(jobs * 0.6), cancelled: 0, expired: 0, dead: 0, attempts_lost: 1, attempts_superseded: 0,
  device_us: jobs * 4e6, queue_us: jobs * 9e5, input_bytes: jobs << 20, output_bytes: jobs << 18, queue: times(9e5), total: times(4e6), kernel: times(3e6),
  verdict_user: Math.floor(jobs * 0.4), verdict_timeout: Math.floor(jobs * 0.2), verdict_out_of_memory: 0, verdict_device: 0, verdict_infrastructure: 0,
});

const SOURCE = "extern \"C\" __global__ void wild(float *y) {\n    // No thread has this element.\n    y[4096] = 1.0f;\n}\n";
export const FAILURE = {
  verdict: "user", code: "kernel_fault", message: "illegal access of 4 bytes", line: 3, source: { first_line: 1, text: SOURCE },
};

export function jobOf(number, more = {}) {
  return {
    job_id: `01990f3e-0000-7000-8000-${String(number).padStart(12, "0")}`, state: "succeeded", name: `run-${number}`, labels: { run: String(number) },
    pool: "default", priority: "normal", kernel: "saxpy", program: "catalog", user_id: "alice", created_at: ago(200), submitted_at: ago(200),
    started_at: ago(190), finished_at: ago(180), attempts: 1, attempt: 1, worker: "gpu-1", is_unheard: false, queue_us: 2e6, total_us: 8e6, ...more,
  };
}

const attemptOf = (job, more = {}) => ({
  attempt: 1, state: job.state, superseded: false, worker: job.worker, is_unheard: false, started_at: job.started_at, finished_at: job.finished_at, ...more,
});
export const detailOf = (job, more) => ({ job, attempts: job.state === "queued" ? [] : [attemptOf(job, more)], outputs: [] });

/** How far a running job is, as its topic says. */
export const progressOf = (job, more = {}) => ({
  problem: null,
  jobs: {
    [job.job_id]: {
      attempt: 1, started_ms: Date.parse(job.started_at), stage: "running", count: { done: 312, total: 1000 }, unit: "launches", left_ms: 286_700, printed: null, ...more,
    },
  },
});

function workerOf(name, more = {}, device = {}) {
  const pool = { pool: "default", jobs_running: 1, memory_bytes: 1 << 28, weight: 1 };
  return {
    worker: name, host: `${name}.example.org`, pid: 4711, revision: "c1bb8217", state: "up", pools: ["default"], jobs_running: 2, has_left: false,
    is_silent: false, first_seen_at: ago(7200), last_seen_at: ago(2), heard_at: ago(2),
    devices: [{
      device: 0, name: "NVIDIA H200", uuid: "GPU-1", emulated: false, compute_capability: [9, 0], driver_version: 12080, memory_bytes: 141 * 2 ** 30,
      memory_used_bytes: 12 * 2 ** 30, utilization_percent: 64, utilization_by: "nvml", temperature_celsius: 51, power_milliwatts: 340_000, jobs_running: 2,
      pools: [pool], ...device,
    }],
    ...more,
  };
}

/** A fleet without trouble. */
export function calm() {
  const [good, runs, waits, failed] = jobs();
  const statistics = { rows: [ended(60)], rows_left_out: 0, since: ago(86_400) };
  const windows = [["15m", 10], ["1h", 40], ["24h", 60]].map(([window, jobs]) => ({ window, since: ago(900), jobs_per_second: jobs / 900, statistics: ended(jobs) }));
  const points = Array.from({ length: 24 }, (_, index) => ({ ...ended(1 + (index % 4)), at: ago(7200 - index * 300) }));
  const samples = Array.from({ length: 120 }, (_, index) => ({
    at: ago(7200 - index * 60), declared_bytes: (20 + (index % 5)) * 2 ** 30, memory_used_bytes: (24 + (index % 7)) * 2 ** 30, utilization_percent: 50 + (index % 40),
    temperature_celsius: 48 + (index % 6),
  }));
  return {
    broker: { state: "up", reason: null, pools: [{ pool: "default", messages: 3, consumers: 2 }], dead: 0 },
    "/v1/overview": {
      at: ago(0), windows, recorder: { caught_up_at: ago(2), behind_seconds: 2 },
      unfinished: [{ state: "queued", pool: "default", jobs: 3, is_at_least: false }, { state: "running", pool: "default", jobs: 2, is_at_least: false }],
    },
    "/v1/workers": { workers: [workerOf("gpu-1")] },
    "/v1/statistics": statistics,
    "/v1/statistics/series": { grain: "five_minutes", points },
    "/v1/samples": { bucket_seconds: 60, points: samples },
    "/v1/labels": { keys: ["run"] },
    "/v1/pools": { pools: [{ pool: "default", borrowed_bytes: 0, guaranteed_bytes: 0, charged_us: 1e6, device_us: 1e6, due_percent: 100, got_percent: 100, jobs_running: 2, memory_bytes: 1 << 30, session_bytes: 0, session_bytes_max: 0, sessions_max: 0, sessions_open: 0, workers: 1 }] },
    "/v1/jobs": (topic) => ({ jobs: topic.includes("state=failed") ? [failed] : topic.includes("state=running") ? [runs] : [good, runs, waits, failed], next: null }),
    "progress/v1/jobs": progressOf(runs),
    [`progress/v1/jobs/${runs.job_id}`]: progressOf(runs),
    [`/v1/jobs/${runs.job_id}/neighbours`]: { neighbours: [] },
    [`/v1/jobs/${waits.job_id}/why`]: { job_id: waits.job_id, state: "queued", reasons: [{ reason: "jobs_ahead", text: "3 jobs are ahead of it" }] },
    ...Object.fromEntries([good, runs, waits, failed].map((job) => [`/v1/jobs/${job.job_id}`, detailOf(job, { failure: job.failure })])),
    ...Object.fromEntries([good, failed].map((job) => [`/v1/jobs/${job.job_id}/report`, { advice: [`it waited for 60 % of its life; \`gpufleet pools\` shows how busy its pool is`], stages: [] }])),
    "/dead": { letters: [], unseen: 0, has_other_consumers: false },
  };
}

/** One that succeeded, one that runs, one that waits, and one that failed. */
export function jobs() {
  const open = { finished_at: null, queue_us: null, total_us: null };
  return [
    jobOf(1), jobOf(2, { ...open, state: "running", started_at: ago(130) }), jobOf(3, { ...open, state: "queued", started_at: null, worker: null, attempts: 0 }),
    jobOf(4, { state: "failed", kernel: "wild", program: "source", failure: FAILURE }),
  ];
}

/** Everything needs action. */
export function troubled() {
  const topics = calm();
  const reason = "the CUDA context was lost: CUDA_ERROR_UNKNOWN (999); then the probe kernel failed";
  topics["/v1/workers"].workers.push(
    workerOf("gpu-2", {}, { out_of_service: reason, jobs_running: 0, utilization_percent: 0 }),
    workerOf("gpu-3", { state: "silent", is_silent: true, heard_at: ago(260) }),
  );
  topics.broker.pools.push({ pool: "night", messages: 2, consumers: 0 });
  topics.broker.dead = 3;
  topics["/v1/overview"].unfinished.push({ state: "queued", pool: "night", jobs: 5, is_at_least: false });
  const letterOf = (number, user, count) => ({
    key: String(number), id: jobOf(number).job_id, jobs: Array.from({ length: count }, (_, index) => jobOf(number + index).job_id), user, kind: null,
    reason: "the job lost 5 executors", origin: number === 30 ? "gpufleet.v1.tasks.night.low" : "default.normal", bytes: 2048, is_cut: false,
    timestamp: Math.floor(Date.now() / 1000) - 4000,
  });
  const running = (number, more) => ({ job_id: jobOf(number).job_id, name: `run-${number}`, pool: "default", kernel: "saxpy", running_us: number * 61e6, ...more });
  topics[`/v1/jobs/${jobs()[1].job_id}/neighbours`] = { neighbours: [running(5), running(6, { name: null })] };
  topics["/dead"].letters = [letterOf(10, "alice", 1), letterOf(20, "alice", 3), letterOf(30, "bob", 1)];
  return topics;
}

//! The shapes of `-o json`, which `--help` shows. Scripts rely on the field names: later versions only add fields.

/// What `gpufleet submit -o json` prints, also when the job fails.
pub const SUBMIT: &str = "\
JSON: one object, also for a failed job. Unknown values are null. Later versions only add fields.
  job_id         the id, for `gpufleet show`
  state          succeeded, failed, cancelled, expired or dead; null if the command did not wait
  attempt        number of the attempt that ended the job, from 1; numbers may be missing
  ran_on         worker, device, device_name, emulated
  timings        queue_us, wait_us, fetch_us, compile_us, load_us, copy_in_us, launches_us
                 (a list), copy_out_us, total_us, device_bytes_peak, module_cached
  round_trip_us  time from submission to reply, by this machine's clock
  outputs        a list of name, dtype, shape, file
  failure        verdict (user, timeout, out_of_memory, device, infrastructure), code, message,
                 detail (such as a compile log), line (of the program), source (the lines around it:
                 first_line, text)
  printf_output  of the kernels: text (the first 64 KiB), dropped_bytes (bytes after those)";

/// What `gpufleet submit` and `gpufleet wait` print before their JSON with `--follow -o json`.
pub const FOLLOW: &str = "\
With --follow: JSON Lines. The last line is the JSON above. Each line before it is an object with
the field progress, which is an object of
  job_id, attempt, sequence (number of the update in the attempt, from 0; some may be missing)
  at, started_at (of the attempt): RFC 3339, in UTC, by the worker's clock
  stage     fetching (its inputs), running (its kernels) or storing (its outputs)
  launches, counter, bytes (in the stages fetching and storing): each done, total
  printed   text that is new since the update before, and its offset: the bytes printed before it";

/// What `gpufleet submit --dry-run -o json` prints.
pub const DRY_RUN: &str = "\
JSON with --dry-run: one object. Later versions only add fields.
  job_id, pool, priority
  arrays        a list of name, bytes, source (message, blob_store, or device if it is filled there)
  output_bytes  size of the outputs
  task          the task; null stands for the bytes of arrays and of a cubin";

/// What `gpufleet map -o json` prints.
pub const MAP: &str = "\
JSON: one object. Later versions only add fields.
  file             path of the written file, as given
  rows, batches    how many there are
  resumed_batches  batches of earlier runs that were killed or interrupted";

/// What `gpufleet run --report FILE` writes.
pub const RUN_REPORT: &str = "\
JSON of --report: one object, also if the command did not start. Unknown values are null. Later
versions only add fields.
  exit      the exit code of gpufleet run; reason: why it is not that of the command
  command   exit_code, signal (one of them is null); null if the command did not start
  sessions  a list of the sessions that were open: job_id, outcome (of the job), failure_code,
            reason (of its end), ended_early (before the command), ran_on (worker, device,
            device_name, emulated), memory_bytes, used
  used      of all sessions together: processes (that used the device), calls, waits (calls that
            the program waited for), sent_bytes, received_bytes, busy_us (of the device),
            memory_bytes (of the lease), memory_bytes_peak
  program   of --on-worker, else null: job_id, ran_on (null if no device ran it), folder and files
            (what came back)";

/// What `gpufleet history -o json` prints.
pub const HISTORY: &str = "\
JSON: a list of objects. Unknown values are null. Later versions only add fields.
  job_id, state, name, labels (an object), pool, priority, program, kernel, client, user_id
  created_at, submitted_at, started_at, finished_at: RFC 3339, in UTC
  attempts: the number of recorded attempts
  attempt: the attempt that decided the outcome, else the latest. These fields describe it:
  worker, is_unheard (recorded as running, but its worker is silent or has left), device,
  device_name, emulated, input_bytes, lease_bytes (that a session asks for), output_bytes, queue_us,
  kernel_us, total_us, failure (verdict, code, message, line; `gpufleet show` adds detail and
  source)
  host_program: of a host program, else null: command (a list), is_cut (its end is missing),
  environment or image, network (whether it asks for it), variables (their names)
CSV: most of these fields under the same names; labels as KEY=VALUE, failure as its message.";

/// What `gpufleet show -o json` prints.
pub const SHOW: &str = "\
JSON: one object. Unknown values are null. Later versions only add fields.
  job       as in `gpufleet history -o json`, with host_program (of a host program, else null):
            command (a list), is_cut (its end is missing), environment or image, network (whether
            it asks for it), variables (their names)
  attempts  a list, oldest first: attempt (the number; some may be missing), state (running,
            succeeded, failed, cancelled, expired, dead or lost), superseded (another attempt
            decided the outcome), worker, is_unheard, device, device_name, emulated, started_at,
            finished_at, failure, retry_at, output_bytes, charged_us, timings and printf_output
            (as in `gpufleet submit -o json`), session (of a session that was open: processes,
            calls, waits (calls that the program waited for), sent_bytes and received_bytes (as the
            program sees them), busy_us (of the device), memory_bytes (of the lease),
            memory_bytes_peak, and exit_code or signal)
  outputs   kept outputs: name, dtype, shape, digest (null if the ledger has the bytes),
            expires_at, is_expired";

/// What `gpufleet fetch -o json` prints.
pub const FETCH: &str = "\
JSON: a list of objects. Later versions only add fields.
  name, dtype, shape (a list, slowest dimension first), file";

/// What `gpufleet wait -o json` prints.
pub const WAIT: &str = "\
JSON: a list of objects, one for each job that has ended, as in `gpufleet history -o json`.";

/// What `gpufleet workers -o json` prints.
pub const WORKERS: &str = "\
JSON: a list of objects. Unknown values are null. Later versions only add fields.
  state (up, silent or left), worker, host, pid, revision, pools (a list), jobs_running,
  first_seen_at, last_seen_at (on the worker's clock), heard_at (on the database's clock),
  is_silent: heartbeats are missing; has_left: the worker announced that it leaves
  devices: a list of device (the number), uuid, name, emulated, compute_capability,
  memory_bytes, driver_version, out_of_service (the reason, or null while in service),
  jobs_running, pools (a list of pool, jobs_running, memory_bytes: requested by these jobs and
  taken by sessions, weight: share of the device time, guaranteed_bytes, and if the pool takes
  sessions: open, memory_bytes (leases, and overhead_bytes for each), memory_bytes_max),
  memory_used_bytes (by all processes, from NVML), temperature_celsius, power_milliwatts,
  utilization_percent, utilization_by: nvml (kernels of all processes, in the last second) or
  worker (jobs of this worker, since its last heartbeat)
  sessions: hosts and ports (first and last, or 0) of open sessions, pools (a list of pool,
  open_max); null if the worker takes none
  programs: pools that take host programs (a list of pool, taken_max, running, waiting (for a
  device), environments, images); null if the worker takes none. A device's pool that has a host
  program there has program: job_id, label (its command)";

/// What `gpufleet stats -o json` and `gpufleet usage -o json` print.
pub const STATS: &str = "\
JSON: one object. Unknown values are null. Later versions only add fields.
  since  the beginning of the first hour or day: RFC 3339, in UTC
  rows   a list, the one with the most device time first: value (empty for jobs without one, and
         for the row of all jobs), jobs (that ended), succeeded, failed, cancelled, expired, dead,
         verdict_user, verdict_timeout, verdict_out_of_memory, verdict_device,
         verdict_infrastructure, attempts_lost, attempts_superseded, device_us (of all attempts
         but the lost ones), charged_us (the same with the wait for memory and for the blob store
         in a slot), queue_us, input_bytes, output_bytes (of outcomes), and the times of queue
         (from submission to the start on the device), compile, copy, kernel and total (on the
         device): each p50_us, p95_us, p99_us, max_us. Sessions count only in device_us and
         charged_us, with the time in which the device worked for them";

/// What `gpufleet report -o json` prints.
pub const REPORT: &str = "\
JSON: one object. Unknown values are null. Later versions only add fields.
  job_id, state
  attempt            the attempt that decided the outcome; attempts: how many are recorded
  elapsed_us         from submission to the end
  stages             a list of stage (queue, compile, wait, fetch, load, copy, kernel, other), us,
                     percent
  device_bytes_peak  device memory; device_bytes: the memory of the device
  advice             a list of texts";

/// What `gpufleet actions -o json` prints.
pub const ACTIONS: &str = "\
JSON: a list of objects. Unknown values are null. Later versions only add fields.
  action_id, at (RFC 3339, in UTC), who (the person), action (cancel, replay, drop), target (such
  as the id of a job), from (where the person came from), reported_by (the broker's user of the
  program that acted)";

/// What `gpufleet pools -o json` prints.
pub const POOLS: &str = "\
JSON: a list of objects. Unknown values are null. Later versions only add fields.
  pool, messages (in its queues), consumers (subscriptions to them; a worker may have several),
  workers (that send heartbeats), jobs_running, memory_bytes (declared by these jobs, and taken by
  sessions), guaranteed_bytes, borrowed_bytes (beyond what is guaranteed)
  sessions_open, sessions_max (that may be open; 0 if no worker takes sessions), session_bytes
  (device memory that they take), session_bytes_max (that they may take)
  programs_running, programs_waiting (host programs of its workers, with and without a device),
  programs_max (that its workers take; 0 if none runs host programs), environments (a list, with
  the images)
  due_percent: share of the device time by weight; got_percent: of the time that all pools were
  charged; device_us, charged_us (with the wait for memory and for the blob store in a slot)";

/// What `gpufleet why -o json` prints.
pub const WHY: &str = "\
JSON: one object. Later versions only add fields, and reasons.
  job_id, state
  reasons  a list, the most likely one first; empty if the job does not wait. Each has text and
           reason: no_consumer, over_share, memory, jobs_ahead, busy_worker, retry_due,
           ledger_and_broker_disagree, or, if the broker was not asked, ask_broker; for a session
           no_consumer, no_sessions (the pool takes none), lease_too_large (for each device),
           sessions_open (as many as may be), memory, or lease (no obstacle is known); for a host
           program no_consumer, no_programs (the pool runs none), no_environment (no worker has it),
           retry_due, devices_in_use, or device (no obstacle is known)";

/// What `gpufleet doctor -o json` prints.
pub const DOCTOR: &str = "\
JSON: one object. Later versions only add fields, and checks.
  errors, warnings, skipped  how many findings have this status
  checks  a list of check (its name), status (ok, warning, error or skipped), found, and fix (what
          to do next, or null)";

/// What `gpufleet dead list -o json` prints.
pub const DEAD_LIST: &str = "\
JSON: a list of objects. Unknown values are null. Later versions only add fields.
  jobs          a list of the ids of its jobs; empty if the body can't be read
  message_id    id of the message
  reason        why the message was dead-lettered
  origin        routing key or queue of the original message
  user          user of its jobs, to whom new jobs of a replay belong
  type          AMQP type: gpufleet.task or gpufleet.events
  bytes         size of the body
  kept_bytes    bytes of the body that were kept; less than bytes if the body was too long
  submitted_at  RFC 3339, in UTC";

/// What `gpufleet dead show -o json` prints.
pub const DEAD_SHOW: &str = "\
JSON: one object with the fields of `gpufleet dead list -o json`, and
  body  a list of the tasks; null if the body can't be read or exceeds 64 KiB";

/// What `gpufleet blobs put -o json` prints.
pub const BLOBS_PUT: &str = "\
JSON: a list of objects, in the order of the files. Later versions only add fields.
  file    path as given
  digest  for tasks: \"data\": { \"blob\": \"blake3:...\" }
  dtype, shape (a list of extents, slowest first)
  bytes   size of the array";

/// What `gpufleet blobs ls -o json` prints.
pub const BLOBS_LS: &str = "\
JSON: a list of objects, the latest first. Later versions only add fields.
  digest, bytes (the size)
  stored_at  when it was last stored, by the store's clock: RFC 3339, in UTC
  used_by    a list of the jobs that use it; null if there is no ledger to ask. Each has job_id,
             output (the kept output; null if the blob is an input of the job) and until (when
             the output expires)";

/// Checks that the text has every field of the value.
#[cfg(test)]
pub fn check(help: &str, value: &impl serde::Serialize) {
    fn names(value: &serde_json::Value, found: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                for (name, value) in fields {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    names(&serde_json::to_value(value).unwrap(), &mut found);
    let words: Vec<&str> = help.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    let missing: Vec<String> = found.into_iter().filter(|name| !words.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?} are not in the help");
}

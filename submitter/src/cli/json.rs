//! The shapes of `-o json`, which `--help` shows. Scripts rely on the names: fields are added, never renamed or
//! removed.

/// What `gpufleet submit -o json` prints, also when the job fails.
pub const SUBMIT: &str = "\
JSON: one object, also when the job fails. Unknown values are null. Fields may be added; none is
removed.
  job_id         the id, for `gpufleet show`
  state          succeeded, failed, cancelled, expired or dead; null: the command did not wait
  attempt        the number of the attempt that ended the job, from 1; there may be gaps
  ran_on         worker, device, device_name, emulated
  timings        queue_us, wait_us, fetch_us, compile_us, load_us, copy_in_us, launches_us
                 (a list), copy_out_us, total_us, device_bytes_peak, module_cached
  round_trip_us  from submitting to the reply, on this machine's clock
  outputs        a list of name, dtype, shape, file
  failure        verdict (user, timeout, out_of_memory, device, infrastructure), code, message,
                 detail (a log), line (of the program)
  printf_output  printf output of the kernels: text (the first 64 KiB), dropped_bytes (after it)";

/// What `gpufleet history -o json` prints.
pub const HISTORY: &str = "\
JSON: a list of objects. Unknown values are null. Fields may be added; none is removed.
  job_id, state, name, labels (an object), pool, priority, program, kernel, client, user_id
  created_at, submitted_at, started_at, finished_at: RFC 3339, in UTC
  attempts: how many are recorded
  attempt: the one that decided the outcome, or the latest. These fields describe it:
  worker, is_unheard (recorded as running, but its worker is silent or has left), device,
  device_name, emulated, input_bytes, output_bytes, queue_us, kernel_us, total_us, failure (verdict,
  code, message, line; its detail is in `gpufleet show`)
CSV: most of these, under the same names; labels as KEY=VALUE, failure as its message.";

/// What `gpufleet show -o json` prints.
pub const SHOW: &str = "\
JSON: one object. Unknown values are null. Fields may be added; none is removed.
  job       as in `gpufleet history -o json`
  attempts  a list, the first one first: attempt (its number; there may be gaps), state (running,
            succeeded, failed, cancelled, expired, dead or lost), superseded, worker, is_unheard, device, device_name, emulated, started_at,
            finished_at, failure, retry_at, output_bytes, timings and printf_output (as in
            `gpufleet submit -o json`)";

/// What `gpufleet workers -o json` prints.
pub const WORKERS: &str = "\
JSON: a list of objects. Unknown values are null. Fields may be added; none is removed.
  state (up, silent or left), worker, host, pid, revision, pools (a list), jobs_running,
  first_seen_at, last_seen_at (on the worker's clock), heard_at (on the database's clock),
  is_silent: heartbeats are missing; has_left: the worker announced that it leaves
  devices: a list of device (its number), uuid, name, emulated, compute_capability,
  memory_bytes, driver_version, out_of_service (the reason, or null while in service),
  jobs_running, pools (a list of pool, jobs_running, memory_bytes: requested by its jobs),
  memory_used_bytes (by all processes, from NVML), temperature_celsius, power_milliwatts,
  utilization_percent, utilization_by: nvml (kernels of all processes, in the last second) or
  worker (jobs of this worker, since its last heartbeat)";

/// What `gpufleet dead list -o json` prints.
pub const DEAD_LIST: &str = "\
JSON: a list of objects. Unknown values are null. Fields may be added; none is removed.
  jobs          ids of the jobs in the message, a list; empty if the body can't be read
  message_id    id of the message itself
  reason        why the message was dead-lettered
  origin        routing key or queue that the message came from
  type          AMQP type: gpufleet.task or gpufleet.events
  bytes         size of the body
  kept_bytes    the same, or less: only the beginning of a body that was too long is kept
  submitted_at  RFC 3339, in UTC";

/// What `gpufleet dead show -o json` prints.
pub const DEAD_SHOW: &str = "\
JSON: one object, as in `gpufleet dead list -o json`, and
  body  a list of the tasks; null if the body can't be read or is longer than 64 KiB";

/// What `gpufleet blobs put -o json` prints.
pub const BLOBS_PUT: &str = "\
JSON: a list of objects, in the order of the files. Fields may be added; none is removed.
  file    as given
  digest  for tasks: \"data\": { \"blob\": \"sha256:...\" }
  dtype, shape (a list of extents, slowest first)
  bytes   size of the array";

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

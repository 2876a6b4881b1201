//! What workers, pools, metrics, history, usage and the doctor say of host programs.

use gpufleet_ledger::WorkerRow;
use gpufleet_tests::METRICS;
use serde_json::Value;

use super::*;

/// Runs until a file appears in the environment.
const UNTIL_GO: &str = "echo begun; until test -e \"$VIRTUAL_ENV/go\"; do sleep 0.1; done; exit 3";
/// The labels of the only pool and device.
const POOL: [(&str, &str); 1] = [("pool", "gpu")];

impl Scene {
    /// Starts a fleet whose worker serves metrics and takes two programs.
    async fn measured(label: &str) -> Self {
        let ground = Ground::shared(label).await;
        let environment = environment();
        let plain = plain(&environment);
        let words = [&METRICS[..], &arguments("gpu:programs=2", &plain)].concat();
        let worker = ground.worker_with(&words).await;
        Self { ground, worker, environment }
    }

    async fn json(&self, arguments: &[&str]) -> Value {
        self.gpufleet(folder().path(), &[arguments, &["-o", "json"]].concat()).await.json()
    }

    async fn poll_heartbeat(&self, what: &str, like: impl FnMut(&WorkerRow) -> bool) {
        self.ground.poll_worker(what, self.worker.name(), like).await;
    }
}

/// Returns the program that has the only device of the only worker.
fn program_of(workers: &Value) -> Value {
    let pools = workers[0]["devices"][0]["pools"].as_array().unwrap();
    let pool = pools.iter().find(|pool| pool["pool"] == "gpu").unwrap();
    pool["program"].clone()
}

/// Returns how many programs a heartbeat says run and wait.
fn counted(worker: &WorkerRow) -> Option<(u32, u32)> {
    worker.programs_of("gpu").map(|of_pool| (of_pool.running, of_pool.waiting))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_and_waits_is_in_heartbeats_tables_and_metrics() {
    let scene = Scene::measured("program-reports").await;
    let here = folder();
    scene.poll_heartbeat("nothing runs", |worker| counted(worker) == Some((0, 0))).await;
    let mut first = scene.start_run(here.path(), &["--quiet"], UNTIL_GO);
    assert_eq!(first.line().await.as_deref(), Some("begun"));
    let second = scene.start_run(here.path(), &["--quiet"], UNTIL_GO);
    scene.poll_heartbeat("one runs and one waits", |worker| counted(worker) == Some((1, 1))).await;
    poll_until("both are in the ledger", async || scene.programs().await.len() == 2).await;
    let running = scene.programs().await[1];

    let workers = scene.json(&["workers"]).await;
    let of_device = program_of(&workers);
    assert_eq!(of_device["job_id"], running.to_string(), "{workers}");
    assert!(of_device["label"].as_str().unwrap().starts_with("sh -c echo begun"), "{workers}");
    assert_eq!(workers[0]["programs"]["pools"][0]["environments"], serde_json::json!(["plain"]), "{workers}");
    let table = scene.gpufleet(here.path(), &["workers"]).await.ok().stdout;
    let offered = "takes 2 host programs of pool gpu (1 running, 1 waiting for a device) in plain";
    assert!(table.contains(offered) && table.contains(&format!(", job {running}\n")), "{table}");
    let pools = scene.json(&["pools"]).await;
    let pool = pools.as_array().unwrap().iter().find(|pool| pool["pool"] == "gpu").unwrap();
    let numbers = ["programs_running", "programs_waiting", "programs_max"].map(|name| pool[name].as_u64());
    assert_eq!(numbers, [Some(1), Some(1), Some(2)], "{pool}");
    let table = scene.gpufleet(here.path(), &["pools"]).await.ok().stdout;
    assert!(table.contains("PROGRAMS") && table.contains("1 of 2, 1 waiting"), "{table}");
    let metrics = scene.worker.metrics().await;
    assert_eq!(metrics.sum("gpufleet_programs_running", &[("pool", "gpu"), ("device", "0")]), 1.0);
    assert_eq!(metrics.sum("gpufleet_programs_waiting", &POOL), 1.0);
    assert_eq!(metrics.sum("gpufleet_programs_ended_total", &POOL), 0.0);

    fs::write(scene.environment.path().join("go"), "").unwrap();
    for run in [first, second] {
        assert_eq!(run.ended().await.code, 3);
    }
    let failed = [("pool", "gpu"), ("outcome", "failed")];
    scene.worker.poll_metric("both have ended", "gpufleet_programs_ended_total", &failed, 2.0).await;
    let metrics = scene.worker.metrics().await;
    assert_eq!(metrics.sum("gpufleet_programs_ended_total", &POOL), 2.0);
    assert_eq!(metrics.sum("gpufleet_programs_running", &POOL), 0.0);
    assert_eq!(metrics.sum("gpufleet_program_output_bytes_total", &POOL), 12.0, "twice `begun`");
    scene.poll_heartbeat("nothing runs", |worker| counted(worker) == Some((0, 0))).await;
    assert_eq!(program_of(&scene.json(&["workers"]).await), Value::Null, "the device is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn history_tells_the_command_and_the_environment_and_no_value_of_a_variable() {
    let scene = Scene::start("program-history", "gpu:programs=1").await;
    let here = folder();
    let options = ["--quiet", "--variable", "TOKEN=canary-9f3c", "--variable", "SEED=7"];
    assert_eq!(scene.run(here.path(), &options, "test -n \"$TOKEN\"").await.code, 0);
    let job = scene.only_program().await.job;
    let program = job.host_program.as_ref().unwrap();
    assert_eq!(program.command, ["sh", "-c", "test -n \"$TOKEN\""]);
    assert_eq!((program.place(), program.network), (Some("plain"), false));
    assert_eq!(program.variables, ["SEED", "TOKEN"]);
    let id = job.job_id.to_string();
    let shown = scene.gpufleet(here.path(), &["show", &id]).await.ok().stdout;
    let lines = ["command    sh -c 'test -n \"$TOKEN\"'\n", "env        plain\n", "variables  SEED TOKEN\n"];
    assert!(lines.iter().all(|line| shown.contains(line)), "{shown}");
    let listed = scene.gpufleet(here.path(), &["history"]).await.ok().stdout;
    assert!(listed.contains("(host program)"), "{listed}");
    let of_environment = async |name: &str| scene.json(&["history", "--env", name]).await.as_array().unwrap().len();
    assert_eq!((of_environment("plain").await, of_environment("torch").await), (1, 0));
    let everything = scene.json(&["show", &id]).await.to_string();
    assert!(everything.contains("\"variables\":[\"SEED\",\"TOKEN\"]"), "{everything}");
    assert!(![everything, shown, listed].iter().any(|text| text.contains("canary-9f3c")));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_for_which_a_program_has_a_device_is_in_the_usage_of_its_pool() {
    let scene = Scene::start("program-usage", "gpu:programs=1").await;
    let here = folder();
    assert_eq!(scene.run(here.path(), &["--quiet"], "sleep 2; exit 1").await.code, 1);
    let job = scene.only_program().await;
    let attempt = job.attempts.last().unwrap();
    let charged = attempt.charged_us.unwrap();
    assert!(charged >= 2_000_000, "it had the device for two seconds: {attempt:?}");
    poll_until("the statistics have it", async || {
        let usage = scene.json(&["usage", "--by", "pool"]).await;
        let rows = usage["rows"].as_array().unwrap();
        let row = rows.iter().find(|row| row["value"] == "gpu");
        row.is_some_and(|row| row["charged_us"].as_u64() == Some(charged))
    })
    .await;
}

/// Returns a finding of the doctor: its status, and the rest as text.
fn finding(diagnosis: &Value, check: &str) -> (String, String) {
    let checks = diagnosis["checks"].as_array().unwrap();
    let found = checks.iter().find(|finding| finding["check"] == check);
    let found = found.unwrap_or_else(|| panic!("no {check}: {diagnosis}"));
    (found["status"].as_str().unwrap().to_owned(), format!("{} {}", found["found"], found["fix"]))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_programs_that_no_worker_runs_and_environments_that_none_offers() {
    let scene = Scene::start("program-doctor", "gpu:programs=1").await;
    let here = folder();
    let diagnose = async |options: &[&str]| {
        let words = [&["doctor", "-o", "json"], options].concat();
        let ended = scene.gpufleet(here.path(), &words).await;
        serde_json::from_str::<Value>(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
    };
    scene.poll_heartbeat("its programs are in the ledger", |worker| worker.programs.is_some()).await;
    let well = diagnose(&["--env", "plain", "--env", "torch"]).await;
    let (status, text) = finding(&well, "programs of gpu");
    assert!(status == "ok" && text.contains("in plain"), "{text}");
    assert_eq!(finding(&well, "environment plain").0, "ok");
    let (status, text) = finding(&well, "environment torch");
    assert!(status == "error" && text.contains("no worker offers it; they offer plain"), "{text}");

    let other = environment();
    let differs = format!("science={}", other.path().display());
    let second = scene.ground.worker_with(&arguments("gpu:programs=1", &differs)).await;
    let (ground, name) = (&scene.ground, second.name());
    ground.poll_worker("the other worker's are too", name, |worker| worker.programs.is_some()).await;
    let (status, text) = finding(&diagnose(&[]).await, "programs of gpu");
    assert!(status == "warning" && text.contains(&format!("{name} lacks plain")), "{text}");

    for worker in [&scene.worker, &second] {
        assert_eq!(worker.stop(Signal::Terminate).await, Some(0));
    }
    let waiting = scene.run(here.path(), &["--detach"], "true").await;
    assert_eq!(waiting.code, 0, "{waiting:?}");
    let (status, text) = finding(&diagnose(&["--pool", "gpu"]).await, "programs of gpu");
    assert!(status == "error" && text.contains("1 message waits, and no worker runs host programs"), "{text}");
    assert!(text.contains("gpufleet-worker run --pool gpu:programs=1 --environment NAME=FOLDER"), "{text}");
}

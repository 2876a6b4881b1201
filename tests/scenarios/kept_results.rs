//! The outputs of a job can be fetched after its producer, its worker and the recorder have ended.

use std::{fs, path::Path};

use gpufleet::{Fleet, InputError, Job, SubmitError};
use gpufleet_local::LocalFleetBuilder;
use gpufleet_schema::{Buffer, Dtype, JobId, JobState, bounds::KEPT_INLINE_BYTES_MAX};
use gpufleet_tests::{Ended, Ground, WAIT, kernels, poll_until};
use tempfile::TempDir;

/// The maximum number of floats that the ledger itself keeps.
const SMALL: usize = KEPT_INLINE_BYTES_MAX as usize / 4;

struct Scene {
    ground: Ground,
    blobs: TempDir,
    work: TempDir,
}

impl Scene {
    async fn new(label: &str) -> Self {
        Self::with(label, |fleet| fleet).await
    }

    async fn with(label: &str, options: impl FnOnce(LocalFleetBuilder) -> LocalFleetBuilder) -> Self {
        let (blobs, work) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let ground = Ground::shared_as(label, |fleet| options(fleet.worker_env("GPUFLEET_BLOBS", blobs.path()))).await;
        Self { ground, blobs, work }
    }

    fn folder(&self) -> &Path {
        self.work.path()
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        self.ground.gpufleet(self.folder(), arguments).await
    }

    async fn run_ok(&self, arguments: &[&str]) -> Ended {
        self.run(arguments).await.ok()
    }

    /// Submits y = 2x over this many floats without waiting, and returns the job's id.
    async fn submit(&self, count: usize, more: &[&str]) -> String {
        fs::write(self.folder().join("x.bin"), bytes(1.0, count)).unwrap();
        let (input, zeros) = (format!("x=x.bin:f32[{count}]"), format!("y=f32[{count}]"));
        let line = ["submit", "saxpy", "--arg", "a=2", "--in", &input, "--zeros", &zeros];
        self.detach(&[&line[..], more].concat()).await
    }

    /// Submits a job without waiting, and returns its id once the ledger has it, because `wait` expects that within
    /// seconds.
    async fn detach(&self, line: &[&str]) -> String {
        let id = self.run_ok(&[line, &["--detach"]].concat()).await.stdout.trim().to_owned();
        self.ground.poll_job("recorded", id.parse().unwrap(), |_| true).await;
        id
    }

    fn store(&self) -> &str {
        self.blobs.path().to_str().unwrap()
    }

    /// Checks the elements of a .npy file, which are at its end.
    fn assert_doubled(&self, file: &str, count: usize) {
        let written = fs::read(self.folder().join(file)).unwrap();
        assert!(written.ends_with(&bytes(2.0, count)), "{file}");
    }
}

/// Returns the elements 0, 1, 2 and so on, multiplied by `factor`.
fn bytes(factor: f32, count: usize) -> Vec<u8> {
    (0..count).flat_map(|index| (factor * index as f32).to_le_bytes()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn outputs_are_fetched_after_producer_worker_and_recorder_were_killed() {
    let scene = Scene::with("kept", |fleet| fleet.recorder_process(true)).await;
    let worker = scene.ground.worker().await;
    let small = scene.submit(SMALL, &[]).await;
    let store = scene.store().to_owned();
    let large = scene.submit(SMALL + 1, &["--blobs", &store]).await;
    let waited = scene.run_ok(&["wait", &small, &large, "--timeout", "60s"]).await;
    assert_eq!(waited.stdout.matches("succeeded").count(), 2, "{waited:?}");
    worker.process().kill9().await.unwrap();
    scene.ground.fleet().ledger().expect("it runs").kill9().await.unwrap();
    scene.run_ok(&["fetch", &small, "--dir", "small"]).await;
    scene.assert_doubled("small/y.npy", SMALL);
    scene.run_ok(&["fetch", &large, "--out", "y=large.npy", "--blobs", &store]).await;
    scene.assert_doubled("large.npy", SMALL + 1);
    let shown = scene.run_ok(&["show", &large]).await.stdout;
    assert!(shown.contains("y: f32[16385], blake3:"), "{shown}");
    assert_eq!(fs::read_dir(scene.blobs.path()).unwrap().count(), 1, "the small one is in the ledger");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_or_was_not_kept_is_refused_with_the_reason() {
    let scene = Scene::new("not-kept").await;
    let early = scene.submit(4, &["--keep", "1ms"]).await;
    let late = scene.run(&["wait", &early, "--timeout", "100ms"]).await;
    assert_eq!(late.code, 6, "{late:?}");
    assert!(late.stderr.contains("1 job has not ended within 100ms"), "{late:?}");
    let refused = scene.run(&["fetch", &early, "--dir", "out"]).await;
    assert_eq!(refused.code, 9, "{refused:?}");
    assert!(refused.stderr.contains("has not ended yet: it is queued"), "{refused:?}");
    let _worker = scene.ground.worker().await;
    let discarded = scene.submit(4, &["--discard"]).await;
    scene.run_ok(&["wait", &early, &discarded, "--timeout", "60s"]).await;
    poll_until("the end of the time", async || scene.run(&["fetch", &early, "--dir", "out"]).await.code == 9).await;
    let told = scene.run(&["fetch", &early, "--dir", "out"]).await;
    assert!(told.stderr.contains("expired at 20") && told.stderr.contains("--keep"), "{told:?}");
    let told = scene.run(&["fetch", &discarded, "--dir", "out"]).await;
    assert_eq!(told.code, 9, "{told:?}");
    assert!(told.stderr.contains("succeeded, but kept no outputs"), "{told:?}");
    let kept = scene.submit(4, &[]).await;
    scene.run_ok(&["wait", &kept, "--timeout", "60s"]).await;
    let told = scene.run(&["fetch", &kept, "--out", "z=z.npy"]).await;
    assert_eq!(told.code, 9, "{told:?}");
    assert!(told.stderr.contains("no output \"z\"") && told.stderr.contains("its outputs: y"), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_job_keeps_nothing_and_its_wait_has_the_exit_code_of_a_submission() {
    let scene = Scene::new("kept-failed").await;
    let _worker = scene.ground.worker().await;
    fs::write(scene.folder().join("bad.cu"), "extern \"C\" __global__ void bad() { int x = ; }").unwrap();
    let id = scene.detach(&["submit", "--source", "bad.cu", "--entry", "bad", "--grid", "1"]).await;
    let good = scene.submit(4, &[]).await;
    let waited = scene.run(&["wait", &good, &id, "--timeout", "60s"]).await;
    assert_eq!(waited.code, 4, "{waited:?}");
    assert!(waited.stdout.contains(&format!("{id}  failed: ")), "{waited:?}");
    let told = scene.run(&["fetch", &id, "--dir", "out"]).await;
    assert_eq!(told.code, 9, "{told:?}");
    assert!(told.stderr.contains("has no outputs: it is failed"), "{told:?}");
    let any = scene.run_ok(&["wait", "--any", &good, "--timeout", "60s", "-o", "json"]).await;
    assert!(any.stdout.contains("\"state\": \"succeeded\""), "{any:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_output_needs_a_store_and_the_warning_comes_before_the_submission() {
    let ground = Ground::shared("kept-without-store").await;
    let work = tempfile::tempdir().unwrap();
    let line = |zeros: &'static str| {
        ["submit", "saxpy", "--arg", "a=2", "--zeros", zeros, "--zeros", "y=f32[16385]", "--detach"]
    };
    let ended = ground.gpufleet(work.path(), &line("x=f32[16385]")).await.ok();
    assert!(ended.stderr.contains("will be discarded") && ended.stderr.contains("--blobs"), "{ended:?}");
    let kept = ground.gpufleet(work.path(), &[&line("x=f32[16385]")[..], &["--keep", "1h"]].concat()).await.ok();
    let _worker = ground.worker().await;
    let id = kept.stdout.trim();
    let waited = ground.gpufleet(work.path(), &["wait", id, "--timeout", "60s"]).await;
    assert_ne!(waited.code, 0, "no worker here has a store: {waited:?}");
    let detail = ground.final_job(id.parse().unwrap()).await;
    assert_ne!(detail.job.state, JobState::Succeeded);
    assert!(waited.stdout.contains("blob store"), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_takes_the_output_of_another_and_an_output_that_is_not_there_is_refused() {
    let scene = Scene::new("chained").await;
    let _worker = scene.ground.worker().await;
    let store = scene.store().to_owned();
    for count in [SMALL, SMALL + 1] {
        let first = scene.submit(count, &["--keep", "1h"]).await;
        scene.run_ok(&["wait", &first, "--timeout", "60s"]).await;
        let (input, zeros) = (format!("x=job:{first}/y"), format!("y=f32[{count}]"));
        // This client has no store, because the bytes of a blob do not pass through the client.
        let line = ["submit", "saxpy", "--arg", "a=2", "--in", &input, "--zeros", &zeros];
        scene.run_ok(&[&line[..], &["--out", "y=next.bin"]].concat()).await;
        assert!(fs::read(scene.folder().join("next.bin")).unwrap() == bytes(4.0, count), "{count}");
        let wrong = input.replace("/y", "/z");
        let told = scene.run(&["submit", "saxpy", "--arg", "a=2", "--in", &wrong, "--zeros", &zeros]).await;
        assert_eq!(told.code, 9, "{told:?}");
        assert!(told.stderr.contains("no output \"z\""), "{told:?}");
    }
    let slow = ["submit", "--source", "slow.cu", "--entry", "slow", "--grid", "1", "--zeros", "y=f32[4]"];
    fs::write(
        scene.folder().join("slow.cu"),
        "extern \"C\" __global__ void slow(float* y) { for (;;) __nanosleep(1000000); }",
    )
    .unwrap();
    let id = scene.detach(&[&slow[..], &["--args", "y", "--blobs", &store]].concat()).await;
    let input = format!("x=job:{id}/y");
    let told = scene.run(&["submit", "saxpy", "--arg", "a=2", "--in", &input, "--zeros", "y=f32[4]"]).await;
    assert_eq!(told.code, 9, "{told:?}");
    assert!(told.stderr.contains("has not ended yet") && told.stderr.contains("gpufleet wait"), "{told:?}");
}

/// Returns a task file with an input from another job.
fn task_file(job: &str, output: &str, shape: u32) -> String {
    serde_json::json!({
        "program": {"catalog": "saxpy"},
        "arguments": {"a": 2.0},
        "buffers": [
            {"name": "x", "dtype": "f32", "shape": [shape], "data": {"output": {"job": job, "name": output}}},
            {"name": "y", "dtype": "f32", "shape": [shape], "data": "zeros"},
        ],
        "outputs": ["y"],
        "save": {"y": "next.bin"},
    })
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_file_and_a_rust_client_chain_jobs_of_one_pool() {
    let scene = Scene::new("chained-file").await;
    let _worker = scene.ground.worker_with(&["--pool", "other"]).await;
    let submit = async |file: String, more: &[&str]| {
        fs::write(scene.folder().join("task.json"), file).unwrap();
        scene.run(&[&["submit", "--file", "task.json"], more].concat()).await
    };
    let first = scene.submit(4, &[]).await;
    scene.run_ok(&["wait", &first, "--timeout", "60s"]).await;
    submit(task_file(&first, "y", 4), &[]).await.ok();
    assert!(fs::read(scene.folder().join("next.bin")).unwrap() == bytes(4.0, 4));
    let brief = scene.submit(4, &["--keep", "1ms"]).await;
    let discarded = scene.submit(4, &["--discard"]).await;
    scene.run_ok(&["wait", &brief, &discarded, "--timeout", "60s"]).await;
    let unknown = JobId::new().to_string();
    for (file, more, code, why) in [
        (task_file(&first, "y", 5), &[][..], 3, "its output \"y\" is f32[4], not f32[5]"),
        (task_file(&first, "y", 4), &["--pool", "other"], 3, "did not run in pool other"),
        (task_file(&first, "z", 4), &[], 9, "has no output \"z\""),
        (task_file(&brief, "y", 4), &[], 9, "expired at 20"),
        (task_file(&discarded, "y", 4), &[], 9, "kept no outputs"),
        (task_file(&unknown, "y", 4), &[], 9, "the ledger has no job"),
    ] {
        let refused = submit(file, more).await;
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(refused.stderr.contains(why), "{refused:?}");
    }
    let endpoints = scene.ground.endpoints();
    let fleet = Fleet::builder().ledger(&endpoints.database_url).connect(&endpoints.amqp_url).await.unwrap();
    let job = || Job::catalog("saxpy").scalar("a", 2.0).zeros("y", Dtype::F32, [4]);
    let next = job().input_from("x", Dtype::F32, [4], first.parse().unwrap(), "y");
    let y: Vec<f32> = fleet.submit(next).await.unwrap().wait(WAIT).await.unwrap().output("y").unwrap();
    assert_eq!(y, [0.0, 4.0, 8.0, 12.0]);
    let foreign = job().input_from("x", Dtype::F32, [4], first.parse().unwrap(), "y").pool("other".parse().unwrap());
    let refused = fleet.submit(foreign).await.unwrap_err();
    let SubmitError::Input(refused) = refused else { panic!("{refused}") };
    assert!(matches!(*refused, InputError::OtherPool { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_refuses_an_output_that_its_producer_did_not_look_up() {
    let scene = Scene::new("chained-amqp").await;
    let _worker = scene.ground.worker().await;
    let mut task = kernels::saxpy();
    task.buffers[0] = Buffer::output_of("x", Dtype::F32, [3], JobId::new(), "y");
    scene.ground.publish_task(&task).await;
    let detail = scene.ground.final_job(task.job_id).await;
    let failure = detail.attempts[0].failure.clone().unwrap();
    assert_eq!((detail.job.state, &*failure.code, &*failure.verdict), (JobState::Failed, "invalid_task", "user"));
    assert!(failure.message.contains("must be looked up in the ledger before the task is published"), "{failure:?}");
}

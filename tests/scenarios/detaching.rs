//! Ctrl-C while `gpufleet submit` waits: the job continues, and the command says how to get its result.

use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};

#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_wait_names_the_job_and_the_job_continues() {
    let ground = Ground::shared("detaching").await;
    let folder = tempfile::tempdir().unwrap();
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more = ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "-o", "json"];
    let mut submit = ground.start_gpufleet(folder.path(), &[&job[..], &more].concat());
    let pid = submit.id().expect("the command still runs");
    // The command prints this line once it waits, because there is no worker yet.
    let mut told = BufReader::new(submit.stderr.take().unwrap());
    let mut line = String::new();
    tokio::time::timeout(WAIT, told.read_line(&mut line))
        .await
        .expect("the command reports that no worker serves the pool")
        .unwrap();
    assert!(line.contains("no worker serves pool default"), "{line}");
    // SAFETY: kill has no memory effects; the process was started here and not waited for.
    unsafe { libc::kill(pid as libc::pid_t, libc::SIGINT) };
    let output = tokio::time::timeout(WAIT, submit.wait_with_output()).await.expect("it ends").unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let id = report["job_id"].as_str().unwrap();
    let mut hint = String::new();
    told.read_to_string(&mut hint).await.unwrap();
    assert!(hint.contains(&format!("gpufleet show {id}")), "{hint}");

    let _worker = ground.worker().await;
    assert_eq!(ground.final_job(id.parse().unwrap()).await.job.state, JobState::Succeeded);
    ground.check_history(1).await;
}

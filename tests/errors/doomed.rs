//! Jobs that a fleet refuses or dead-letters. Each function brings the fleet into a state and runs a command as a user
//! does.

use std::path::Path;

use gpufleet::SubmitError;
use gpufleet_schema::{JobState, Priority, topology::task_queue};
use gpufleet_tests::{Ground, TestWorker, WAIT, kernels};
use tokio::join;

use crate::{cases::Masks, stage::Stage};

/// The number of killed executors after which a program is quarantined.
const DEATHS: usize = 3;

pub async fn run(folder: &Path, masks: Masks) -> String {
    let ground = Ground::shared("errors-doomed").await;
    let stage = Stage::on(&ground, folder, masks).await;
    stage.prepare(&["keygen", "trusted"]).await;
    let stranger = stage.prepare(&["keygen", "stranger"]).await;
    let stage = stage.hiding(stranger.stdout.trim(), "<public-key>");
    let trusted = folder.join("trusted.pub").display().to_string();
    let pools = ["--pool", "vetted:allow=signed", "--trusted-key", &trusted, "--pool", "brisk:time-max=1m"];
    let worker = ground.worker_with(&pools).await;
    let sections = [
        stage.run(POLICIES).await,
        full_queue(&stage).await,
        quarantined(&stage).await,
        expired(&stage, &worker).await,
        cancelled(&stage).await,
        without_executor(&stage, &worker).await,
        stage.run(NO_STORE).await,
    ];
    sections.concat()
}

const POLICIES: &str = "
# Jobs that a pool refuses

$ gpufleet submit --source k.cu --entry k --zeros x=f32[4] --args x --grid 1 --pool vetted
$ gpufleet submit --source k.cu --entry k --zeros x=f32[4] --args x --grid 1 --pool vetted --sign-key stranger
$ gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --pool brisk --time-limit 2m
";

const FULL: &str = "$ gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --pool full";

async fn full_queue(stage: &Stage<'_>) -> String {
    let pool = "full".parse().unwrap();
    stage.ground.declare_pools(&["full"]).await;
    stage.ground.set_policy(&task_queue(&pool, Priority::Normal), "{<<\"max-length\">>, 1}").await;
    let fleet = stage.ground.client().await;
    // A quorum queue notices that it is full only after a while.
    let refused = loop {
        if let Err(error) = fleet.submit(kernels::doubles(&[1.0]).pool(pool.clone())).await {
            break error;
        }
    };
    assert!(matches!(refused, SubmitError::Refused { .. }), "{refused:?}");
    stage.run(FULL).await
}

const WILD: &str = "$ gpufleet submit --ptx wild.ptx --entry wild_write --zeros y=u32[4] --args y --grid 1";

async fn quarantined(stage: &Stage<'_>) -> String {
    let fleet = stage.ground.client().await;
    for _ in 0..DEATHS {
        fleet.submit(kernels::writes_beyond_its_buffer()).await.unwrap().wait(WAIT).await.unwrap_err();
    }
    stage.run(WILD).await
}

const EXPIRES: &str = "
# Jobs that end before their kernel does

$ gpufleet submit saxpy --arg a=2 --zeros x=f32[3] --zeros y=f32[3] --queue-limit 1ms --label case=expired
";

/// Suspends the worker until the job has waited too long.
async fn expired(stage: &Stage<'_>, worker: &TestWorker) -> String {
    worker.process().pause();
    let resume = async {
        stage.poll_case("expired", JobState::Queued).await;
        worker.process().resume();
    };
    join!(stage.run(EXPIRES), resume).0
}

const CANCELLED: &str =
    "$ gpufleet submit --ptx endless.ptx --entry endless --zeros y=u32[1] --args y --grid 1 --label case=cancelled";

async fn cancelled(stage: &Stage<'_>) -> String {
    let cancel = async {
        stage.poll_case("cancelled", JobState::Running).await;
        stage.prepare(&["cancel", "--label", "case=cancelled"]).await;
    };
    join!(stage.run(CANCELLED), cancel).0
}

/// Submits a job with the label `case=killed` and at most one attempt.
const KILLED: &str = "$ gpufleet submit -f killed.json";

async fn without_executor(stage: &Stage<'_>, worker: &TestWorker) -> String {
    let kill = async {
        stage.poll_case("killed", JobState::Running).await;
        worker.kill_executor().await;
    };
    join!(stage.run(KILLED), kill).0
}

const NO_STORE: &str = "
# Arrays that travel by a blob store

$ gpufleet submit saxpy --arg a=2 --in x=big.npy --zeros y=f32[262144] --blobs elsewhere
";

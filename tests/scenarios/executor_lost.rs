//! The death of an executor costs its job one attempt and nothing else: the job is retried a bounded number of times,
//! and the worker keeps running. (faults 19 and 38)

use gpufleet_schema::{
    AttemptState, FailureCode, JobId, JobState, PoolName, Priority, Verdict,
    topology::{TASKS, retry_rung, task_key},
};
use gpufleet_tests::{Ground, WAIT, busy, dead_letters, kernels, poll_until};
use gpufleet_transport::{Message, Properties};

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_executor_is_killed_is_retried_by_the_same_worker() {
    let (ground, worker, fleet) = Ground::served("executor-lost").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    worker.kill_executor().await;
    ground.release_jobs();

    let result = handle.wait(WAIT).await.unwrap();
    assert_eq!(result.attempt, 2);
    busy::assert_done(&result.outputs);
    assert!(worker.is_alive());

    let detail = ground.final_job(handle.id()).await;
    let attempts: Vec<_> = detail.attempts.iter().map(|a| (a.attempt, a.state)).collect();
    assert_eq!(attempts, [(1, AttemptState::Lost), (2, AttemptState::Succeeded)]);
    assert_eq!(detail.attempts[0].failure.as_ref().unwrap().code, FailureCode::ExecutorLost.name());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_retried_although_an_operator_deleted_its_retry_queue() {
    let (ground, worker, fleet) = Ground::served("no-ladder").await;
    let mut handle = fleet.submit(busy::until_released()).await.unwrap();
    ground.poll_job("running", handle.id(), |job| job.state == JobState::Running).await;
    ground.broker().await.delete_queue(retry_rung(1).name).await.unwrap();
    worker.kill_executor().await;
    ground.release_jobs();
    assert_eq!(handle.wait(WAIT).await.unwrap().attempt, 2);
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_loses_every_executor_is_dead_lettered_with_its_reason() {
    let (ground, worker, fleet) = Ground::served("poison").await;
    let mut handle = fleet.submit(busy::for_seconds(60).attempts_max(2)).await.unwrap();
    for attempt in 1..=2 {
        ground
            .poll_job("running", handle.id(), |job| job.state == JobState::Running && job.attempt == Some(attempt))
            .await;
        worker.kill_executor().await;
    }
    let error = handle.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::Infrastructure, FailureCode::AttemptsExhausted));
    assert!(failure.message.contains("2 attempts that lost their executor"), "{}", failure.message);

    assert_eq!(ground.final_job(handle.id()).await.job.state, JobState::Dead);
    let dead = dead_letters(&ground, 1).await;
    assert!(dead[0].reason.contains("2 attempts that lost their executor"), "{}", dead[0].reason);
    assert!(dead[0].body_contains(&handle.id().to_string()));
    ground.check_history(1).await;
}

/// Encoding these numbers again would make the message too large, so the worker must publish the same bytes.
#[tokio::test(flavor = "multi_thread")]
async fn a_retried_message_keeps_its_bytes() {
    const NUMBERS: usize = 3_000_000;
    let (ground, worker) = Ground::with_worker("as-it-came").await;
    let job_id = JobId::new();
    let body = serde_json::json!({
        "version": 1,
        "job_id": job_id,
        "program": {"ptx": include_str!("../harness/ptx/waits.ptx")},
        "buffers": [
            {"name": "y", "dtype": "u32", "shape": [1]},
            {"name": "x", "dtype": "f32", "shape": [NUMBERS], "data": {"inline": ["numbers"]}},
        ],
        "launches": [{
            "entry": "waits",
            "grid": {"blocks": [1]},
            "block": {"threads": [1]},
            "args": [{"buffer": "y"}, {"u64": 60_000_000_000_u64}],
        }],
        "limits": {"attempts_max": 2},
    });
    let body = body.to_string().replace(r#""numbers""#, &vec!["1e15"; NUMBERS].join(",")).into_bytes();
    let properties = Properties { content_type: Some("application/json".to_owned()), ..Properties::default() };
    let routing_key = task_key(&PoolName::default(), Priority::Normal);
    let message = Message { exchange: TASKS, routing_key, body: body.clone(), properties };
    ground.broker().await.publish(message).await.unwrap();
    for attempt in 1..=2 {
        ground.poll_job("running", job_id, |job| job.state == JobState::Running && job.attempt == Some(attempt)).await;
        worker.kill_executor().await;
    }
    let dead = dead_letters(&ground, 1).await;
    assert!(dead[0].reason.contains("2 attempts that lost their executor"), "{}", dead[0].reason);
    assert!(dead[0].body == body, "{} bytes were published and {} are kept", body.len(), dead[0].body.len());
    ground.check_history(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kernel_that_faults_fails_with_a_report_and_its_neighbours_succeed() {
    let (ground, worker, fleet) = Ground::served("fault").await;
    let mut neighbours = Vec::new();
    for _ in 0..3 {
        neighbours.push(fleet.submit(busy::for_seconds(1)).await.unwrap());
    }
    let mut guilty = fleet.submit(kernels::writes_beyond_its_buffer()).await.unwrap();

    let error = guilty.wait(WAIT).await.unwrap_err();
    let failure = error.failure().unwrap();
    assert_eq!((failure.verdict, failure.code), (Verdict::User, FailureCode::KernelFault), "{failure:?}");
    assert!(failure.message.contains("wild_write"), "{}", failure.message);
    let report = failure.detail.as_deref().expect("the emulator reports the access");
    assert!(report.contains("wild_write") && report.contains("thread"), "{report}");
    for mut neighbour in neighbours {
        busy::assert_done(&neighbour.wait(WAIT).await.unwrap().outputs);
    }
    assert!(worker.is_alive());
    ground.check_history(4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_is_ready_again_after_its_idle_executor_died() {
    let (ground, worker) = Ground::with_worker("idle-loss").await;
    let before = worker.executors();
    worker.kill_executor().await;
    poll_until("another executor", || async { worker.executors().iter().any(|pid| !before.contains(pid)) }).await;
    let fleet = ground.client().await;
    let mut handle = fleet.submit(kernels::doubles(&[1.0, 2.0])).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [2.0, 4.0]);
    ground.check_history(1).await;
}

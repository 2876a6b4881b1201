//! While two of three nodes are down, nothing is accepted, and a submission reports that. Confirmed jobs wait, and run when the nodes
//! return. (fault 9)

use std::time::{Duration, Instant};

use futures::future::join_all;
use gpufleet::Fleet;
use gpufleet_local::RabbitMq;
use gpufleet_tests::{Ground, WAIT, busy, poll_until};

const CONFIRM_DEADLINE: Duration = Duration::from_secs(5);
const JOBS: usize = 20;

#[tokio::test(flavor = "multi_thread")]
async fn a_minority_accepts_no_job_and_keeps_every_confirmed_one() {
    let ground = Ground::cluster("minority").await;
    let worker = ground.worker().await;
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(CONFIRM_DEADLINE)).await;
    fleet.submit_until_confirmed(&busy::for_millis(1)).await.wait(WAIT).await.unwrap();
    worker.pause_executors();
    let mut confirmed = Vec::new();
    for _ in 0..JOBS {
        confirmed.push(fleet.submit_until_confirmed(&busy::for_millis(1)).await);
    }
    for node in &ground.nodes()[..2] {
        node.kill9().await.unwrap();
    }

    let job = busy::for_millis(1);
    poll_until("the third node notices", async || {
        let begun = Instant::now();
        let Err(error) = fleet.submit(job.clone()).await else { return false };
        assert!(begun.elapsed() < 2 * CONFIRM_DEADLINE, "{:?}", begun.elapsed());
        let reason = std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string);
        // The third node closes its connections, and then every node refuses new ones.
        reason.contains("reach any node of RabbitMQ") && reason.matches("refused").count() == 3
    })
    .await;
    let folder = tempfile::tempdir().unwrap();
    let submit = ["submit", "saxpy", "--arg", "a=2", "--fill", "x=f32[4]:1", "--fill", "y=f32[4]:1"];
    let ended = ground.gpufleet(folder.path(), &submit).await;
    assert_eq!(ended.code, 7, "{ended:?}");
    for node in ground.nodes() {
        assert!(ended.stderr.contains(&format!("127.0.0.1:{}: Connection refused", node.port())), "{ended:?}");
    }
    assert!(!ended.stderr.contains("@127.0.0.1"), "{ended:?}");

    worker.resume_executors();
    RabbitMq::restart_stopped(ground.nodes()).await.unwrap();
    ground.poll_nodes_up().await;
    confirmed.push(fleet.submit_until_confirmed(&job).await);
    let results = join_all(confirmed.iter_mut().map(|job| job.wait(WAIT))).await;
    for result in results {
        busy::assert_done(&result.unwrap().outputs);
    }
    assert!(worker.is_alive());
    ground.check_history(1 + JOBS + 1).await;
}

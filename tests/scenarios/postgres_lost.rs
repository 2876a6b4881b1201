//! No job waits for the ledger: while Postgres is unreachable jobs run and are answered, and afterwards the ledger is
//! complete. (fault 24)

use gpufleet_schema::JobState;
use gpufleet_tests::{Ground, WAIT, kernels};

#[tokio::test(flavor = "multi_thread")]
async fn jobs_run_while_postgres_is_away_and_the_ledger_catches_up() {
    let ground = Ground::breakable("postgres-lost").await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    let mut before = fleet.submit(kernels::doubles(&[1.0])).await.unwrap();
    before.wait(WAIT).await.unwrap();
    ground.final_job(before.id()).await;

    ground.services().postgres().kill9().await.unwrap();
    let mut ids = Vec::new();
    for index in 0..100 {
        let mut handle = fleet.submit(kernels::doubles(&[index as f32])).await.unwrap();
        assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [2.0 * index as f32]);
        ids.push(handle.id());
    }
    ground.services().postgres().restart().await.unwrap();

    ground.poll_count("all jobs recorded", JobState::Succeeded, 101).await;
    for id in ids {
        let detail = ground.final_job(id).await;
        assert_eq!(detail.attempts.len(), 1);
        assert!(detail.attempts[0].timings.is_some());
    }
    ground.check_history(101).await;
}

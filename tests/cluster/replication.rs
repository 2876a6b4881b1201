//! Every queue on which a job, a reply or an event depends is on all three nodes, and a new worker starts while one of them is down.

use gpufleet::Fleet;
use gpufleet_schema::topology::WORKERS;
use gpufleet_tests::{Ground, WAIT, busy};

#[tokio::test(flavor = "multi_thread")]
async fn every_queue_is_on_all_nodes() {
    let ground = Ground::cluster("replicated").await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let named = ground.client_with(Fleet::builder().client("gpufleet-replicated")).await;
    for fleet in [&fleet, &named] {
        fleet.submit_until_confirmed(&busy::for_millis(1)).await.wait(WAIT).await.unwrap();
    }
    // The claim of a worker's name ends with the worker's connection, and so with the connection's node.
    let claim = format!("[<<\"{WORKERS}.{}\">>]", worker.name());
    assert_eq!(ground.unreplicated_queues().await, claim);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_and_a_client_start_without_one_node() {
    for node in 0..gpufleet_tests::NODES {
        let ground = Ground::cluster("two-nodes").await;
        // This worker declares all queues while every node runs.
        let first = ground.worker().await;
        ground.nodes()[node].kill9().await.unwrap();
        first.kill9().await.unwrap();
        let _second = ground.worker().await;
        let fleet = ground.client().await;
        fleet.submit_until_confirmed(&busy::for_millis(1)).await.wait(WAIT).await.unwrap();
        ground.check_history(1).await;
    }
}

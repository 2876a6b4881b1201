//! All nodes restart in turn while jobs flow, as in an upgrade. No job is lost, and none gets two different answers.

use std::time::Duration;

use gpufleet_tests::Ground;

use crate::flow;

/// The maximum delay of a job. A clean stop moves leaders and closes connections, so clients need not wait for an
/// election or for heartbeats.
const HELD_UP_MAX: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn a_rolling_restart_under_load_loses_no_job() {
    let ground = Ground::cluster("rolling").await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let restart = async {
        for node in ground.nodes() {
            node.restart().await.unwrap();
            ground.poll_nodes_up().await;
        }
    };
    let flow = flow::during(&fleet, restart).await;
    assert!(flow.longest < HELD_UP_MAX, "{flow:?}");
    assert!(worker.is_alive());
    ground.check_history(flow.jobs).await;
}

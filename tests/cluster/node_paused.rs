//! A node that is suspended keeps its connections open and answers nothing. After two missed heartbeats its clients connect to the other
//! nodes, which continue to serve. When the node returns, no answer changes. (fault 10)

use std::time::Duration;

use gpufleet_tests::Ground;

use crate::flow;

/// The maximum delay of a job: two heartbeats of 10 s, and the time until the other nodes notice the fault and elect leaders.
const HELD_UP_MAX: Duration = Duration::from_secs(80);

#[tokio::test(flavor = "multi_thread")]
async fn the_clients_of_a_suspended_node_move_on() {
    let ground = Ground::cluster("node-paused").await;
    let worker = ground.worker().await;
    let fleet = ground.client().await;
    let node = ground.node_of(&format!("gpufleet {}", fleet.client())).await;
    let pause = async {
        ground.nodes()[node].pause();
        ground.poll_down(node).await;
    };
    let flow = flow::during(&fleet, pause).await;
    assert!(flow.longest < HELD_UP_MAX, "{flow:?}");
    // The clients stay with the other nodes. RabbitMQ 3 does not repair the network partition that a suspended node leaves, so an operator
    // restarts the node.
    let node = &ground.nodes()[node];
    let restart = async {
        node.resume();
        node.restart().await.unwrap();
        ground.poll_nodes_up().await;
    };
    let after = flow::during(&fleet, restart).await;
    assert!(worker.is_alive());
    ground.check_history(flow.jobs + after.jobs).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_client_passes_over_a_suspended_node() {
    let ground = Ground::cluster("passed-over").await;
    let _worker = ground.worker().await;
    ground.nodes()[2].pause();
    // One connection in three is tried at the suspended node first.
    for _ in 0..4 {
        let connecting = gpufleet::Fleet::connect(&ground.endpoints().amqp_url);
        let fleet = tokio::time::timeout(Duration::from_secs(10), connecting).await.expect("it moves on").unwrap();
        fleet.close().await;
    }
    ground.nodes()[2].resume();
    ground.poll_nodes_up().await;
}

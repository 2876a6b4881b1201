//! A node that is killed with SIGKILL loses no job, whatever its role: the other nodes elect leaders, and the node's clients connect to
//! another node. (fault 8)

use std::time::Duration;

use gpufleet_schema::{PoolName, Priority, topology::task_queue};
use gpufleet_tests::{Ground, NODES, Producer, TestWorker};

use crate::flow;

/// The maximum delay of a job. An election takes seconds, and a connection to another node takes less. This leaves time for two busy cores.
const HELD_UP_MAX: Duration = Duration::from_secs(30);

struct Scene {
    ground: Ground,
    worker: TestWorker,
    fleet: Producer,
}

impl Scene {
    async fn begin(label: &str) -> Self {
        let ground = Ground::cluster(label).await;
        let worker = ground.worker().await;
        let fleet = ground.client().await;
        Self { ground, worker, fleet }
    }

    async fn leader(&self) -> usize {
        self.ground.leader_of(&task_queue(&PoolName::default(), Priority::Normal)).await
    }

    async fn kill(self, node: usize) {
        let flow = flow::during(&self.fleet, async { self.ground.nodes()[node].kill9().await.unwrap() }).await;
        assert!(flow.longest < HELD_UP_MAX, "{flow:?}");
        assert!(self.worker.is_alive());
        // These checks run with two nodes. They are repeated after the third one has returned.
        self.ground.check_history(flow.jobs).await;
        self.ground.nodes()[node].restart().await.unwrap();
        self.ground.poll_nodes_up().await;
        self.ground.check_history(flow.jobs).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_of_the_task_queue_loses_no_job() {
    let scene = Scene::begin("leader-killed").await;
    let node = scene.leader().await;
    scene.kill(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_follower_of_the_task_queue_loses_no_job() {
    let scene = Scene::begin("follower-killed").await;
    let node = (scene.leader().await + 1) % NODES;
    scene.kill(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_moves_on_from_a_killed_node_and_gets_its_replies() {
    let scene = Scene::begin("producers-node-killed").await;
    let node = scene.ground.node_of(&format!("gpufleet {}", scene.fleet.client())).await;
    scene.kill(node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_moves_on_from_a_killed_node() {
    let scene = Scene::begin("workers-node-killed").await;
    let node = scene.ground.node_of(&format!("gpufleet-worker {}", scene.worker.name())).await;
    scene.kill(node).await;
}

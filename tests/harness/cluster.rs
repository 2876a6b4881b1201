//! Fleets on a cluster of three nodes.

use futures::future::join_all;
use gpufleet_local::{LocalFleet, RabbitMq, Services};

use crate::{
    Ground,
    exclusive::Exclusive,
    node::{LEADER, queue_record},
    poll::{poll_some, poll_until},
};

pub const NODES: usize = 3;

/// The cluster that scenarios may break. One scenario at a time uses it.
static CLUSTER: Exclusive = Exclusive::new(1);

impl Ground {
    /// Creates a fleet with exclusive use of a cluster of three nodes, which the scenario may break and leave broken.
    pub async fn cluster(label: &str) -> Self {
        let start = async || Services::ephemeral_cluster(NODES).await.unwrap_or_else(|error| panic!("{error}"));
        let held = CLUSTER.take(start, repair).await;
        Self::holding(LocalFleet::builder().label(label), held).await
    }

    pub fn nodes(&self) -> &[RabbitMq] {
        self.services().nodes()
    }

    /// Waits until all nodes run and every queue has a majority, as an operator does before the next step of a rolling restart.
    pub async fn poll_nodes_up(&self) {
        poll_nodes_up(self.services()).await;
        let quorum = "[] =:= [Q || Q <- rabbit_quorum_queue:list_with_minimum_quorum_for_cli()].";
        for node in self.nodes() {
            poll_until("every queue has a spare member", async || node.eval(quorum).await.unwrap() == "true").await;
        }
    }

    /// Waits until the other nodes count this one as down.
    pub async fn poll_down(&self, down: usize) {
        for (_, node) in self.nodes().iter().enumerate().filter(|(position, _)| *position != down) {
            poll_until("the others count the node as down", async || running(node).await == Some(NODES - 1)).await;
        }
    }

    /// Returns the position of the node that leads a quorum queue or a stream.
    pub async fn leader_of(&self, queue: &str) -> usize {
        let found = queue_record(queue);
        poll_some("the queue has a leader", async || {
            let leader = self.erlang(&format!("{found}, {LEADER}.")).await;
            let is_leader = |node: &RabbitMq| node.node_name() == leader.trim_matches('\'') && node.pid().is_some();
            self.nodes().iter().position(is_leader)
        })
        .await
    }

    /// Returns the queues that not every node holds.
    pub async fn unreplicated_queues(&self) -> String {
        let members = "maps:get(nodes, amqqueue:get_type_state(Q), [one])";
        let name = "begin {resource, _, queue, N} = amqqueue:get_name(Q), N end";
        self.erlang(&format!("[{name} || Q <- rabbit_amqqueue:list(@), length({members}) < {NODES}].")).await
    }

    /// Returns the position of the node to which the program with this name is connected.
    pub async fn node_of(&self, connection: &str) -> usize {
        let name = "{client_properties, P} <- rabbit_networking:connection_info(C, [client_properties])";
        let named = format!(
            "[C || C <- rabbit_networking:local_connections(), {name}, {{<<\"connection_name\">>, _, N}} <- P, \
             binary:match(N, <<\"{connection}\">>) =/= nomatch] =/= []."
        );
        poll_some("the program is connected", async || {
            for (position, node) in self.nodes().iter().enumerate().filter(|(_, node)| node.pid().is_some()) {
                if node.eval(&named).await.unwrap() == "true" {
                    return Some(position);
                }
            }
            None
        })
        .await
    }
}

/// Starts what the last scenario has stopped. Restarts all nodes if a network partition is left.
async fn repair(services: &Services) {
    let nodes = services.nodes();
    nodes.iter().for_each(RabbitMq::resume);
    RabbitMq::restart_stopped(nodes).await.unwrap();
    if !are_up(services).await {
        join_all(nodes.iter().map(RabbitMq::stop)).await;
        RabbitMq::restart_stopped(nodes).await.unwrap();
        poll_nodes_up(services).await;
    }
}

async fn poll_nodes_up(services: &Services) {
    poll_until("all nodes run", async || are_up(services).await).await;
}

async fn are_up(services: &Services) -> bool {
    let running = join_all(services.nodes().iter().map(running)).await;
    running.iter().all(|running| *running == Some(NODES))
}

/// Returns how many nodes this node knows to run. `None` if it does not run itself, as in a minority.
async fn running(node: &RabbitMq) -> Option<usize> {
    let running = node.eval("true = rabbit:is_running(), length(rabbit_nodes:all_running()).").await;
    running.ok()?.parse().ok()
}

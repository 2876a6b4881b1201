//! The place of a node among the nodes of a private cluster.

/// A node by its number, from 1. A broker of one node is its own first node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    number: usize,
    size: usize,
}

impl Member {
    pub(super) const ALONE: Self = Self { number: 1, size: 1 };

    /// All nodes of a cluster, the first one first.
    pub(super) fn all(size: usize) -> impl Iterator<Item = Self> {
        (1..=size).map(move |number| Self { number, size })
    }

    pub(super) fn is_first(self) -> bool {
        self.number == 1
    }

    pub(super) fn is_alone(self) -> bool {
        self.size == 1
    }

    /// The name of the node's directory and of its process.
    pub(super) fn name(self) -> String {
        if self.is_first() { "broker".to_owned() } else { format!("broker-{}", self.number) }
    }

    /// The name by which Erlang knows the node. Data on disk carry it.
    pub(super) fn node(self) -> String {
        if self.is_first() { FIRST_NODE.to_owned() } else { format!("gpufleet-{}@localhost", self.number) }
    }

    /// The settings that make a node without data join the cluster. The first node starts alone, and the others join it.
    pub(super) fn rabbitmq_conf(self) -> String {
        // A node that has lost the majority closes its connections, so that clients move to the majority.
        let partition = if self.is_alone() { "" } else { "cluster_partition_handling = pause_minority\n" };
        let joins = if self.is_first() {
            String::new()
        } else {
            format!(
                "cluster_formation.peer_discovery_backend = classic_config\n\
                 cluster_formation.classic_config.nodes.1 = {FIRST_NODE}\n"
            )
        };
        format!("{partition}{joins}")
    }
}

const FIRST_NODE: &str = "gpufleet@localhost";

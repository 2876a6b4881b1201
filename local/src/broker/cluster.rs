//! A private RabbitMQ cluster on loopback. Its nodes share one port mapper and one cookie.

use std::sync::Arc;

use futures::future::{join_all, try_join_all};

use super::{EPMD, EPMD_STOP_WITHIN, Member, RabbitMq};
use crate::{
    error::LocalError,
    process::{Process, Signal},
    state::StateDir,
};

impl RabbitMq {
    /// Starts a cluster of this many nodes in a new state directory. The first node starts first, and the others join it. When
    /// cancelled, processes may stay until the state directory's guard ends them.
    pub async fn start_cluster(state: &Arc<StateDir>, size: usize) -> Result<Vec<Self>, LocalError> {
        let mut members = Member::all(size);
        let first = members.next().expect("a cluster has a node");
        let first = Self::start_member(state, first, None).await?;
        let epmd = first.ports().epmd;
        let others = try_join_all(members.map(|member| Self::start_member(state, member, Some(epmd)))).await?;
        Ok(std::iter::once(first).chain(others).collect())
    }

    /// Starts those nodes of a cluster that do not run, at the same time: a node that stopped early waits for the one that stopped last.
    pub async fn restart_stopped(nodes: &[Self]) -> Result<(), LocalError> {
        try_join_all(nodes.iter().filter(|node| node.pid().is_none()).map(Self::restart)).await.map(drop)
    }

    /// Stops all nodes of a broker at the same time, and then their port mapper.
    pub async fn stop_all(state: &Arc<StateDir>, nodes: &[Self]) -> Result<(), LocalError> {
        let stopped = join_all(nodes.iter().map(Self::stop)).await;
        if let Some(epmd) = Process::attach(state, EPMD) {
            epmd.stop(Signal::Terminate, EPMD_STOP_WITHIN).await?;
        }
        stopped.into_iter().collect()
    }
}

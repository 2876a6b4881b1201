//! The broker: what only it knows, and the actions, which it checks and carries out.

use std::{
    collections::BTreeSet,
    sync::{Arc, RwLock},
    time::Duration,
};

use gpufleet::{Fleet, FleetBuilder};
use gpufleet_service::{
    Secret, chain,
    problem::{Problem, ProblemKind},
};
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// A broker answers within milliseconds. A viewer should soon see that it does not.
const ANSWER_DEADLINE: Duration = Duration::from_secs(3);
/// An action's message is confirmed within milliseconds. A viewer does not wait for an outage to end.
const CONFIRM_DEADLINE: Duration = Duration::from_secs(10);
/// Between two attempts to connect.
const CONNECT_AGAIN: Duration = Duration::from_secs(2);
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// Each pool has three queues, and each depth is a round trip.
const POOLS_MAX: usize = 64;

#[derive(Debug, Clone)]
pub struct Broker(Arc<RwLock<Link>>);

#[derive(Debug)]
enum Link {
    /// The console has no broker.
    Absent,
    /// It does not answer yet, with the reason.
    Away(String),
    Connected(Fleet),
}

/// What viewers see of the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrokerState {
    pub state: BrokerLink,
    /// Why it is not up.
    pub reason: Option<String>,
    pub pools: Vec<PoolQueues>,
    /// Messages in the dead-letter queue.
    pub dead: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BrokerLink {
    Absent,
    Away,
    Up,
}

/// The load of a pool's queues.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PoolQueues {
    pub pool: String,
    pub messages: u64,
    pub consumers: u32,
}

impl Broker {
    /// A console without a broker.
    pub fn absent() -> Self {
        Self(Arc::new(RwLock::new(Link::Absent)))
    }

    /// Connects in the background, until it succeeds or is stopped.
    pub(crate) fn connect(url: Secret, stop: CancellationToken) -> Self {
        let broker = Self(Arc::new(RwLock::new(Link::Away("the console is connecting".to_owned()))));
        let connecting = broker.clone();
        tokio::spawn(async move {
            let connected = async {
                loop {
                    match Box::pin(builder().connect(&url.0)).await {
                        Ok(fleet) => return fleet,
                        Err(error) => {
                            let reason = chain(&error);
                            warn!(error = %reason, "broker not connected; trying again");
                            connecting.set(Link::Away(reason));
                            tokio::time::sleep(CONNECT_AGAIN).await;
                        }
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => {}
                fleet = connected => {
                    info!("connected to the broker");
                    connecting.set(Link::Connected(fleet));
                }
            }
        });
        broker
    }

    fn set(&self, link: Link) {
        *self.0.write().expect("no panic happens under this lock") = link;
    }

    pub fn is_absent(&self) -> bool {
        matches!(*self.0.read().expect("no panic happens under this lock"), Link::Absent)
    }

    /// The connection for an action.
    pub fn fleet(&self) -> Result<Fleet, Problem> {
        match &*self.0.read().expect("no panic happens under this lock") {
            Link::Absent => Err(unavailable(
                "the console was started without a broker",
                "start it with --amqp-url or GPUFLEET_AMQP_URL",
            )),
            Link::Away(reason) => Err(away(reason)),
            Link::Connected(fleet) => Ok(fleet.clone()),
        }
    }

    /// The depths of these pools' queues.
    pub async fn state(&self, pools: &[String]) -> BrokerState {
        let link = |state, reason| BrokerState { state, reason, pools: Vec::new(), dead: None };
        if self.is_absent() {
            return link(BrokerLink::Absent, Some("the console was started without a broker".to_owned()));
        }
        let fleet = match self.fleet() {
            Ok(fleet) => fleet,
            Err(problem) => return link(BrokerLink::Away, Some(problem.detail.into_owned())),
        };
        match timeout(ANSWER_DEADLINE, depths(&fleet, pools)).await {
            Ok(Ok((pools, dead))) => BrokerState { state: BrokerLink::Up, reason: None, pools, dead },
            Ok(Err(reason)) => link(BrokerLink::Away, Some(reason)),
            Err(_) => link(
                BrokerLink::Away,
                Some(format!("the broker did not answer within {} s", ANSWER_DEADLINE.as_secs())),
            ),
        }
    }
}

fn builder() -> FleetBuilder {
    Fleet::builder().connect_deadline(CONNECT_DEADLINE).confirm_deadline(CONFIRM_DEADLINE)
}

async fn depths(fleet: &Fleet, pools: &[String]) -> Result<(Vec<PoolQueues>, Option<u64>), String> {
    let mut queues = Vec::new();
    for pool in pools.iter().take(POOLS_MAX) {
        let Ok(name) = pool.parse() else { continue };
        let depth = fleet.pool_depth(&name).await.map_err(|error| chain(&error))?;
        queues.push(PoolQueues { pool: pool.clone(), messages: depth.messages, consumers: depth.consumers });
    }
    let dead = fleet.dead_depth().await.map_err(|error| chain(&error))?;
    Ok((queues, dead))
}

/// The pools of the workers that the read API listed, sorted.
pub(crate) fn pools_of(workers: &[u8]) -> Vec<String> {
    #[derive(Deserialize)]
    struct Workers {
        workers: Vec<Worker>,
    }
    #[derive(Deserialize)]
    struct Worker {
        #[serde(default)]
        pools: Vec<String>,
    }
    let Ok(list) = serde_json::from_slice::<Workers>(workers) else { return Vec::new() };
    let pools: BTreeSet<String> = list.workers.into_iter().flat_map(|worker| worker.pools).collect();
    pools.into_iter().collect()
}

pub(crate) fn away(reason: &str) -> Problem {
    unavailable(reason, "the console tries again by itself; if it lasts, check the broker and GPUFLEET_AMQP_URL")
}

fn unavailable(reason: &str, next: &'static str) -> Problem {
    Problem::new(ProblemKind::BrokerUnavailable, "The broker is not available", reason.to_owned(), next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pools_are_those_of_all_workers() {
        let workers = br#"{"workers":[{"worker":"a","pools":["b","a"]},{"worker":"c","pools":["b"]},{"worker":"d"}]}"#;
        assert_eq!(pools_of(workers), ["a", "b"]);
        assert_eq!(pools_of(b"no JSON"), [""; 0]);
    }
}

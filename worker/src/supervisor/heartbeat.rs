//! Sends the worker's heartbeats to the ledger.

use std::{sync::Arc, time::Duration};

use gpufleet_schema::{Event, PoolPrograms, PoolSessions, ProgramsSeen, SessionsSeen, WorkerSeen};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Supervisor, clock::unix_ms, handle::Snapshot};
use crate::{config::Isolation, scheduler::PoolId};

/// Interval between heartbeats. A worker counts as silent after three missed ones, which is half a minute. Each heartbeat costs the ledger
/// one row of a batch.
const INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn beat(supervisor: Arc<Supervisor>, stop: CancellationToken) {
    let mut interval = tokio::time::interval(INTERVAL);
    while stop.run_until_cancelled(interval.tick()).await.is_some() {
        if let Err(error) = supervisor.events.send(Event::WorkerSeen(supervisor.seen(false).await)).await {
            warn!(%error, "heartbeat not sent");
        }
    }
}

impl Supervisor {
    pub(super) async fn seen(&self, leaving: bool) -> WorkerSeen {
        let snapshot = self.dispatcher.snapshot().await;
        WorkerSeen {
            worker: self.config.name.clone(),
            at_ms: unix_ms(),
            host: self.config.host.clone(),
            pid: std::process::id(),
            revision: env!("CARGO_PKG_VERSION").to_owned(),
            pools: self.config.pools.iter().map(|pool| pool.name.clone()).collect(),
            devices: self.devices.iter().map(|device| device.seen(&self.config, &self.monitor)).collect(),
            jobs_running: u32::try_from(snapshot.running).unwrap_or(u32::MAX),
            sessions: self.sessions_seen().await,
            programs: self.programs_seen(&snapshot),
            leaving,
        }
    }

    /// Returns what a heartbeat says of the worker's sessions, if its pools take some.
    async fn sessions_seen(&self) -> Option<SessionsSeen> {
        let takes = self.config.pools.iter().filter(|pool| pool.sessions.count > 0);
        let pools: Vec<_> =
            takes.map(|pool| PoolSessions { pool: pool.name.clone(), open_max: pool.sessions.count.into() }).collect();
        if pools.is_empty() {
            return None;
        }
        Some(SessionsSeen { hosts: self.session_hosts().await, ports: self.config.session_listen.ports(), pools })
    }

    /// Returns what a heartbeat says of the worker's host programs, if its pools take some.
    fn programs_seen(&self, snapshot: &Snapshot) -> Option<ProgramsSeen> {
        let takes = self.config.pools.iter().zip(&snapshot.pools).zip((0..).map(PoolId));
        let pools: Vec<_> = takes
            .filter(|((pool, _), _)| pool.programs.count > 0)
            .map(|((pool, of_pool), id)| PoolPrograms {
                pool: pool.name.clone(),
                taken_max: pool.programs.count.into(),
                running: self.devices.iter().map(|device| u32::from(device.runs_program_of(id))).sum(),
                waiting: u32::try_from(of_pool.programs_waiting).unwrap_or(u32::MAX),
                environments: match pool.programs.isolation {
                    Isolation::Environment => self.config.environments.keys().cloned().collect(),
                    Isolation::Podman => Vec::new(),
                },
                images: match pool.programs.isolation {
                    Isolation::Environment => Vec::new(),
                    Isolation::Podman => self.config.images.clone(),
                },
            })
            .collect();
        (!pools.is_empty()).then_some(ProgramsSeen { pools })
    }
}

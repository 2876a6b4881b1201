//! Serves Prometheus metrics from the start of the worker, even before devices and the broker are available.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock, Weak},
};

use gpufleet_service::{metrics as page, server};
use tracing::info;

use super::{Supervisor, WorkerError};
use crate::metrics::{Gauges, Metrics};

/// Serves the worker's metrics.
#[derive(Debug)]
pub(super) struct Exposition {
    metrics: Arc<Metrics>,
    supervisor: OnceLock<Weak<Supervisor>>,
}

impl Exposition {
    /// Starts the endpoint if an address is configured. Fails if the address can't be bound.
    pub(super) async fn begin(address: Option<SocketAddr>, metrics: &Arc<Metrics>) -> Result<Arc<Self>, WorkerError> {
        let exposition = Arc::new(Self { metrics: Arc::clone(metrics), supervisor: OnceLock::new() });
        if let Some(address) = address {
            let refused = |source| WorkerError::Metrics { address, source };
            let (listener, address) = server::listen(address).await.map_err(refused)?;
            info!(%address, "serving metrics");
            let shown = Arc::clone(&exposition);
            tokio::spawn(page::serve(listener, move || Arc::clone(&shown).text()));
        }
        Ok(exposition)
    }

    /// Attaches the supervisor whose state the gauges show.
    pub(super) fn is_of(&self, supervisor: &Arc<Supervisor>) {
        self.supervisor.get_or_init(|| Arc::downgrade(supervisor));
    }

    async fn text(self: Arc<Self>) -> String {
        if let Some(supervisor) = self.supervisor.get().and_then(Weak::upgrade) {
            supervisor.show(&self.metrics.gauges).await;
            if let Some(traces) = &supervisor.traces {
                self.metrics.set_spans(traces);
            }
        }
        self.metrics.text()
    }
}

impl Supervisor {
    /// Sets all gauges to their current values.
    async fn show(&self, gauges: &Gauges) {
        gauges.set_broker(&self.broker.state().borrow());
        gauges.set_events_unconfirmed(self.events.unconfirmed_bytes());
        self.metrics.set_progress_dropped(self.progress.dropped());
        for (pool, of_pool) in self.config.pools.iter().zip(self.dispatcher.snapshot().await.pools) {
            gauges.set_pool(&pool.name, of_pool.waiting, of_pool.messages);
            gauges.set_programs_waiting(&pool.name, of_pool.programs_waiting);
        }
        self.devices.iter().for_each(|device| device.show(&self.config, gauges));
    }
}

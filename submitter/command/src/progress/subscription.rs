//! Asks the broker for the progress of a job.

use std::time::Duration;

use gpufleet::{
    Fleet, ProgressError, ProgressUpdates,
    schema::{JobId, PoolName},
};

use crate::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    options::BrokerOptions,
};

/// The pause before the ledger is asked again for the pool of a job.
const POLL: Duration = Duration::from_secs(1);

/// The progress of one job.
#[derive(Debug)]
pub struct Subscription {
    pub updates: ProgressUpdates,
    /// Keeps the connection open.
    _fleet: Fleet,
}

impl Subscription {
    pub async fn to(fleet: Fleet, pool: &PoolName, job_id: JobId) -> Result<Self, Complaint> {
        let updates = fleet.progress_of(pool, job_id).await;
        let updates = updates.map_err(|error| Complaint {
            may_pass: !matches!(error, ProgressError::Forbidden { .. }),
            ..Complaint::new(Exit::Broker, chain(&error))
        })?;
        Ok(Self { updates, _fleet: fleet })
    }

    /// Connects to the broker once the ledger knows the pool of the job, which another command submitted.
    pub async fn connect(
        broker: &BrokerOptions,
        job_id: JobId,
        pool: impl AsyncFn() -> Option<String>,
    ) -> Result<Self, Complaint> {
        let pool = loop {
            match pool().await.and_then(|pool| pool.parse().ok()) {
                Some(pool) => break pool,
                None => tokio::time::sleep(POLL).await,
            }
        };
        let fleet = Box::pin(connection::fleet(broker, Fleet::builder())).await?;
        Self::to(fleet, &pool, job_id).await
    }
}

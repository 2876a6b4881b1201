//! The pool that a mistyped name probably stands for, according to the ledger.

use std::time::Duration;

use gpufleet::{SubmitError, schema::PoolName};
use gpufleet_kernels::spelling;
use gpufleet_ledger::WorkerFilter;

use super::{
    super::{complaint::Complaint, connection, options::BrokerOptions},
    Options,
};

/// The job was refused, so a slow ledger would only delay the message.
const ASKED_FOR: Duration = Duration::from_secs(2);
/// Workers that have been silent for longer are no part of the fleet any more.
const SILENCE_CONSIDERED: Duration = Duration::from_secs(3 * 24 * 3600);

/// Names the pool that was probably meant in the complaint about one without queues.
pub async fn explain(complaint: Complaint, error: &SubmitError, options: &Options) -> Complaint {
    let SubmitError::NoQueue { pool, .. } = error else { return complaint };
    match tokio::time::timeout(ASKED_FOR, meant(pool, options)).await {
        Ok(Some(meant)) => {
            complaint.hint(format!("did you mean --pool {meant}? `gpufleet workers` lists the pools in service"))
        }
        Ok(None) | Err(_) => complaint,
    }
}

async fn meant(pool: &PoolName, options: &Options) -> Option<String> {
    if !is_of_the_same_fleet(options, &options.producer.broker) {
        return None;
    }
    let ledger = connection::ledger(&options.ledger).await.ok()?;
    let filter = WorkerFilter { heard_within: Some(SILENCE_CONSIDERED), ..WorkerFilter::default() };
    let workers = ledger.workers(&filter).await;
    ledger.close().await;
    let workers = workers.ok()?;
    let pools = workers.iter().flat_map(|worker| &worker.pools).map(String::as_str);
    spelling::closest(pool.as_str(), pools).map(str::to_owned)
}

/// Without a URL, the ledger is that of the local fleet, which knows nothing of another broker.
const fn is_of_the_same_fleet(options: &Options, broker: &BrokerOptions) -> bool {
    options.ledger.database_url.is_some() || broker.amqp_url.is_none()
}

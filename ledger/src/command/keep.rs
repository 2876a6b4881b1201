//! `gpufleet-ledger keep`.

use gpufleet_ledger::retention::{self, KeepError, Kept, Outcome};
use tracing::info;

use super::{
    exit::{Exit, Failure},
    options::Keep,
    services::{database_url, invalid},
};

pub(super) async fn run(options: Keep) -> Result<(), Failure> {
    let url = database_url(&options.database.database_url.0).map_err(invalid)?;
    let (jobs, attempts) = (options.jobs, options.attempts);
    let kept = Kept { jobs, attempts, samples: options.samples, actions: options.actions };
    match retention::keep(&url, kept, options.archive.as_ref()).await {
        Ok(Outcome::Dropped(partitions)) => info!(partitions, "dropped the months that are no longer kept"),
        Ok(Outcome::Busy) => info!("another process drops old months now"),
        Err(KeepError::Ledger(error)) => return Err(Failure::from(error).doing("drop old months")),
        Err(error @ KeepError::Archive(_)) => return Err(Failure::new(Exit::Internal, error).doing("drop old months")),
    }
    Ok(())
}

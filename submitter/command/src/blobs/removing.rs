//! `gpufleet blobs rm` and `gpufleet blobs prune`: delete blobs.

use std::{sync::Arc, time::Duration};

use clap::Args;
use gpufleet::schema::BlobDigest;
use gpufleet_blobs::Pruned;
use gpufleet_ledger::{Ledger, MarkError, PRUNED_AGE_DEFAULT, PruneError, prune_blobs};

use super::{getting, listing::describe_one};
use crate::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::Exit,
    options::{BlobOptions, LedgerOptions},
    output, quantity, spec,
    waiting::Spinner,
};

#[derive(Debug, Args)]
pub struct RmOptions {
    /// Digests of the blobs, as `gpufleet blobs ls` prints them
    #[arg(value_name = "DIGEST", required = true)]
    digests: Vec<BlobDigest>,
    /// Delete blobs that jobs use, too, and do not ask the ledger
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    store: BlobOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

#[derive(Debug, Args)]
pub struct PruneOptions {
    /// Minimum time since a blob was last stored, such as 30days [default: 2days with a ledger]. Without a ledger, the command can't know
    /// which blobs are in use: choose more than the longest time that jobs are queued or clients wait for outputs
    #[arg(long, value_name = "DURATION", value_parser = spec::duration)]
    older_than: Option<Duration>,
    #[command(flatten)]
    store: BlobOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

pub async fn rm(options: &RmOptions) -> Result<Exit, Complaint> {
    let store = connection::blob_store(&options.store).await?;
    if !options.force {
        check_unused(options).await?;
    }
    for digest in &options.digests {
        if !store.remove(*digest).await.map_err(|error| blob_complaint(&error))? {
            return Err(getting::missing(*digest));
        }
        output::emit(&format!("{digest} deleted\n"))?;
    }
    Ok(Exit::Success)
}

/// Refuses to delete a blob that a job uses.
async fn check_unused(options: &RmOptions) -> Result<(), Complaint> {
    let Some(ledger) = connection::ledger_of_store(&options.store, &options.ledger).await? else {
        return Err(Complaint::usage("without a ledger, the command can't know whether jobs use the blobs")
            .hint("give --database-url, or --force to delete them in any case"));
    };
    let uses = ledger.blob_uses(Some(&options.digests)).await;
    ledger.close().await;
    let uses = uses.map_err(|error| connection::ledger_complaint(&error))?;
    match options.digests.iter().find_map(|digest| Some((digest, uses.get(digest)?.first()?))) {
        Some((digest, job)) => Err(Complaint::bad_input(format!("{digest} is in use: job {}", describe_one(job)))
            .hint("nothing was deleted; leave it out, or give --force to delete it in any case")),
        None => Ok(()),
    }
}

pub async fn prune(options: &PruneOptions) -> Result<Exit, Complaint> {
    let store = connection::blob_store(&options.store).await?;
    let pruned = match connection::ledger_of_store(&options.store, &options.ledger).await? {
        Some(ledger) => {
            let older_than = options.older_than.unwrap_or(PRUNED_AGE_DEFAULT);
            let pruning = prune_blobs(&ledger, &store, older_than);
            let pruned = Spinner::new("deleting blobs that no job uses").around(pruning).await;
            Ledger::close(&ledger).await;
            pruned.map_err(|error| complaint(&error))?
        }
        None => {
            let Some(older_than) = options.older_than else { return Err(no_ledger()) };
            let pruning = Spinner::new("deleting blobs").around(store.prune(older_than, Arc::default()));
            pruning.await.map_err(|error| blob_complaint(&error))?
        }
    };
    output::emit(&describe(&pruned))?;
    Ok(Exit::Success)
}

fn no_ledger() -> Complaint {
    Complaint::usage("without a ledger, the command can't know which blobs are in use").hint(
        "give --database-url; or --older-than with more than the longest time that jobs are queued or clients wait for outputs",
    )
}

fn complaint(error: &PruneError) -> Complaint {
    match error {
        PruneError::Mark(MarkError::Ledger(error)) => connection::ledger_complaint(error).hint("nothing was deleted"),
        PruneError::Mark(MarkError::Behind { .. } | MarkError::NeverCaughtUp) => {
            Complaint::new(Exit::Ledger, error.to_string()).hint("nothing was deleted; prune again once it has")
        }
        PruneError::Sweep(error) => blob_complaint(error),
    }
}

fn describe(pruned: &Pruned) -> String {
    let told = |files: u64, bytes: u64| {
        format!("{files} blob{} ({})", if files == 1 { "" } else { "s" }, quantity::bytes(bytes))
    };
    let Pruned { removed, removed_bytes, left, left_bytes } = *pruned;
    format!("{} deleted, {} left\n", told(removed, removed_bytes), told(left, left_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deleted_and_kept_blobs_are_counted() {
        let pruned = Pruned { removed: 1, removed_bytes: 1 << 20, left: 0, left_bytes: 0 };
        assert_eq!(describe(&pruned), "1 blob (1.00 MiB) deleted, 0 blobs (0 B) left\n");
    }
}

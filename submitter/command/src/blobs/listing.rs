//! `gpufleet blobs ls`: the blobs of a store, and which jobs use them.

use std::{cmp::Reverse, collections::HashMap, time::SystemTime};

use chrono::{DateTime, Utc};
use clap::Args;
use gpufleet::schema::BlobDigest;
use gpufleet_blobs::BlobEntry;
use gpufleet_ledger::{BlobUse, age};
use serde::Serialize;

use crate::{
    complaint::Complaint,
    connection::{self, blob_complaint},
    exit::Exit,
    json,
    options::{BlobOptions, Format, LedgerOptions, OutputOptions},
    output, quantity,
    table::{self, Column},
    time,
    waiting::Spinner,
};

#[derive(Debug, Args)]
#[command(after_long_help = json::BLOBS_LS)]
pub struct LsOptions {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    store: BlobOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// A blob, and the jobs that use it.
#[derive(Debug, Serialize)]
struct Listed {
    digest: BlobDigest,
    bytes: u64,
    stored_at: DateTime<Utc>,
    /// `null`: there is no ledger to ask.
    used_by: Option<Vec<BlobUse>>,
}

pub async fn ls(options: &LsOptions) -> Result<Exit, Complaint> {
    let listing = async {
        let store = connection::blob_store(&options.store).await?;
        let ledger = connection::ledger_of_store(&options.store, &options.ledger).await?;
        let entries = store.list().await.map_err(|error| blob_complaint(&error))?;
        let uses = match ledger {
            Some(ledger) => {
                let uses = ledger.blob_uses(None).await.map_err(|error| connection::ledger_complaint(&error))?;
                ledger.close().await;
                Some(uses)
            }
            None => None,
        };
        Ok(listed(entries, uses))
    };
    let blobs = Spinner::new("listing blobs").around(listing).await?;
    match options.output.format {
        Format::Json => output::emit_json(&blobs)?,
        Format::Table if blobs.is_empty() => output::note("the store has no blobs"),
        Format::Table => output::emit(&table_of(&blobs, Utc::now()))?,
    }
    Ok(Exit::Success)
}

/// The latest first.
fn listed(mut entries: Vec<BlobEntry>, mut uses: Option<HashMap<BlobDigest, Vec<BlobUse>>>) -> Vec<Listed> {
    entries.sort_by_key(|entry| (Reverse(entry.stored_at), entry.digest));
    let blob = |BlobEntry { digest, bytes, stored_at }| Listed {
        digest,
        bytes,
        stored_at: DateTime::<Utc>::from(SystemTime::max(stored_at, SystemTime::UNIX_EPOCH)),
        used_by: uses.as_mut().map(|uses| uses.remove(&digest).unwrap_or_default()),
    };
    entries.into_iter().map(blob).collect()
}

fn table_of(blobs: &[Listed], now: DateTime<Utc>) -> String {
    let columns = [Column::Left("BLOB"), Column::Right("SIZE"), Column::Right("AGE"), Column::Left("USED BY")];
    table::render(
        &columns,
        blobs.iter().map(|blob| {
            let used_by = blob.used_by.as_deref().map_or_else(|| "?".to_owned(), describe);
            vec![blob.digest.to_string(), quantity::bytes(blob.bytes), age(now - blob.stored_at), used_by]
        }),
    )
}

/// The first job, and how many others there are.
fn describe(uses: &[BlobUse]) -> String {
    match uses {
        [] => "-".to_owned(),
        [only] => describe_one(only),
        [first, rest @ ..] => format!("{}, and {} more", describe_one(first), rest.len()),
    }
}

pub fn describe_one(job: &BlobUse) -> String {
    match (&job.output, job.until) {
        (Some(output), Some(until)) => format!("{}/{output} until {}", job.job_id, time::seconds(until)),
        _ => format!("{} as input", job.job_id),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn blobs_are_listed_with_the_jobs_that_use_them() {
        let stored = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let [unused, input, kept] = [b"a", b"b", b"c"].map(|bytes| BlobDigest::of(bytes));
        let entry = |digest, bytes, stored_at| BlobEntry { digest, bytes, stored_at };
        let entries = vec![
            entry(unused, 10, stored(1_700_000_000)),
            entry(input, 1 << 20, stored(1_700_003_600)),
            entry(kept, 3 << 20, stored(1_700_003_599)),
        ];
        let job_id = "01990f3e-0000-7000-8000-000000000001".parse().unwrap();
        let until = DateTime::from_timestamp(1_700_090_000, 0);
        let kept_output = BlobUse { job_id, output: Some("y".to_owned()), until };
        let uses = HashMap::from([
            (input, vec![BlobUse { job_id, output: None, until: None }]),
            (kept, vec![kept_output.clone(), kept_output]),
        ]);
        let now = DateTime::from_timestamp(1_700_007_200, 0).unwrap();
        let blobs = listed(entries.clone(), Some(uses));
        insta::assert_snapshot!(table_of(&blobs, now));
        insta::assert_snapshot!("json_of_listed_blobs", serde_json::to_string_pretty(&blobs).unwrap());
        json::check(json::BLOBS_LS, &blobs);
        assert!(table_of(&listed(entries, None), now).contains('?'), "without a ledger");
    }
}

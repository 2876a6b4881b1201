//! `gpufleet-bench pruning`: deletes unused blobs in a loop, next to producers whose jobs use and keep blobs, and checks that no job fails
//! for a missing blob. Real pruning spares blobs that are younger than two days. Here it is a few seconds, so that only the ledger protects
//! the blobs in use.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use anyhow::{Context as _, ensure};
use futures::future::try_join_all;
use gpufleet::{Array, Fleet, Job};
use gpufleet_blobs::{BlobLocation, BlobStore};
use gpufleet_ledger::{Ledger, MarkError, PruneError, prune_blobs};
use gpufleet_local::{Cuda, Lines, LocalFleet};
use gpufleet_local_s3::Server;
use tokio::time::{Instant, sleep};

use crate::programs;

/// The number of floats in 1 MiB, the least that a client stores in the blob store.
const FLOATS: usize = 1 << 18;
/// The minimum age of deleted blobs: longer than an event takes to reach the ledger, and than a producer takes to read its outputs.
const UNUSED_FOR: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
const KEPT: Duration = Duration::from_secs(10);
const BUCKET: &str = "bench";

#[derive(Debug, clap::Args)]
pub struct Options {
    /// How long to run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=600))]
    minutes: u64,
    /// The store
    #[arg(long, value_enum, default_value_t = StoreKind::Folder)]
    store: StoreKind,
    /// Producers
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    producers: u32,
    /// The worker's device: emulated, auto, system, or a driver library's path
    #[arg(long, default_value = "emulated")]
    cuda: Cuda,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StoreKind {
    Folder,
    Bucket,
}

/// The store of this benchmark.
struct Store {
    /// The location with the key, for this program.
    location: BlobLocation,
    /// The variables for the workers.
    environment: Vec<(&'static str, String)>,
    /// The server of a bucket, which ends when it is dropped.
    _server: Option<Server>,
    _folder: tempfile::TempDir,
}

#[derive(Debug, Default)]
struct Counts {
    jobs: AtomicU64,
    rounds: AtomicU64,
    removed: AtomicU64,
}

pub async fn run(options: &Options) -> anyhow::Result<()> {
    programs::build()?;
    let place = Store::start(options.store)?;
    let builder = LocalFleet::builder().label("bench").workers(1).cuda(options.cuda.clone());
    let builder = place.environment.iter().fold(builder, |builder, (name, value)| builder.worker_env(*name, value));
    let fleet = builder.start_with(&Lines).await?;
    let counts = Counts::default();
    let until = Instant::now() + Duration::from_secs(60 * options.minutes);
    let worked = async {
        let store = BlobStore::open(place.location.clone()).await?;
        let ledger = Ledger::connect(fleet.endpoints().database_url.parse()?).await?;
        let producers = (0..options.producers).map(|number| produce(&fleet, &place.location, number, until, &counts));
        tokio::try_join!(try_join_all(producers), prune(&ledger, &store, until, &counts))
    };
    let worked = Box::pin(worked).await;
    let stopped = fleet.stop().await;
    worked?;
    stopped.context("failed to stop the fleet")?;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    println!(
        "{} jobs succeeded next to {} prunings, which removed {} blobs; none failed",
        count(&counts.jobs),
        count(&counts.rounds),
        count(&counts.removed)
    );
    ensure!(count(&counts.removed) > 0, "pruning removed nothing, so this has shown nothing");
    Ok(())
}

impl Store {
    fn start(kind: StoreKind) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir().context("failed to make a folder for blobs")?;
        let path = folder.path();
        Ok(match kind {
            StoreKind::Folder => {
                let text = path.to_str().context("the folder's name is not UTF-8")?.to_owned();
                let environment = vec![("GPUFLEET_BLOBS", text)];
                Self { location: path.into(), environment, _server: None, _folder: folder }
            }
            StoreKind::Bucket => {
                let server = Server::start(path)?;
                server.create_bucket(BUCKET)?;
                let url = format!("s3://{BUCKET}?endpoint={}", server.endpoint());
                let (id, secret) = (&server.credentials().access_key_id, &server.credentials().secret_access_key);
                let location = url.parse::<BlobLocation>()?.with_credentials(id, secret);
                let environment = vec![
                    ("GPUFLEET_BLOBS", url),
                    ("AWS_ACCESS_KEY_ID", id.clone()),
                    ("AWS_SECRET_ACCESS_KEY", secret.clone()),
                ];
                Self { location, environment, _server: Some(server), _folder: folder }
            }
        })
    }
}

/// Submits jobs in pairs: the second takes the kept output of the first.
async fn produce(
    fleet: &LocalFleet,
    location: &BlobLocation,
    producer: u32,
    until: Instant,
    counts: &Counts,
) -> anyhow::Result<()> {
    let endpoints = fleet.endpoints();
    let client =
        Fleet::builder().blobs(location.clone()).ledger(&endpoints.database_url).connect(&endpoints.amqp_url).await?;
    for number in 0_u32.. {
        if Instant::now() >= until {
            break;
        }
        // Some arrays are used again later, when their blobs may have been deleted.
        let value = (producer * 1000 + number % 100) as f32;
        let job = || Job::catalog("saxpy").scalar("a", 1.0).input_array("y", Array::from_slice(&vec![1.0_f32; FLOATS]));
        let first = client.submit(job().input("x", &vec![value; FLOATS]).keep(KEPT)).await?;
        let id = first.id();
        let y: Vec<f32> = first.await?.output("y")?;
        ensure!(y.iter().all(|y| *y == value + 1.0), "wrong numbers");
        while client.result(id).await.is_err() {
            sleep(PAUSE).await;
        }
        let dtype = gpufleet::schema::Dtype::F32;
        let next = job().input_from("x", dtype, [FLOATS as u64], id, "y");
        let y: Vec<f32> = client.submit(next).await?.await?.output("y")?;
        ensure!(y.iter().all(|y| *y == value + 2.0), "wrong numbers");
        counts.jobs.fetch_add(2, Ordering::Relaxed);
    }
    client.close().await;
    Ok(())
}

async fn prune(ledger: &Ledger, store: &BlobStore, until: Instant, counts: &Counts) -> anyhow::Result<()> {
    while Instant::now() < until {
        match prune_blobs(ledger, store, UNUSED_FOR).await {
            Ok(pruned) => {
                counts.rounds.fetch_add(1, Ordering::Relaxed);
                counts.removed.fetch_add(pruned.removed, Ordering::Relaxed);
            }
            // The recorder notes its progress a moment after its start.
            Err(PruneError::Mark(MarkError::NeverCaughtUp)) => {}
            Err(error) => return Err(error.into()),
        }
        sleep(PAUSE).await;
    }
    Ok(())
}

//! Which blobs pruning removes, on a real Postgres and a folder.

use std::{
    fs::{self, File},
    path::Path,
    time::{Duration, SystemTime},
};

use gpufleet_blobs::BlobStore;
use gpufleet_ledger::{
    BLOB_GRACE, DatabaseUrl, Ledger, MarkError, PRUNED_AGE_DEFAULT, PruneError, prune_blobs, pruning::BlobPruner,
    recorder::Store,
};
use gpufleet_schema::{
    AttemptFinished, AttemptState, BlobDigest, Dtype, Event, JobInfo, KeptData, KeptOutput, KeptOutputs, Submitted,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::{
    database::Database,
    histories::{finished, id, info, started},
    poll::poll,
};

const AT: i64 = 1_763_164_800_000;
const HOUR_MS: i64 = 3_600_000;
const THREE_DAYS: Duration = Duration::from_secs(3 * 24 * 3600);

struct Scene {
    database: Database,
    recorder: Store,
    ledger: Ledger,
    folder: TempDir,
    blobs: BlobStore,
}

impl Scene {
    async fn new() -> Self {
        let (database, folder) = (Database::fresh().await, tempfile::tempdir().unwrap());
        let (recorder, ledger) = database.open().await;
        let blobs = BlobStore::open(folder.path()).await.unwrap();
        Self { database, recorder, ledger, folder, blobs }
    }

    /// Stores a blob, and dates it back by this age.
    async fn blob(&self, name: &str, age: Duration) -> BlobDigest {
        let digest = self.blobs.put(name.as_bytes().to_vec()).await.unwrap();
        let file = File::open(file(self.folder.path(), digest)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
        digest
    }

    fn has(&self, digest: BlobDigest) -> bool {
        file(self.folder.path(), digest).exists()
    }

    async fn record(&mut self, events: &[Event]) {
        assert_eq!(self.recorder.record(events).await.unwrap(), []);
    }

    async fn caught_up(&mut self, ago: Duration) {
        self.recorder.note_caught_up(ago).await.unwrap();
    }

    async fn prune(&self) -> Result<u64, PruneError> {
        prune_blobs(&self.ledger, &self.blobs, PRUNED_AGE_DEFAULT).await.map(|pruned| pruned.removed)
    }

    /// Dates the end of a job's use of its inputs back.
    async fn end_inputs(&self, job: &JobInfo, ago: &str) {
        let moved =
            format!("update job_inputs set ended_at = now() - interval '{ago}' where job_id = '{}'", job.job_id);
        self.database.execute(&moved).await;
    }
}

fn file(folder: &Path, digest: BlobDigest) -> std::path::PathBuf {
    folder.join(digest.file_name())
}

fn job(index: u32, blobs: &[BlobDigest]) -> JobInfo {
    JobInfo { blobs: blobs.to_vec(), ..info(id(1, index, Some(AT)), AT) }
}

fn submitted(job: &JobInfo) -> Event {
    Event::Submitted(Submitted { job: job.clone(), at_ms: AT })
}

fn ended(job: &JobInfo) -> Event {
    finished(job.job_id, 1, AttemptState::Succeeded, AT + 9)
}

/// Returns the end of a job that keeps an output until this time.
fn kept(index: u32, digest: BlobDigest, expires_ms: i64) -> Event {
    let Event::AttemptFinished(end) = ended(&job(index, &[])) else { unreachable!() };
    let output = KeptOutput { name: "y".into(), dtype: Dtype::U8, shape: vec![1], data: KeptData::Blob(digest) };
    let kept = Some(Box::new(KeptOutputs { expires_ms, outputs: vec![output] }));
    Event::AttemptFinished(AttemptFinished { kept, ..end })
}

fn now_ms() -> i64 {
    i64::try_from(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

#[tokio::test]
async fn blobs_in_use_survive_and_all_others_go() {
    let mut scene = Scene::new().await;
    let old = async |name| scene.blob(name, THREE_DAYS).await;
    let young = scene.blob("young", PRUNED_AGE_DEFAULT - Duration::from_secs(3600)).await;
    let live =
        [old("queued").await, old("running").await, old("lost").await, old("just ended").await, old("kept").await];
    let [queued, running, lost, just_ended, kept_output] = live;
    let just_expired = old("just expired").await;
    let dead = [old("unnamed").await, old("ended long ago").await, old("expired long ago").await];
    let [_, long_ended, long_expired] = dead;
    let [ending, past] = [job(4, &[just_ended]), job(5, &[long_ended])];
    let events = [
        submitted(&job(1, &[queued])),
        started(&job(2, &[running]), 1, AT + 1),
        submitted(&job(3, &[lost])),
        finished(job(3, &[]).job_id, 1, AttemptState::Lost, AT + 5),
        submitted(&ending),
        ended(&ending),
        submitted(&past),
        ended(&past),
        kept(6, kept_output, now_ms() + HOUR_MS),
        kept(7, just_expired, now_ms() - HOUR_MS),
        kept(8, long_expired, now_ms() - 72 * HOUR_MS),
    ];
    scene.record(&events).await;
    scene.end_inputs(&past, "49 hours").await;
    scene.end_inputs(&ending, "47 hours").await;
    scene.caught_up(Duration::ZERO).await;
    assert_eq!(scene.prune().await.unwrap(), dead.len() as u64);
    assert!(live.into_iter().chain([just_expired, young]).all(|digest| scene.has(digest)));
    assert!(!dead.into_iter().any(|digest| scene.has(digest)));
    let uses = scene.ledger.blob_uses(None).await.unwrap();
    let mut used: Vec<BlobDigest> = uses.keys().copied().collect();
    let mut expected = vec![queued, running, lost, kept_output];
    used.sort();
    expected.sort();
    assert_eq!(used, expected);
    assert_eq!(uses[&kept_output][0].output.as_deref(), Some("y"));
    let one = scene.ledger.blob_uses(Some(&[running, just_ended])).await.unwrap();
    assert_eq!(one[&running][0].job_id, job(2, &[]).job_id);
    assert_eq!(one.len(), 1);
}

#[tokio::test]
async fn nothing_is_removed_while_the_ledger_may_not_know_of_every_job() {
    let mut scene = Scene::new().await;
    let unnamed = scene.blob("unnamed", THREE_DAYS).await;
    let refused = scene.prune().await.unwrap_err();
    assert!(matches!(refused, PruneError::Mark(MarkError::NeverCaughtUp)), "{refused}");
    scene.caught_up(BLOB_GRACE / 2 + Duration::from_secs(60)).await;
    let refused = scene.prune().await.unwrap_err();
    assert!(matches!(refused, PruneError::Mark(MarkError::Behind { .. })), "{refused}");
    scene.caught_up(BLOB_GRACE / 2 - Duration::from_secs(60)).await;
    scene.database.execute("alter table job_inputs rename to away").await;
    assert!(matches!(scene.prune().await, Err(PruneError::Mark(MarkError::Ledger(_)))));
    assert!(scene.has(unnamed));
    scene.database.execute("alter table away rename to job_inputs").await;
    assert_eq!(scene.prune().await.unwrap(), 1);
}

#[tokio::test]
async fn the_inputs_of_a_job_have_ended_whichever_event_comes_first() {
    let mut scene = Scene::new().await;
    let digest = scene.blob("x", THREE_DAYS).await;
    let jobs = [job(1, &[digest]), job(2, &[digest])];
    scene.record(&[submitted(&jobs[0])]).await;
    scene.record(&[ended(&jobs[0])]).await;
    scene.record(&[ended(&jobs[1])]).await;
    // A late submission that names the same blob several times.
    scene.record(&[submitted(&JobInfo { blobs: vec![digest; 3], ..jobs[1].clone() })]).await;
    assert_eq!(scene.database.execute("select count(*) from job_inputs where ended_at is null").await.trim(), "0");
    assert_eq!(scene.database.execute("select count(*) from job_inputs").await.trim(), "2");
    scene.end_inputs(&jobs[0], "49 hours").await;
    scene.recorder.upkeep().await.unwrap();
    assert_eq!(scene.database.execute("select count(*) from job_inputs").await.trim(), "1", "one is forgotten");
}

#[tokio::test]
async fn one_of_two_scheduled_pruners_prunes_a_store() {
    let mut scene = Scene::new().await;
    let unnamed = scene.blob("unnamed", THREE_DAYS).await;
    scene.caught_up(Duration::ZERO).await;
    let stop = CancellationToken::new();
    let url: DatabaseUrl = scene.database.url();
    let pruner = || {
        let every = Duration::from_millis(20);
        let pruner = BlobPruner::new(url.clone(), scene.folder.path().into(), every);
        tokio::spawn(pruner.run(stop.clone()))
    };
    let pruners = [pruner(), pruner()];
    poll("the blob is gone", async || !scene.has(unnamed)).await;
    // Both pruners continue. A blob that becomes old is removed too, and there is one leader all the time.
    let another = scene.blob("another", THREE_DAYS).await;
    poll("the other blob is gone", async || !scene.has(another)).await;
    let locks = "select count(*) from pg_locks where locktype = 'advisory' and granted \
                 and database = (select oid from pg_database where datname = current_database())";
    assert_eq!(scene.database.execute(locks).await.trim(), "1");
    stop.cancel();
    for pruner in pruners {
        pruner.await.unwrap();
    }
    // A pruner that is stopped while it reads the store's clock removes its probe file on a thread of its own.
    poll("the folder is empty", async || fs::read_dir(scene.folder.path()).unwrap().count() == 0).await;
}

use std::sync::Arc;

use futures::poll;
use gpufleet_schema::{
    BlobDigest, Dtype, Encoding, Failure, FailureCode, Inline, OneOrMany, Output, OutputData, Reply, Timings, VERSION,
    Verdict, bounds::BLOBS_BYTES_MAX,
};

use super::*;
use crate::inbox::Inbox;

/// A blob store, and a job whose reply a test can deliver.
struct Scene {
    folder: tempfile::TempDir,
    store: BlobStore,
    inbox: Arc<Inbox>,
    pending: PendingResult,
}

const Y: [u8; 4] = [1, 2, 3, 4];

fn stored(name: &str, shape: Vec<u64>, contents: &[u8]) -> Output<'static> {
    let data = OutputData::Blob(BlobDigest::of(contents));
    Output { name: name.to_owned(), dtype: Dtype::U8, shape, data }
}

fn inline(name: &str, contents: &[u8]) -> Output<'static> {
    let data = Inline::from(contents.to_vec()).into();
    Output { name: name.to_owned(), dtype: Dtype::U8, shape: vec![contents.len() as u64], data }
}

fn y() -> Output<'static> {
    stored("y", vec![2, 2], &Y)
}

impl Scene {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = BlobStore::open(folder.path()).await.unwrap();
        let inbox = Arc::new(Inbox::default());
        let pending = PendingResult::new(inbox.expect(JobId::new(), None).unwrap(), Instant::now());
        Self { folder, store, inbox, pending }
    }

    fn reply(&self, outputs: Vec<Output<'static>>) -> Reply<'static> {
        Reply {
            version: VERSION,
            job_id: Some(self.pending.job_id()),
            attempt: 1,
            state: AttemptState::Succeeded,
            failure: None,
            outputs,
            timings: Timings::default(),
            ran_on: None,
            printf_output: None,
            session: None,
        }
    }

    fn deliver(&self, reply: Reply<'static>) {
        let body = Encoding::MessagePack.encode_replies(&OneOrMany::One(reply)).unwrap();
        self.inbox.deliver(Encoding::MessagePack, None, &body).unwrap();
    }

    fn answer(&self, outputs: Vec<Output<'static>>) {
        self.deliver(self.reply(outputs));
    }

    async fn result(&mut self) -> Result<JobResult, JobError> {
        self.pending.result(Some(&self.store)).await
    }

    async fn problem(&mut self) -> String {
        match self.result().await {
            Err(JobError::BadReply { problem, .. }) => problem,
            other => panic!("{other:?} is not a bad reply"),
        }
    }

    fn file(&self, contents: &[u8]) -> std::path::PathBuf {
        self.folder.path().join(BlobDigest::of(contents).file_name())
    }
}

#[tokio::test]
async fn outputs_are_read_from_the_store_and_keep_their_order() {
    let mut scene = Scene::new().await;
    scene.store.put(Y).await.unwrap();
    scene.answer(vec![y(), inline("z", &[9]), stored("again", vec![4], &Y)]);
    let result = scene.result().await.unwrap();
    let names: Vec<&str> = result.outputs.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["y", "z", "again"]);
    assert_eq!(result.array("y").unwrap().shape(), [2, 2]);
    assert_eq!(result.output::<u8>("y").unwrap(), Y);
    assert_eq!(result.output::<u8>("z").unwrap(), [9]);
    assert!(matches!(scene.result().await, Err(JobError::Closed { .. })), "a job has one result");
}

#[tokio::test]
async fn a_wait_that_does_not_read_leaves_the_outputs_in_the_store() {
    let mut scene = Scene::new().await;
    // The blob is not even there.
    scene.answer(vec![y(), inline("z", &[9])]);
    let result = scene.pending.unread().await.unwrap();
    let crate::UnreadOutput::Stored(found) = result.array("y").unwrap() else { panic!("{result:?}") };
    assert_eq!((found.digest(), found.shape()), (BlobDigest::of(&Y), &[2, 2][..]));
    let crate::UnreadOutput::Array(z) = result.array("z").unwrap() else { panic!("{result:?}") };
    assert_eq!(z.bytes(), [9]);
}

/// The test has one thread, so the read continues only while the test waits.
#[tokio::test]
async fn a_wait_that_is_cancelled_while_it_reads_loses_nothing() {
    let mut scene = Scene::new().await;
    scene.store.put(Y).await.unwrap();
    scene.answer(vec![inline("z", &[9]), y()]);
    for _ in 0..2 {
        assert!(poll!(std::pin::pin!(scene.result())).is_pending(), "the wait is cancelled while it reads");
        assert_eq!(scene.pending.reading.len(), 1, "the first read continues");
    }
    assert_eq!(scene.result().await.unwrap().output::<u8>("y").unwrap(), Y);
}

#[tokio::test]
async fn a_wait_that_is_cancelled_before_the_reply_loses_nothing() {
    let mut scene = Scene::new().await;
    assert!(poll!(std::pin::pin!(scene.result())).is_pending());
    scene.answer(vec![inline("z", &[9])]);
    assert_eq!(scene.result().await.unwrap().output::<u8>("z").unwrap(), [9]);
}

#[tokio::test]
async fn an_unreadable_output_is_an_error_and_the_next_wait_reads_it_again() {
    let mut scene = Scene::new().await;
    scene.answer(vec![inline("z", &[9]), y()]);
    let (digest, folder) = (BlobDigest::of(&Y), scene.folder.path().display().to_string());
    assert_eq!(
        scene.problem().await,
        format!(
            "output \"y\": failed to find {digest} in the blob store {folder}; check that client and workers use the same \
             store, and that no clean-up deletes new blobs"
        )
    );
    let file = scene.file(&Y);
    std::fs::write(&file, [1, 2, 3]).unwrap();
    assert_eq!(
        scene.problem().await,
        format!(
            "output \"y\": failed to read {digest}: its content in the blob store {folder} does not match the digest; store the \
             array again to repair it; submit the job again"
        )
    );
    std::fs::write(&file, [1, 2, 3, 5]).unwrap();
    assert!(scene.problem().await.contains("does not match the digest"));
    std::fs::write(&file, Y).unwrap();
    assert_eq!(scene.result().await.unwrap().outputs.len(), 2);
}

#[tokio::test]
async fn without_a_store_the_error_says_how_to_set_one() {
    let mut scene = Scene::new().await;
    scene.answer(vec![y()]);
    let error = scene.pending.result(None).await.unwrap_err();
    let told = error.to_string();
    assert!(matches!(error, JobError::BadReply { .. }), "{told}");
    assert!(
        told.contains("this client has no store; name the store") && told.contains("FleetBuilder::blobs"),
        "{told}"
    );
}

#[tokio::test]
async fn sizes_beyond_the_bound_are_refused_before_anything_is_read() {
    let most = BLOBS_BYTES_MAX;
    let refused = [
        (
            vec![stored("y", vec![u64::MAX, 2], &Y)],
            "output \"y\": u8[18446744073709551615, 2] is larger than any memory",
        ),
        (
            vec![stored("y", vec![most + 1], &Y)],
            "its outputs in the blob store have 1.00 GiB in total, but at most 1.00 GiB",
        ),
        (vec![stored("y", vec![1 << 60], &Y)], "blob store have 1.00 EiB in total, but at most 1.00 GiB"),
        (
            vec![y(), stored("z", vec![most - 3], &Y)],
            "its outputs in the blob store have 1.00 GiB in total, but at most",
        ),
        (vec![stored("y", vec![u64::MAX], &Y), stored("z", vec![u64::MAX], &Y)], "have 16.0 EiB in total, but at most"),
    ];
    for (outputs, expected) in refused {
        let mut scene = Scene::new().await;
        scene.answer(outputs);
        let problem = scene.problem().await;
        assert!(problem.contains(expected), "{problem}");
        assert!(scene.pending.reading.is_empty());
    }
}

#[tokio::test]
async fn outputs_of_a_failed_job_are_not_read() {
    let mut scene = Scene::new().await;
    let failure = Failure::new(Verdict::User, FailureCode::KernelFault, "m");
    let reply = Reply { state: AttemptState::Failed, failure: Some(failure), ..scene.reply(vec![y()]) };
    scene.deliver(reply);
    assert!(matches!(scene.result().await, Err(JobError::Failed(_))));
}

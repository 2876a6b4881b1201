//! A client with a client name gets the replies that an earlier program did not take, each of them once. Results that were taken are read
//! from the ledger while they are kept.

use std::{process::Stdio, time::Duration};

use gpufleet::{AttachError, ConnectError, Fleet, FleetBuilder, JobError, JobHandle, ResultError};
use gpufleet_schema::{AttemptState, ClientName, JobId, bounds::KEPT_INLINE_BYTES_MAX, topology::reply_queue};
use gpufleet_tests::{Ground, WAIT, kernels, poll_until};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

const NAME: &str = "gpufleet-nightly";
/// The deadline for a reply that is in the queue already.
const SOON: Duration = Duration::from_millis(500);

async fn named(ground: &Ground) -> Fleet {
    builder().connect(&ground.endpoints().amqp_url).await.unwrap()
}

fn builder() -> FleetBuilder {
    Fleet::builder().client(NAME)
}

fn with_ledger(ground: &Ground) -> FleetBuilder {
    builder().ledger(&ground.endpoints().database_url)
}

async fn doubled(handle: &mut JobHandle) -> Vec<f32> {
    handle.wait(WAIT).await.unwrap().output("y").unwrap()
}

/// Returns how many messages in the reply queue are held by no client.
async fn waiting(ground: &Ground) -> Option<u32> {
    let queue = reply_queue(&NAME.parse::<ClientName>().unwrap());
    ground.broker().await.queue_depth(&queue).await.unwrap().map(|depth| depth.messages)
}

/// Starts the program that submits two jobs and takes the first result. Returns once it has submitted, or, if `answered`, once it has taken
/// the result.
async fn program(ground: &Ground, answered: bool) -> (Child, [JobId; 2]) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_gpufleet-named-client"))
        .args([&ground.endpoints().amqp_url, NAME])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut line = async || {
        let line = tokio::time::timeout(WAIT, lines.next_line()).await.expect("the program prints a line");
        line.unwrap().unwrap()
    };
    let ids = line().await;
    let (first, second) = ids.split_once(' ').unwrap();
    let ids = [first, second].map(|id| id.parse().unwrap());
    if answered {
        assert_eq!(line().await, "[2.0]");
    }
    (program, ids)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_program_finds_each_reply_once_that_it_did_not_take() {
    let (ground, _worker) = Ground::with_worker("attaching").await;
    let (mut program, [first, second]) = program(&ground, true).await;
    ground.final_job(second).await;
    program.kill().await.unwrap();
    let fleet = named(&ground).await;
    poll_until("the second reply", async || fleet.unread() == [second]).await;
    let mut handle = fleet.attach(second).await.unwrap();
    assert_eq!(doubled(&mut handle).await, [4.0]);
    assert!(fleet.unread().is_empty());
    assert!(matches!(handle.wait(WAIT).await, Err(JobError::Closed { .. })), "a handle returns one result");
    assert!(matches!(fleet.attach(second).await, Err(AttachError::Taken { .. })));
    // The program took this result.
    let mut taken = fleet.attach(first).await.unwrap();
    assert!(matches!(taken.wait(SOON).await, Err(JobError::DeadlinePassed { .. })));
    fleet.close().await;
    assert_eq!(waiting(&ground).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_that_dies_before_its_jobs_run_attaches_to_them() {
    let ground = Ground::shared("attaching-early").await;
    let (mut program, ids) = program(&ground, false).await;
    program.kill().await.unwrap();
    let fleet = named(&ground).await;
    let mut handles = [fleet.attach(ids[0]).await.unwrap(), fleet.attach(ids[1]).await.unwrap()];
    assert!(matches!(fleet.attach(ids[0]).await, Err(AttachError::AlreadyAwaited { .. })));
    let _worker = ground.worker().await;
    assert_eq!(doubled(&mut handles[1]).await, [4.0]);
    assert_eq!(doubled(&mut handles[0]).await, [2.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_whose_handle_was_dropped_stays_for_another_handle() {
    let (ground, _worker) = Ground::with_worker("attaching-again").await;
    let fleet = named(&ground).await;
    let handles = fleet.submit_many((0..20_u8).map(|x| kernels::doubles(&[f32::from(x)]))).await;
    let ids: Vec<JobId> = handles.into_iter().map(|handle| handle.unwrap().id()).collect();
    poll_until("all replies", async || fleet.unread().len() == ids.len()).await;
    for (x, id) in (0..20_u8).zip(ids) {
        let mut handle = fleet.attach(id).await.unwrap();
        assert_eq!(doubled(&mut handle).await, [2.0 * f32::from(x)]);
    }
    fleet.close().await;
    assert_eq!(waiting(&ground).await, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_watches_and_deletes_the_replies_of_another_name() {
    let (ground, _worker) = Ground::with_worker("attaching-watched").await;
    let watching = Fleet::connect(&ground.endpoints().amqp_url).await.unwrap();
    let name: ClientName = NAME.parse().unwrap();
    assert_eq!(watching.replies_waiting(&name).await.unwrap(), None);
    let fleet = named(&ground).await;
    let id = JobId::new();
    drop(fleet.submit(kernels::doubles(&[1.0]).with_id(id)).await.unwrap());
    fleet.close().await;
    poll_until("the reply", async || watching.replies_waiting(&name).await.unwrap() == Some(1)).await;
    assert_eq!(ground.final_job(id).await.job.job_id, id);
    let fleet = named(&ground).await;
    assert_eq!(doubled(&mut fleet.attach(id).await.unwrap()).await, [2.0]);
    // The client itself may delete its queue, and does not create another one.
    fleet.delete_replies(&name).await.unwrap();
    fleet.close().await;
    assert_eq!(watching.replies_waiting(&name).await.unwrap(), None);
    watching.delete_replies(&name).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_belongs_to_one_connection_at_a_time() {
    let ground = Ground::shared("attaching-twice").await;
    let first = named(&ground).await;
    // The deadline applies to the connection itself too.
    let second = builder().connect_deadline(Duration::from_secs(10)).connect(&ground.endpoints().amqp_url).await;
    let refused = second.unwrap_err();
    assert!(matches!(refused, ConnectError::NameInUse { .. }), "{refused}");
    assert!(refused.to_string().contains("another connection uses it"), "{refused}");
    first.close().await;
    named(&ground).await.close().await;
    let other_time = builder().keep_replies(SOON).connect(&ground.endpoints().amqp_url).await.unwrap_err();
    let told = other_time.to_string();
    assert!(told.contains("x-expires") && told.contains("keep replies for the same time"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_was_taken_comes_from_the_ledger() {
    let (ground, _worker) = Ground::with_worker("attaching-ledger").await;
    let fleet = with_ledger(&ground).connect(&ground.endpoints().amqp_url).await.unwrap();
    let mut kept = fleet.submit(kernels::doubles(&[3.0]).keep(WAIT * 60)).await.unwrap();
    let mut lost = fleet.submit(kernels::doubles(&[3.0])).await.unwrap();
    let mut bad = fleet.submit(kernels::doubles(&[3.0]).entry("absent").cover([1])).await.unwrap();
    assert_eq!(doubled(&mut kept).await, [6.0]);
    assert_eq!(doubled(&mut lost).await, [6.0]);
    assert!(bad.wait(WAIT).await.is_err());
    // A client without a name reads them too.
    let other = Fleet::builder().ledger(&ground.endpoints().database_url);
    for fleet in [fleet, other.connect(&ground.endpoints().amqp_url).await.unwrap()] {
        assert_eq!(doubled(&mut fleet.attach(kept.id()).await.unwrap()).await, [6.0]);
        let gone = fleet.attach(lost.id()).await.unwrap().wait(WAIT).await.unwrap_err();
        assert!(matches!(gone, JobError::Unavailable { .. }) && gone.to_string().contains("kept no outputs"), "{gone}");
        let JobError::Failed(failed) = fleet.attach(bad.id()).await.unwrap().wait(WAIT).await.unwrap_err() else {
            panic!("the job has failed");
        };
        assert_ne!(failed.state, AttemptState::Succeeded);
        assert!(failed.failure.is_some());
    }
    let nameless = Fleet::connect(&ground.endpoints().amqp_url).await.unwrap();
    assert!(matches!(nameless.attach(kept.id()).await, Err(AttachError::NoName { .. })));
    assert!(matches!(nameless.result(kept.id()).await, Err(ResultError::NoLedger)));
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_outputs_are_read_whole_and_in_parts() {
    let blobs = tempfile::tempdir().unwrap();
    let ground =
        Ground::with_environment("results-in-parts", &[("GPUFLEET_BLOBS", blobs.path().to_str().unwrap())]).await;
    let _worker = ground.worker().await;
    let fleet = with_ledger(&ground).blobs(blobs.path()).connect(&ground.endpoints().amqp_url).await.unwrap();
    let in_ledger = (KEPT_INLINE_BYTES_MAX / 4) as u16;
    for count in [in_ledger, in_ledger + 1] {
        let x: Vec<f32> = (0..count).map(f32::from).collect();
        // A client with a name and a store keeps outputs by default.
        let id = fleet.submit(kernels::doubles(&x)).await.unwrap().id();
        ground.final_job(id).await;
        let result = fleet.result(id).await.unwrap();
        let y = result.output("y").unwrap();
        assert_eq!((y.shape(), y.digest().is_some()), (&[u64::from(count)][..], count > in_ledger));
        let whole = y.read().await.unwrap();
        assert_eq!(whole.to_vec::<f32>().unwrap(), x.iter().map(|x| 2.0 * x).collect::<Vec<_>>());
        assert_eq!(y.read_part(8..16).await.unwrap(), whole.bytes()[8..16]);
        assert_eq!(y.write_to(Vec::new()).await.unwrap(), whole.bytes());
        assert!(matches!(result.output("z"), Err(ResultError::NoOutput { .. })));
    }
    assert!(matches!(fleet.result(JobId::new()).await, Err(ResultError::UnknownJob { .. })));
}

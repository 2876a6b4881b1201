//! Many jobs over one connection: each gets its own outcome, alone in a message or packed with others.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{StreamExt as _, stream};
use gpufleet::{Fleet, Job};
use gpufleet_schema::Dtype;
use gpufleet_tests::{Ground, WAIT, busy, poll_until};

const JOBS: usize = 1000;

fn saxpy(index: usize) -> Job {
    let x: Vec<f32> = (0..64).map(|i| (i + index) as f32).collect();
    Job::catalog("saxpy").scalar("a", 2.0).input("x", &x).input("y", &vec![index as f32; 64])
}

fn assert_saxpy(index: usize, y: &[f32]) {
    for (i, value) in y.iter().enumerate() {
        assert_eq!(*value, 2.0 * (i + index) as f32 + index as f32, "job {index}, element {i}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_jobs_with_256_in_flight_are_all_answered() {
    let ground = Ground::shared("flight").await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    let results = stream::iter(0..JOBS).map(|index| {
        let fleet = &fleet;
        async move {
            let mut handle = fleet.submit(saxpy(index)).await.unwrap();
            (index, handle.wait(WAIT).await.unwrap())
        }
    });
    let mut results = results.buffer_unordered(256);
    let mut answered = 0;
    while let Some((index, result)) = results.next().await {
        assert_saxpy(index, &result.output::<f32>("y").unwrap());
        answered += 1;
    }
    assert_eq!(answered, JOBS);
    ground.check_history(JOBS).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn packed_jobs_are_answered_each_by_its_own_outcome() {
    let ground = Ground::shared("packed").await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    // One job in ten names an entry that its program does not have, which only the worker finds out.
    let jobs = (0..JOBS).map(|index| match index % 10 {
        7 => Job::ptx(".version 8.0\n.target sm_80\n.address_size 64\n").entry("missing").cover([1]),
        _ => saxpy(index),
    });
    let handles = fleet.submit_many(jobs).await;
    assert_eq!(handles.len(), JOBS);
    for (index, handle) in handles.into_iter().enumerate() {
        let outcome = handle.unwrap().wait(WAIT).await;
        match index % 10 {
            7 => assert!(outcome.unwrap_err().failure().unwrap().message.contains("missing"), "job {index}"),
            _ => assert_saxpy(index, &outcome.unwrap().output::<f32>("y").unwrap()),
        }
    }
    assert_eq!(fleet.counts().replies_dropped, 0);
    ground.check_history(JOBS).await;
}

/// One message whose jobs return more than an executor can stage at once: answered portion by portion, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn packed_jobs_with_large_outputs_do_not_wait_for_each_other() {
    const OUTPUT_BYTES: u64 = 8 << 20;
    const LARGE_JOBS: usize = 40;
    let ground = Ground::shared("large-outputs").await;
    let _worker = ground.worker().await;
    let fleet = ground.client().await;
    let job = || busy::for_millis(1).zeros("large", Dtype::U8, [OUTPUT_BYTES]).output("large");
    for handle in fleet.submit_many((0..LARGE_JOBS).map(|_| job())).await {
        let result = handle.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.array("large").unwrap().bytes().len() as u64, OUTPUT_BYTES);
    }
    ground.check_history(LARGE_JOBS).await;
}

/// Encoded copies of a hundred thousand large tasks would fill any memory.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_taken_from_their_source_as_messages_are_confirmed() {
    const LARGE_JOBS: usize = 100;
    /// The bound of what may be unconfirmed, and one that waits for company.
    const TAKEN: usize = 32 + 1;
    /// Ample for taking them all, were there no bound.
    const HELD: Duration = Duration::from_secs(1);
    let ground = Ground::breakable("taken").await;
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(Duration::MAX)).await;
    // The queues are declared by now.
    let first = fleet.submit(saxpy(0)).await.unwrap();
    let taken = AtomicUsize::new(0);
    let zeros = vec![0.0_f32; 32 << 10];
    let jobs = (0..LARGE_JOBS).map(|_| {
        taken.fetch_add(1, Ordering::Relaxed);
        Job::catalog("saxpy").scalar("a", 2.0).input("x", &zeros).input("y", &zeros)
    });
    ground.services().broker().pause();
    let mut sending = pin!(fleet.submit_many(jobs));
    tokio::select! {
        _ = &mut sending => panic!("a frozen broker confirms nothing"),
        () = poll_until("as many as may be are under way", async || taken.load(Ordering::Relaxed) >= TAKEN) => {}
    }
    assert!(tokio::time::timeout(HELD, &mut sending).await.is_err());
    assert_eq!(taken.load(Ordering::Relaxed), TAKEN);

    ground.services().broker().resume();
    let handles = sending.await;
    let _worker = ground.worker().await;
    for handle in std::iter::once(Ok(first)).chain(handles) {
        handle.unwrap().wait(WAIT).await.unwrap();
    }
    ground.check_history(LARGE_JOBS + 1).await;
}

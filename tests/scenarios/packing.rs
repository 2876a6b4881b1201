//! Many jobs over one connection: each gets its own outcome, whether its message has other jobs or not.

use std::{
    pin::pin,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use futures::{StreamExt as _, future, stream};
use gpufleet::{Fleet, Job};
use gpufleet_local::Signal;
use gpufleet_schema::{Dtype, PoolName};
use gpufleet_tests::{Ground, METRICS, Silence, WAIT, busy, kernels, poll_until};

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
    let (ground, _worker, fleet) = Ground::served("flight").await;
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
async fn each_packed_job_gets_its_own_outcome() {
    let (ground, _worker, fleet) = Ground::served("packed").await;
    // One job in ten names an entry that its program does not have. Only the worker notices that.
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

/// The client knows the run times from earlier replies. No worker takes messages while the test counts them.
#[tokio::test(flavor = "multi_thread")]
async fn short_jobs_that_are_submitted_at_the_same_time_share_messages_and_long_ones_do_not() {
    const SHORT_JOBS: usize = 200;
    const LONG_JOBS: usize = 4;
    /// The number of jobs with known run times. With so many, the first runs on a busy machine no longer matter.
    const KNOWN: usize = 100;
    let (ground, worker, fleet) = Ground::served("gathered").await;
    for index in 0..KNOWN {
        fleet.submit(saxpy(index)).await.unwrap().wait(WAIT).await.unwrap();
    }
    fleet.submit(busy::for_millis(20)).await.unwrap().wait(WAIT).await.unwrap();
    worker.stop(Signal::Terminate).await;

    let pool = PoolName::default();
    let messages = async || fleet.pool_depth(&pool).await.unwrap().messages;
    let long = future::try_join_all((0..LONG_JOBS).map(|_| fleet.submit(busy::for_millis(20)))).await.unwrap();
    assert_eq!(messages().await, LONG_JOBS as u64);
    let short = future::try_join_all((0..SHORT_JOBS).map(|index| fleet.submit(saxpy(index)))).await.unwrap();
    let shared = messages().await - LONG_JOBS as u64;
    assert!(shared <= SHORT_JOBS as u64 / 2, "{SHORT_JOBS} jobs took {shared} messages");

    let _worker = ground.worker().await;
    for mut handle in long {
        handle.wait(WAIT).await.unwrap();
    }
    for (index, mut handle) in short.into_iter().enumerate() {
        assert_saxpy(index, &handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap());
    }
    ground.check_history(KNOWN + 1 + LONG_JOBS + SHORT_JOBS).await;
}

/// The outputs of one message exceed what an executor can stage at once, so the worker must reply in portions.
#[tokio::test(flavor = "multi_thread")]
async fn packed_jobs_with_large_outputs_do_not_wait_for_each_other() {
    const OUTPUT_BYTES: u64 = 8 << 20;
    const LARGE_JOBS: usize = 40;
    let (ground, _worker, fleet) = Ground::served("large-outputs").await;
    let job = || busy::for_millis(1).zeros("large", Dtype::U8, [OUTPUT_BYTES]).output("large");
    for handle in fleet.submit_many((0..LARGE_JOBS).map(|_| job())).await {
        let result = handle.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.array("large").unwrap().bytes().len() as u64, OUTPUT_BYTES);
    }
    ground.check_history(LARGE_JOBS).await;
}

/// The broker confirms no reply of a list, and later confirms slowly. The list holds no more outputs than its bound,
/// other jobs run meanwhile, and in the end all replies arrive.
#[tokio::test(flavor = "multi_thread")]
async fn a_list_with_slowly_confirmed_replies_is_bounded_and_blocks_no_other_job() {
    const OUTPUT_BYTES: u64 = 8 << 20;
    const LARGE_JOBS: usize = 12;
    /// The number of jobs whose outputs fit into a list's 64 MiB. Each returns 8 MiB and a number.
    const HELD: usize = 7;
    /// The number of small jobs, which run one after the other. Without the bound, the rest of the list would run in
    /// that time.
    const SMALL_JOBS: usize = 20;
    let ground = Ground::shared("slow-list").await;
    let (proxy, fleet) = (ground.proxy().await, ground.client().await);
    // Neither side may treat the silence as the end of the connection.
    let arguments = ["--amqp-url", proxy.url(), "--heartbeat", "120s"];
    let worker = ground.worker_with(&[&arguments[..], &METRICS].concat()).await;
    proxy.silence(Silence::Publishing);
    let large = |index| kernels::doubles(&[index as f32]).zeros("large", Dtype::U8, [OUTPUT_BYTES]).output("large");
    let list = fleet.submit_many((0..LARGE_JOBS).map(large)).await;
    let attempts = ("gpufleet_attempts_total", [("state", "succeeded")]);
    worker.poll_metric("outputs fill their room", attempts.0, &attempts.1, HELD as f64).await;
    assert_eq!(worker.metrics().await.sum("gpufleet_messages_held", &[]), 1.0, "the jobs arrived as one list");
    let mut small = Vec::new();
    for number in 1..=SMALL_JOBS {
        small.push(fleet.submit(kernels::doubles(&[0.5])).await.unwrap());
        // The metric would be higher if one more job of the list ran.
        worker.poll_metric("a small job runs past the list", attempts.0, &attempts.1, (HELD + number) as f64).await;
    }
    assert_eq!(fleet.counts().replies, 0, "no reply was confirmed");

    proxy.clear();
    proxy.delay(Duration::from_millis(1));
    for handle in &mut small {
        assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [1.0]);
    }
    for (index, handle) in list.into_iter().enumerate() {
        let result = handle.unwrap().wait(WAIT).await.unwrap();
        assert_eq!(result.output::<f32>("y").unwrap(), [2.0 * index as f32]);
        let large = result.array("large").unwrap().bytes();
        assert!(large.len() as u64 == OUTPUT_BYTES && large.iter().all(|byte| *byte == 0), "job {index}");
    }
    worker.poll_metric("the list is acknowledged", "gpufleet_messages_held", &[], 0.0).await;
    assert_eq!(
        worker.metrics().await.sum("gpufleet_attempts_total", &[]),
        (LARGE_JOBS + SMALL_JOBS) as f64,
        "each job ran once"
    );
    assert_eq!(fleet.counts().replies_dropped, 0);
    ground.check_history(LARGE_JOBS + SMALL_JOBS).await;
}

/// The encoded copies of many large tasks would fill the memory otherwise.
#[tokio::test(flavor = "multi_thread")]
async fn submit_many_takes_jobs_as_messages_are_confirmed() {
    const LARGE_JOBS: usize = 100;
    /// The number of jobs that are taken: the maximum of unconfirmed messages, and one message that is not full.
    const TAKEN: usize = 32 + 1;
    /// How long the confirms are held back; long enough that all jobs would be taken if there were no bound.
    const HELD: Duration = Duration::from_secs(1);
    let ground = Ground::breakable("taken").await;
    let fleet = ground.client_with(Fleet::builder().confirm_deadline(Duration::MAX)).await;
    // The first job declares the reply queue.
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
        () = poll_until("submit_many has taken as many jobs as it may", async || taken.load(Ordering::Relaxed) >= TAKEN) => {}
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

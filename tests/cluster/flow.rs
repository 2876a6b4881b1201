//! A steady flow of jobs while a fault happens.

use std::{
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

use futures::future::join_all;
use gpufleet_tests::{Producer, WAIT, busy, poll_until};

/// The number of jobs in flight: as many as a worker with two devices runs at a time.
const IN_FLIGHT: usize = 8;
const JOB_MILLIS: u64 = 20;
/// The number of jobs that must be answered before the fault, and again after it.
const SOME: usize = 40;

/// The results of the flow.
#[derive(Debug, Clone, Copy)]
pub struct Flow {
    pub jobs: usize,
    /// The longest time from a submission to the result.
    pub longest: Duration,
}

/// Keeps submitting jobs, from some time before the fault until some time after it. Every job must be confirmed and succeed.
pub async fn during(fleet: &Producer, fault: impl Future<Output = ()>) -> Flow {
    let (answered, has_ended) = (AtomicUsize::new(0), AtomicBool::new(false));
    let some_more = async |what: &str| {
        let before = answered.load(Ordering::Relaxed);
        poll_until(what, async || answered.load(Ordering::Relaxed) >= before + SOME).await;
    };
    let lane = async || {
        let mut longest = Duration::ZERO;
        while !has_ended.load(Ordering::Relaxed) {
            let submitted = Instant::now();
            let mut job = fleet.submit_until_confirmed(&busy::for_millis(JOB_MILLIS)).await;
            let result = job.wait(WAIT).await.unwrap_or_else(|error| panic!("{}: {error}", job.id()));
            busy::assert_done(&result.outputs);
            longest = longest.max(submitted.elapsed());
            answered.fetch_add(1, Ordering::Relaxed);
        }
        longest
    };
    let disturb = async {
        some_more("jobs flow before the fault").await;
        fault.await;
        some_more("jobs flow after the fault").await;
        has_ended.store(true, Ordering::Relaxed);
    };
    let (longest, ()) = tokio::join!(join_all((0..IN_FLIGHT).map(|_| lane())), disturb);
    let flow = Flow { jobs: answered.into_inner(), longest: longest.into_iter().max().unwrap_or_default() };
    println!("{} jobs, the longest took {:?}", flow.jobs, flow.longest);
    flow
}

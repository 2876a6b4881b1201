//! Tests that the progress of a job shows while it runs.

use std::pin::pin;

use gpufleet_schema::{Arg, Block, Count, Launch, Task};
use gpufleet_worker::executor::{ExecutorJob, JobProgress, Reached};

use crate::harness::{job, launch, poll_until, ptx_task, start, u32_arg};

const SLOW: &str = include_str!("slow.ptx");
/// Turns of a loop that take the emulator some milliseconds.
const TURNS: u32 = 1_000_000;

/// One launch that is repeated, and another one. Each launch has 32 threads, which all count.
fn slow(repeat: u32) -> Task<'static> {
    let mut task = ptx_task(SLOW);
    let total = 32 * (u64::from(repeat) + 1);
    let launch =
        || Launch { block: Block::Threads(vec![32]), ..launch("slow", 32, vec![Arg::Progress(total), u32_arg(TURNS)]) };
    task.launches = vec![Launch { repeat, ..launch() }, launch()];
    task
}

#[tokio::test]
async fn launches_repeats_and_the_counter_show_while_the_job_runs() {
    let executor = start().await;
    // So many that a mark is not behind each, and the stream waits for earlier launches.
    let task = slow(400);
    let progress = JobProgress::of(&task);
    let mut running = pin!(executor.run(ExecutorJob { progress: Some(&progress), ..job(&task) }));
    let is_amid = |count: Count| (1..count.total).contains(&count.done);
    let mut last = progress.reached();
    let amid = poll_until("the job is seen amid its work", || {
        progress.look();
        let Reached { launches, counter, .. } = progress.reached();
        assert!(launches.done >= last.launches.done && counter.unwrap().done >= last.counter.unwrap().done);
        last = progress.reached();
        is_amid(launches) && is_amid(counter.unwrap())
    });
    tokio::select! {
        finished = &mut running => panic!("it ended before: {finished:?}, {:?}", progress.reached()),
        () = amid => {}
    }
    // Every finished launch has counted.
    let reached = progress.reached();
    assert!(reached.counter.unwrap().done >= 32 * reached.launches.done, "{reached:?}");
    assert_eq!(reached.launches.total, 401);
    running.await.unwrap().outcome.unwrap();
    // A look at a job that has ended does nothing.
    progress.look();
}

#[tokio::test]
async fn a_counter_is_zero_at_first_and_is_not_an_output() {
    let executor = start().await;
    let mut task = slow(1);
    task.launches.iter_mut().for_each(|launch| launch.args[1] = u32_arg(1));
    for _ in 0..2 {
        let progress = JobProgress::of(&task);
        let finished = executor.run(ExecutorJob { progress: Some(&progress), ..job(&task) }).await.unwrap();
        assert!(finished.outcome.unwrap().is_empty());
        assert_eq!(progress.reached().counter, Some(Count { done: 0, total: 64 }), "the executor was not asked");
    }
}

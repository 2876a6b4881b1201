//! Tests of pools with several executors on a device: long jobs are kept apart, short ones are put together.

use gpufleet_schema::BlobDigest;

use super::{
    super::{Action, Change, Demand, DeviceId, ExecutorId, PoolId, Scheduler, Ticket},
    NONE, demand, left, starts, with_device,
};

fn executor(index: u32) -> ExecutorId {
    ExecutorId { device: DeviceId(0), pool: PoolId(0), index }
}

/// Creates a scheduler with one device of 100 bytes and one pool, which has so many executors.
fn with_executors(count: u32) -> Scheduler {
    let mut scheduler = with_device(8, 100);
    (1..count).for_each(|index| drop(scheduler.step([Change::ExecutorUp(executor(index))])));
    scheduler
}

fn arrived(ticket: u64, demand: Demand) -> Change {
    Change::Arrived(Ticket(ticket), demand)
}

fn short() -> Demand {
    demand(1)
}

fn long() -> Demand {
    Demand { is_long: true, ..demand(1) }
}

/// Returns the executors in which the jobs of these demands start, with the tickets `first`, `first + 1`, …
fn places(scheduler: &mut Scheduler, first: u64, demands: &[Demand]) -> Vec<Option<u32>> {
    let mut place = |(ticket, demand): (u64, &Demand)| match scheduler.step([arrived(ticket, *demand)])[..] {
        [Action::Start(started, executor)] if started == Ticket(ticket) => Some(executor.index),
        [] => None,
        ref other => panic!("unexpected {other:?}"),
    };
    (first..).zip(demands).map(&mut place).collect()
}

#[test]
fn short_jobs_share_the_first_executor_and_long_ones_get_their_own() {
    let mut scheduler = with_executors(3);
    let placed = places(&mut scheduler, 1, &[short(), long(), short(), long()]);
    assert_eq!(placed, [Some(0), Some(1), Some(0), Some(2)]);
    scheduler.step([left(2)]);
    assert_eq!(places(&mut scheduler, 5, &[long()]), [Some(1)], "the one that is empty again");
}

#[test]
fn long_jobs_share_only_if_no_executor_is_empty_and_then_the_first_one_last() {
    let mut scheduler = with_executors(3);
    let placed = places(&mut scheduler, 1, &[long(); 7]);
    assert_eq!(placed, [1, 2, 0, 1, 2, 1, 2].map(Some));
    scheduler.step([left(1), left(4)]);
    assert_eq!(places(&mut scheduler, 8, &[long(), short()]), [Some(1), Some(0)], "the one with the fewest jobs");
}

#[test]
fn all_jobs_of_a_pool_with_one_executor_share_it() {
    let mut scheduler = with_executors(1);
    assert_eq!(places(&mut scheduler, 1, &[long(), short(), long()]), [Some(0); 3]);
}

#[test]
fn no_job_starts_in_an_executor_that_is_down() {
    let mut scheduler = with_executors(2);
    scheduler.step([Change::ExecutorDown(executor(0))]);
    assert_eq!(places(&mut scheduler, 1, &[short()]), [Some(1)]);
    scheduler.step([Change::ExecutorUp(executor(0)), Change::ExecutorDown(executor(1))]);
    assert_eq!(places(&mut scheduler, 2, &[long(), long()]), [Some(0); 2]);
    scheduler.step([Change::ExecutorUp(executor(1))]);
    assert_eq!(places(&mut scheduler, 4, &[long()]), [Some(1)], "the job of the ended one has not left yet");
    scheduler.step([left(1)]);
    assert_eq!(places(&mut scheduler, 5, &[long()]), [Some(1)], "the fewest jobs beside the first executor");
}

#[test]
fn a_suspect_needs_one_executor_without_jobs_and_keeps_it_to_itself() {
    let suspect = Demand { alone: true, ..short() };
    let mut scheduler = with_executors(2);
    assert_eq!(places(&mut scheduler, 1, &[short(), suspect, short()]), [Some(0), Some(1), Some(0)]);
    assert_eq!(places(&mut scheduler, 4, &[long()]), [Some(0)], "the other one is taken");
    assert_eq!(places(&mut scheduler, 5, &[suspect]), [None]);
    assert_eq!(places(&mut scheduler, 6, &[short()]), [None], "no executor would become empty otherwise");
    assert_eq!(starts(&scheduler.step([left(1), left(3)])), NONE);
    let [Action::Start(Ticket(5), place), Action::Start(Ticket(6), other)] = scheduler.step([left(2)])[..] else {
        panic!("both can start")
    };
    assert_eq!((place, other), (executor(1), executor(0)));
}

#[test]
fn jobs_that_may_print_take_turns_in_each_executor() {
    let prints = Demand { prints: true, ..short() };
    let mut scheduler = with_executors(2);
    assert_eq!(places(&mut scheduler, 1, &[prints, prints, prints, short()]), [Some(0), Some(1), None, Some(0)]);
    assert_eq!(scheduler.step([left(2)]), [Action::Start(Ticket(3), executor(1))]);
}

#[test]
fn a_long_job_prefers_its_input_among_equals() {
    let input = BlobDigest::of(b"input");
    let mut scheduler = with_executors(3);
    scheduler.step([Change::Input { executor: executor(2), input, is_resident: true }]);
    let wants = |demand| Demand { input: Some(input), ..demand };
    assert_eq!(places(&mut scheduler, 1, &[wants(short()), wants(long()), wants(long())]), [Some(0), Some(2), Some(1)]);
}

#[test]
fn the_cache_of_an_executor_is_for_its_own_jobs() {
    let mut scheduler = with_executors(2);
    let of = |bytes, is_long| Demand { is_long, ..demand(bytes) };
    scheduler.step([Change::Cached { executor: executor(1), bytes: 60 }]);
    assert_eq!(scheduler.cache_bytes_max(executor(0)), 40);
    assert_eq!(places(&mut scheduler, 1, &[of(70, true)]), [Some(1)]);
    assert_eq!(scheduler.cache_bytes_max(executor(1)), 30);
    scheduler.step([Change::Cached { executor: executor(1), bytes: 30 }, left(1)]);
    assert_eq!(scheduler.step([arrived(2, of(80, false))]), [Action::ReleaseCache(executor(1))], "it is idle");
    let released = Change::Cached { executor: executor(1), bytes: 0 };
    assert_eq!(scheduler.step([released]), [Action::Start(Ticket(2), executor(0))]);
}

#[test]
fn a_short_job_does_not_wait_for_the_cache_of_a_busy_executor() {
    let mut scheduler = with_executors(2);
    assert_eq!(places(&mut scheduler, 1, &[long()]), [Some(1)]);
    scheduler.step([Change::Cached { executor: executor(1), bytes: 60 }]);
    assert_eq!(places(&mut scheduler, 2, &[demand(30), demand(50)]), [Some(0), Some(1)]);
}

#[test]
fn a_train_runs_in_the_executor_of_its_first_job() {
    let brief = Demand { brief_us: Some(100), ..short() };
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::ExecutorUp(executor(1)), Change::ExecutorDown(executor(0)), arrived(1, long())]);
    scheduler.step([arrived(2, brief), arrived(3, brief)]);
    let train = [
        Action::Start(Ticket(2), executor(1)),
        Action::Join { ticket: Ticket(3), first: Ticket(2), executor: executor(1) },
    ];
    assert_eq!(scheduler.step([left(1)]), train);
    scheduler.step([Change::ExecutorUp(executor(0)), left(2)]);
    assert_eq!(starts(&scheduler.step([arrived(4, short())])), NONE);
    assert_eq!(scheduler.step([left(3)]), [Action::Start(Ticket(4), executor(0))]);
}

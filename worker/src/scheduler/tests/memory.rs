//! Tests of memory that executors cache, and of memory that other processes use.

use std::collections::VecDeque;

use super::{
    super::{Action, Change, Demand, DemandTooLarge, DeviceId, PoolGuarantee, PoolId, Scheduler, Ticket},
    NONE, demand, first, left, starts, waiting, with_pools,
};

const DEVICE: DeviceId = DeviceId(0);

fn three_pools() -> Scheduler {
    with_pools(&[PoolGuarantee::default(); 3], 8, 100)
}

fn of(pool: u32, bytes: u64) -> Demand {
    Demand { pool: PoolId(pool), ..demand(bytes) }
}

fn arrived(ticket: u64, pool: u32, bytes: u64) -> Change {
    Change::Arrived(Ticket(ticket), of(pool, bytes))
}

fn kept(pool: u32, bytes: u64) -> Change {
    Change::Cached { executor: first(0, pool), bytes }
}

fn available(bytes: u64) -> Change {
    Change::Available { device: DEVICE, bytes }
}

fn ask(pool: u32) -> Action {
    Action::ReleaseCache(first(0, pool))
}

#[test]
fn a_job_waits_until_another_pools_executor_has_given_back_what_it_keeps() {
    let mut scheduler = three_pools();
    scheduler.step([kept(1, 60)]);
    assert_eq!(scheduler.step([arrived(1, 0, 50)]), [ask(1)]);
    assert_eq!(scheduler.step([arrived(2, 0, 50)]), [], "it was asked, and has not answered yet");
    assert_eq!(starts(&scheduler.step([arrived(3, 0, 30)])), [3], "a smaller one need not wait for that");
    assert_eq!(starts(&scheduler.step([kept(1, 0)])), [1]);
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn what_a_pools_own_executor_keeps_is_its_to_use() {
    let mut scheduler = three_pools();
    scheduler.step([kept(0, 100)]);
    assert_eq!(scheduler.step([arrived(1, 0, 70)]), [Action::Start(Ticket(1), first(0, 0))]);
    assert_eq!(scheduler.cache_bytes_max(first(0, 0)), 30, "it has to let go of the rest");
    scheduler.step([kept(0, 10)]);
    assert_eq!(starts(&scheduler.step([arrived(2, 1, 20)])), [2]);
    assert_eq!(scheduler.cache_bytes_max(first(0, 0)), 10);
    assert_eq!(scheduler.cache_bytes_max(first(0, 1)), 0);
}

#[test]
fn those_who_keep_most_are_asked_and_no_more_than_it_takes() {
    let mut scheduler = three_pools();
    scheduler.step([kept(1, 30)]);
    scheduler.step([kept(2, 50)]);
    assert_eq!(scheduler.step([arrived(1, 0, 60)]), [ask(2)]);
    assert_eq!(starts(&scheduler.step([kept(2, 0)])), [1]);
    scheduler.step([left(1)]);
    assert_eq!(scheduler.step([arrived(2, 0, 100)]), [ask(1)]);
}

#[test]
fn no_executor_is_asked_again_before_it_has_cached_more() {
    let mut scheduler = three_pools();
    scheduler.step([arrived(1, 1, 10)]);
    scheduler.step([kept(1, 60)]);
    assert_eq!(scheduler.step([arrived(2, 0, 60)]), [ask(1)]);
    assert_eq!(scheduler.step([kept(1, 45)]), [], "that is all that it can do");
    assert_eq!(scheduler.step([kept(1, 55)]), [ask(1)], "now it keeps more");
    assert_eq!(scheduler.step([kept(1, 45)]), []);
    assert_eq!(scheduler.step([left(1)]), [ask(1)], "a job of its own has left");
    assert_eq!(starts(&scheduler.step([kept(1, 0)])), [2]);
}

#[test]
fn an_executor_that_is_gone_keeps_nothing() {
    let mut scheduler = three_pools();
    scheduler.step([kept(1, 60)]);
    scheduler.step([arrived(1, 0, 50)]);
    assert_eq!(starts(&scheduler.step([Change::ExecutorDown(first(0, 1))])), [1]);
    scheduler.step([kept(1, 60)]);
    scheduler.step([Change::ExecutorUp(first(0, 1))]);
    assert_eq!(starts(&scheduler.step([arrived(2, 0, 50)])), [2], "a word of the dead counts for nothing");
}

#[test]
fn what_other_processes_use_is_not_promised() {
    let mut scheduler = three_pools();
    scheduler.step([arrived(1, 0, 10)]);
    scheduler.step([available(50)]);
    assert_eq!(starts(&scheduler.step([arrived(2, 1, 60)])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(3, 1, 40)])), [3]);
    scheduler.step([left(3)]);
    assert_eq!(starts(&scheduler.step([available(70)])), [2], "they have left");
    scheduler.step([available(1000)]);
    assert_eq!(scheduler.cache_bytes_max(first(0, 0)), 30, "there is never more than the device has");
}

#[test]
fn a_job_that_only_other_processes_keep_out_starts_when_nothing_of_ours_runs() {
    let mut scheduler = three_pools();
    scheduler.step([available(50)]);
    scheduler.step([arrived(1, 0, 10)]);
    scheduler.step([kept(1, 5)]);
    assert_eq!(starts(&scheduler.step([arrived(2, 2, 60)])), NONE);
    assert_eq!(scheduler.step([left(1)]), [ask(1)], "it gets all that we can give");
    assert_eq!(starts(&scheduler.step([kept(1, 0)])), [2]);
}

#[test]
fn a_job_blocked_by_other_processes_blocks_no_pool_with_memory_of_its_own() {
    let owner = PoolGuarantee { weight: 1, memory_permille: 100 };
    let mut scheduler = with_pools(&[PoolGuarantee::default(), owner, owner], 8, 100);
    scheduler.step([available(50)]);
    // Two pools with guarantees always have a running job.
    scheduler.step([arrived(1, 1, 10)]);
    scheduler.step([arrived(2, 2, 10)]);
    scheduler.step([arrived(3, 0, 60)]);
    let mut running = VecDeque::new();
    for ticket in 4..200 {
        if running.len() == 3 {
            assert_eq!(starts(&scheduler.step([left(running.pop_front().unwrap())])), NONE);
        }
        assert_eq!(starts(&scheduler.step([arrived(ticket, 0, 10)])), [ticket], "a small one finds room");
        running.push_back(ticket);
    }
    // When these pools have had no work for a while, the device drains for the large job, and the driver decides.
    [left(1), left(2), Change::Tick, Change::Tick].into_iter().for_each(|change| drop(scheduler.step([change])));
    assert_eq!(starts(&scheduler.step([arrived(200, 0, 10)])), NONE);
    let started: Vec<u64> = running.into_iter().flat_map(|ticket| starts(&scheduler.step([left(ticket)]))).collect();
    assert_eq!(started, [3]);
}

#[test]
fn a_job_that_waits_is_refused_when_the_device_turns_out_too_small_for_it() {
    let mut scheduler = three_pools();
    scheduler.step([arrived(1, 0, 60)]);
    assert_eq!(starts(&scheduler.step([arrived(2, 0, 95)])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(3, 0, 70)])), NONE);
    let refused = DemandTooLarge { bytes: 95, device_bytes_max: 80 };
    let smaller = Change::Device { device: DEVICE, slots: 8, bytes: 80 };
    assert_eq!(scheduler.step([smaller]), [Action::Refuse(Ticket(2), refused)]);
    assert_eq!(starts(&scheduler.step([left(1)])), [3]);
}

#[test]
fn what_waited_behind_jobs_that_are_refused_starts() {
    let mut scheduler = three_pools();
    let other = DeviceId(1);
    scheduler.step([Change::Device { device: other, slots: 8, bytes: 200 }]);
    // More jobs than a search looks at.
    (1..=50).for_each(|ticket| assert_eq!(starts(&scheduler.step([arrived(ticket, 0, 150)])), NONE));
    assert_eq!(starts(&scheduler.step([arrived(51, 0, 10)])), NONE);
    let actions = scheduler.step([Change::DeviceGone(other)]);
    assert_eq!(starts(&actions), [51]);
    assert_eq!((actions.len(), waiting(&scheduler)), (51, 0));
}

#[test]
fn whatever_executors_say_of_time_and_memory_the_books_stand() {
    let mut scheduler = three_pools();
    for pool in 0..2 {
        scheduler.step([Change::Cached { executor: first(0, pool), bytes: u64::MAX }]);
    }
    scheduler.step([arrived(1, 2, 10)]);
    for pool in 0..2 {
        scheduler.step([Change::Cached { executor: first(0, pool), bytes: 0 }]);
    }
    for ticket in 1..10 {
        assert_eq!(scheduler.running(), 1, "job {ticket}");
        scheduler.step([Change::Left { ticket: Ticket(ticket), used_us: u64::MAX }]);
        scheduler.step([arrived(ticket + 1, 2, 10)]);
    }
}

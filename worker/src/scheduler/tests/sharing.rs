//! Tests of sharing between pools: device time by weight, memory by guarantee.

use super::{
    super::{Action, Change, Demand, PoolGuarantee, PoolId, Ticket},
    NONE, demand, first, starts, with_pools,
};

const EQUAL: PoolGuarantee = PoolGuarantee { weight: 1, memory_permille: 0 };

fn of(pool: u32, bytes: u64) -> Demand {
    Demand { pool: PoolId(pool), ..demand(bytes) }
}

fn left(ticket: u64, used_us: u64) -> Change {
    Change::Left { ticket: Ticket(ticket), used_us }
}

#[test]
fn the_pool_that_used_less_device_time_is_next_however_many_jobs_it_ran() {
    let mut scheduler = with_pools(&[EQUAL, EQUAL], 1, 100);
    for ticket in 0..20 {
        scheduler.step([Change::Arrived(Ticket(ticket), of(ticket as u32 % 2, 1))]);
    }
    // Pool 0 (even tickets) runs jobs of 9 ms, pool 1 (odd ones) of 1 ms.
    let mut running = 0;
    let mut counts = [0; 2];
    for _ in 0..11 {
        counts[running as usize % 2] += 1;
        let used = if running % 2 == 0 { 9_000 } else { 1_000 };
        running = starts(&scheduler.step([left(running, used)]))[0];
    }
    assert_eq!(counts, [2, 9]);
}

#[test]
fn a_pool_that_had_no_work_saved_up_no_time() {
    let mut scheduler = with_pools(&[EQUAL, EQUAL], 1, 100);
    for ticket in 0..100 {
        scheduler.step([Change::Arrived(Ticket(ticket), of(0, 1))]);
    }
    for ticket in 0..50 {
        scheduler.step([left(ticket, 1_000)]);
    }
    for ticket in 100..200 {
        scheduler.step([Change::Arrived(Ticket(ticket), of(1, 1))]);
    }
    let (mut running, mut late) = (50, 0);
    for _ in 0..20 {
        running = starts(&scheduler.step([left(running, 1_000)]))[0];
        late += u32::from(running >= 100);
    }
    assert!((9..=11).contains(&late), "{late} of 20 starts went to the pool that came late");
}

#[test]
fn what_a_pool_owns_is_lent_while_it_has_no_work_and_comes_back() {
    let budget = PoolGuarantee { weight: 1, memory_permille: 250 };
    let mut scheduler = with_pools(&[EQUAL, budget], 10, 100);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), of(0, 90))])), [1]);
    // The owner gets work and finds 10 bytes free. Its job waits, and from now on no pool borrows.
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), of(1, 25))])), Vec::<u64>::new());
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), of(0, 5))])), Vec::<u64>::new());
    let mut back = starts(&scheduler.step([left(1, 1_000)]));
    back.sort_unstable();
    assert_eq!(back, [2, 3]);
}

#[test]
fn guaranteed_memory_is_kept_from_others_while_its_pool_has_work() {
    let budget = PoolGuarantee { weight: 1, memory_permille: 250 };
    let mut scheduler = with_pools(&[EQUAL, budget], 10, 100);
    scheduler.step([Change::Arrived(Ticket(1), of(1, 5))]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), of(0, 76))])), Vec::<u64>::new());
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), of(0, 75))])), [3]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(4), of(1, 20))])), [4]);
    // When the owner has had no work for a while, the large job may borrow.
    scheduler.step([left(1, 1)]);
    scheduler.step([left(4, 1)]);
    assert_eq!(starts(&scheduler.step([left(3, 1)])), NONE);
    assert_eq!(starts(&scheduler.step([Change::Tick])), NONE, "the next job may be on its way");
    assert_eq!(starts(&scheduler.step([Change::Tick])), [2]);
}

#[test]
fn one_job_after_the_other_keeps_guaranteed_memory_and_jobs_beyond_it_keep_nothing() {
    let budget = PoolGuarantee { weight: 1, memory_permille: 250 };
    let mut scheduler = with_pools(&[EQUAL, budget], 10, 100);
    scheduler.step([Change::Arrived(Ticket(1), of(1, 20))]);
    scheduler.step([Change::Arrived(Ticket(2), of(0, 90))]);
    for ticket in 10..20 {
        // The previous job ends, and time passes until the next one arrives.
        scheduler.step([left(if ticket == 10 { 1 } else { ticket - 1 }, 1)]);
        assert_eq!(starts(&scheduler.step([Change::Tick])), NONE, "the flood would be in the way of the next");
        assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(ticket), of(1, 20))])), [ticket]);
    }
    scheduler.step([left(19, 1)]);
    scheduler.step([Change::Tick]);
    assert_eq!(starts(&scheduler.step([Change::Tick])), [2]);
    // A job larger than its pool's guarantee used borrowed memory, so nothing is kept for the pool's next job.
    scheduler.step([Change::Arrived(Ticket(30), of(1, 80))]);
    assert_eq!(starts(&scheduler.step([left(2, 1)])), [30]);
    scheduler.step([Change::Arrived(Ticket(31), of(0, 90))]);
    assert_eq!(starts(&scheduler.step([left(30, 1)])), [31]);
}

#[test]
fn a_pool_with_guaranteed_memory_finds_a_slot_free_in_any_flood() {
    let budget = PoolGuarantee { weight: 1, memory_permille: 250 };
    let mut scheduler = with_pools(&[EQUAL, budget], 3, 100);
    for ticket in 0..10 {
        scheduler.step([Change::Arrived(Ticket(ticket), of(0, 1))]);
    }
    assert_eq!(scheduler.running(), 2, "the flood leaves one place");
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(100), of(1, 25))])), [100]);
}

#[test]
fn a_suspect_of_one_pool_does_not_hold_up_another() {
    let mut scheduler = with_pools(&[EQUAL, EQUAL], 4, 100);
    scheduler.step([Change::Arrived(Ticket(1), of(0, 1))]);
    assert_eq!(
        starts(&scheduler.step([Change::Arrived(Ticket(2), Demand { alone: true, ..of(0, 1) })])),
        Vec::<u64>::new()
    );
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), of(1, 1))])), [3]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(4), of(0, 1))])), Vec::<u64>::new());
    assert_eq!(starts(&scheduler.step([left(1, 1)])), [2]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(5), of(1, 1))])), [5]);
    assert_eq!(starts(&scheduler.step([left(2, 1)])), [4]);
}

#[test]
fn a_job_waits_while_only_its_own_pools_executor_is_down() {
    let mut scheduler = with_pools(&[EQUAL, EQUAL], 4, 100);
    scheduler.step([Change::ExecutorDown(first(0, 0))]);
    assert!(scheduler.step([Change::Arrived(Ticket(1), of(0, 1))]).is_empty());
    assert_eq!(
        scheduler.step([Change::Arrived(Ticket(2), of(1, 1))]),
        [Action::Start(Ticket(2), first(0, 1))],
        "the neighbour goes on"
    );
    assert_eq!(starts(&scheduler.step([Change::ExecutorUp(first(0, 0))])), [1]);
}

//! Tests of sessions, which hold memory without a slot.

use super::{
    super::{Action, Change, Demand, DemandTooLarge, DeviceId, PoolGuarantee, PoolId, Scheduler, SessionTerms, Ticket},
    NONE, demand, first, left, starts, waiting, with_device, with_pools,
};

const DEVICE: DeviceId = DeviceId(0);

fn session(bytes: u64) -> Demand {
    Demand { session: Some(SessionTerms { memory_permille: 1000, insists: false, is_whole: false }), ..demand(bytes) }
}

fn insisting(bytes: u64) -> Demand {
    Demand { session: Some(SessionTerms { memory_permille: 1000, insists: true, is_whole: false }), ..demand(bytes) }
}

fn arrived(ticket: u64, demand: Demand) -> Change {
    Change::Arrived(Ticket(ticket), demand)
}

/// Returns the number of jobs of pool 0 among the next `count` starts, while both pools have endless work and a session of pool 0 uses
/// `used_us` beside each start. Every job takes a millisecond.
fn jobs_of_first(scheduler: &mut Scheduler, count: u64, used_us: u64) -> u64 {
    let of = |pool| Demand { pool: PoolId(pool), ..demand(1) };
    let (mut next, mut firsts) = (1000, 0);
    let mut pools = std::collections::HashMap::new();
    let mut started = Vec::new();
    let mut changes = vec![];
    for _ in 0..4 {
        for pool in 0..2 {
            pools.insert(next, pool);
            changes.push(arrived(next, of(pool)));
            next += 1;
        }
    }
    started.extend(starts(&scheduler.step(changes)));
    for _ in 0..count {
        let ticket = started.remove(0);
        let pool = pools[&ticket];
        firsts += u64::from(pool == 0);
        pools.insert(next, pool);
        let used = Change::Used { ticket: Ticket(1), used_us };
        started.extend(starts(&scheduler.step([used, left(ticket), arrived(next, of(pool))])));
        next += 1;
    }
    firsts
}

#[test]
fn a_session_takes_memory_and_no_slot_and_needs_no_executor() {
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::ExecutorDown(first(0, 0))]);
    assert_eq!(scheduler.step([arrived(1, session(60))]), [Action::Start(Ticket(1), first(0, 0))]);
    scheduler.step([Change::ExecutorUp(first(0, 0))]);
    assert_eq!(starts(&scheduler.step([arrived(2, demand(40))])), [2]);
    assert_eq!(scheduler.running(), 2);
    scheduler.step([left(2)]);
    assert_eq!(starts(&scheduler.step([arrived(3, demand(41))])), NONE, "the session's memory is not promised twice");
    assert_eq!(starts(&scheduler.step([left(1)])), [3]);
}

#[test]
fn a_session_on_a_device_without_an_executor_of_its_pool_leaves_it_as_it_was() {
    let mut scheduler = Scheduler::new(&[PoolGuarantee::default()]);
    scheduler.step([Change::Device { device: DEVICE, slots: 1, bytes: 100 }]);
    assert_eq!(starts(&scheduler.step([arrived(1, session(60))])), [1]);
    assert_eq!(starts(&scheduler.step([arrived(2, demand(1))])), NONE, "there is no executor");
    scheduler.step([left(1)]);
    assert_eq!(starts(&scheduler.step([Change::ExecutorUp(first(0, 0))])), [2]);
}

#[test]
fn sessions_of_a_pool_stay_below_their_part_of_the_device() {
    let half = |bytes| Demand {
        session: Some(SessionTerms { memory_permille: 500, insists: true, is_whole: false }),
        ..demand(bytes)
    };
    let mut scheduler = with_device(4, 100);
    assert_eq!(starts(&scheduler.step([arrived(1, half(30))])), [1]);
    assert_eq!(starts(&scheduler.step([arrived(2, half(21))])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(3, half(20))])), [3]);
    assert_eq!(
        starts(&scheduler.step([arrived(4, demand(50))])),
        [4],
        "nothing is reserved for what can't come to fit"
    );
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn a_session_gets_no_memory_that_other_processes_use() {
    let mut scheduler = with_device(4, 100);
    scheduler.step([Change::Available { device: DEVICE, bytes: 50 }]);
    assert_eq!(starts(&scheduler.step([arrived(1, session(60))])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(2, demand(60))])), [2], "a job tries its luck on an idle device");
    scheduler.step([left(2)]);
    assert_eq!(starts(&scheduler.step([Change::Available { device: DEVICE, bytes: 60 }])), [1]);
}

#[test]
fn what_other_pools_cache_is_released_for_a_session() {
    let mut scheduler = with_pools(&[PoolGuarantee::default(); 2], 4, 100);
    scheduler.step([Change::Cached { executor: first(0, 1), bytes: 60 }]);
    assert_eq!(scheduler.step([arrived(1, session(50))]), [Action::ReleaseCache(first(0, 1))]);
    let released = Change::Cached { executor: first(0, 1), bytes: 0 };
    assert_eq!(starts(&scheduler.step([released])), [1]);
}

#[test]
fn a_guarantee_is_kept_from_sessions_of_other_pools() {
    let half = PoolGuarantee { weight: 1, memory_permille: 500 };
    let mut scheduler = with_pools(&[PoolGuarantee::default(), half], 4, 100);
    let theirs = Demand { pool: PoolId(1), ..demand(10) };
    assert_eq!(starts(&scheduler.step([arrived(1, theirs)])), [1]);
    assert_eq!(starts(&scheduler.step([arrived(2, session(51))])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(3, session(50))])), [3]);
    let own = Demand { pool: PoolId(1), ..session(40) };
    assert_eq!(starts(&scheduler.step([arrived(4, own)])), [4]);
}

#[test]
fn a_session_that_insists_starts_beside_a_stream_of_small_jobs() {
    let mut scheduler = with_device(4, 100);
    let mut running: Vec<u64> = (10..14).collect();
    scheduler.step(running.iter().map(|ticket| arrived(*ticket, demand(25))));
    let mut patient = with_device(4, 100);
    patient.step(running.iter().map(|ticket| arrived(*ticket, demand(25))));
    scheduler.step([arrived(1, insisting(60))]);
    patient.step([arrived(1, session(60))]);
    let (mut next, mut began) = (14, Vec::new());
    let mut also_running = running.clone();
    for _ in 0..20 {
        let started = starts(&scheduler.step([left(running.remove(0)), arrived(next, demand(25))]));
        began.extend(started.iter().copied().filter(|ticket| *ticket == 1));
        running.extend(started.into_iter().filter(|ticket| *ticket != 1));
        let started = starts(&patient.step([left(also_running.remove(0)), arrived(next, demand(25))]));
        assert!(!started.contains(&1), "without the reservation it starves");
        also_running.extend(started);
        next += 1;
        if !began.is_empty() {
            break;
        }
    }
    assert_eq!(began, [1]);
}

#[test]
fn a_reservation_of_a_session_outlives_a_moment_without_jobs() {
    let mut scheduler = with_device(2, 100);
    scheduler.step([arrived(10, demand(60))]);
    scheduler.step([arrived(1, insisting(60))]);
    scheduler.step([Change::Tick]);
    assert_eq!(starts(&scheduler.step([arrived(11, demand(41))])), NONE);
    assert_eq!(starts(&scheduler.step([arrived(12, demand(30))])), NONE, "40 are free, and 60 are reserved");
    assert_eq!(starts(&scheduler.step([left(10)])), [1, 12]);
}

#[test]
fn a_session_is_refused_handed_back_and_forgotten_as_a_job_is() {
    let mut scheduler = with_device(2, 100);
    let too_large = DemandTooLarge { bytes: 101, device_bytes_max: 100 };
    assert_eq!(scheduler.step([arrived(1, session(101))]), [Action::Refuse(Ticket(1), too_large)]);
    scheduler.step([arrived(2, session(100)), arrived(3, insisting(100))]);
    assert_eq!(waiting(&scheduler), 1);
    scheduler.step([left(3)]);
    assert_eq!(waiting(&scheduler), 0);
    scheduler.step([arrived(4, session(100))]);
    assert_eq!(scheduler.step([Change::Draining]), [Action::Requeue(Ticket(4))]);
    assert_eq!(scheduler.step([left(2)]), []);
    assert_eq!(scheduler.running(), 0);
}

#[test]
fn the_device_time_of_a_session_counts_for_its_pool() {
    let weighted = |weight| PoolGuarantee { weight, memory_permille: 0 };
    let mut alone = with_pools(&[weighted(3), weighted(1)], 1, 100);
    let jobs = jobs_of_first(&mut alone, 400, 0);
    assert!((290..=310).contains(&jobs), "{jobs} of 400 starts");
    // The session uses as much as each job: half of all the time, so of the other half the first pool gets a quarter of the whole.
    let mut beside = with_pools(&[weighted(3), weighted(1)], 1, 100);
    beside.step([arrived(1, session(10))]);
    let jobs = jobs_of_first(&mut beside, 400, 1000);
    assert!((190..=210).contains(&jobs), "{jobs} of 400 starts");
}

/// A host program.
fn whole() -> Demand {
    Demand { session: Some(SessionTerms { memory_permille: 1000, insists: true, is_whole: true }), ..demand(0) }
}

#[test]
fn a_host_program_has_a_device_to_itself() {
    let mut scheduler = with_device(4, 100);
    assert_eq!(starts(&scheduler.step([arrived(1, demand(10))])), [1]);
    assert_eq!(starts(&scheduler.step([arrived(2, whole())])), NONE, "a job runs there");
    assert_eq!(starts(&scheduler.step([arrived(3, demand(0))])), NONE, "the device is reserved");
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
    assert_eq!(starts(&scheduler.step([arrived(4, session(1))])), NONE, "the program has all of the device");
    assert_eq!(starts(&scheduler.step([left(4)])), NONE);
    assert_eq!(starts(&scheduler.step([left(2)])), [3]);
}

#[test]
fn a_host_program_waits_until_executors_have_released_what_they_cache() {
    let mut scheduler = with_device(4, 100);
    scheduler.step([Change::Cached { executor: first(0, 0), bytes: 30 }]);
    assert_eq!(scheduler.step([arrived(1, whole())]), [Action::ReleaseCache(first(0, 0))]);
    let released = Change::Cached { executor: first(0, 0), bytes: 0 };
    assert_eq!(starts(&scheduler.step([released])), [1]);
}

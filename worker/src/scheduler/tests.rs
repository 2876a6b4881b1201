use gpufleet_schema::{BlobDigest, Priority};

use super::{
    Action, Allowed, Change, Demand, DemandTooLarge, DeviceId, ExecutorId, PoolGuarantee, PoolId, Room, Scheduler,
    Ticket,
};

mod executors;
mod memory;
mod sessions;
mod sharing;
mod simulation;
mod trains;

const NONE: [u64; 0] = [];

fn demand(bytes: u64) -> Demand {
    Demand {
        pool: PoolId(0),
        priority: Priority::Normal,
        bytes,
        alone: false,
        prints: false,
        allowed: Allowed::ALL,
        input: None,
        returnable: true,
        brief_us: None,
        is_long: false,
        session: None,
    }
}

/// Returns the first executor of a pool on a device.
fn first(device: u32, pool: u32) -> ExecutorId {
    ExecutorId::first(DeviceId(device), PoolId(pool))
}

fn left(ticket: u64) -> Change {
    Change::Left { ticket: Ticket(ticket), used_us: 1000 }
}

fn with_device(slots: u32, bytes: u64) -> Scheduler {
    with_pools(&[PoolGuarantee::default()], slots, bytes)
}

/// Creates a scheduler with one device on which every pool's executor is up.
fn with_pools(guarantees: &[PoolGuarantee], slots: u32, bytes: u64) -> Scheduler {
    let mut scheduler = Scheduler::new(guarantees);
    scheduler.step([Change::Device { device: DeviceId(0), slots, bytes }]);
    for pool in 0..guarantees.len() as u32 {
        scheduler.step([Change::ExecutorUp(first(0, pool))]);
    }
    scheduler
}

fn room(scheduler: &Scheduler, pool: usize, priority: Priority) -> Room {
    let priority_index = Priority::ALL.iter().position(|of_all| *of_all == priority).unwrap();
    scheduler.rooms()[pool * Priority::ALL.len() + priority_index]
}

fn waiting(scheduler: &Scheduler) -> usize {
    scheduler.waiting_by_pool().into_iter().sum()
}

fn starts(actions: &[Action]) -> Vec<u64> {
    actions.iter().filter_map(|a| if let Action::Start(ticket, _) = a { Some(ticket.0) } else { None }).collect()
}

#[test]
fn a_job_starts_when_a_slot_is_free_and_the_next_when_one_leaves() {
    let mut scheduler = with_device(1, 100);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), demand(10))])), [1]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), demand(10))])), NONE);
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn memory_is_never_promised_twice_and_a_small_job_passes_a_large_one() {
    let mut scheduler = with_device(8, 100);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), demand(80))])), [1]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), demand(30))])), NONE);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), demand(20))])), [3]);
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn a_job_beyond_every_device_is_refused_with_the_numbers() {
    let mut scheduler = with_device(1, 100);
    let refused = DemandTooLarge { bytes: 101, device_bytes_max: 100 };
    assert_eq!(scheduler.step([Change::Arrived(Ticket(1), demand(101))]), [Action::Refuse(Ticket(1), refused)]);
}

#[test]
fn a_suspect_runs_alone_even_under_a_steady_stream_of_others() {
    let mut scheduler = with_device(2, 100);
    scheduler.step([Change::Arrived(Ticket(1), demand(1))]);
    scheduler.step([Change::Arrived(Ticket(2), demand(1))]);
    let suspect = Demand { alone: true, ..demand(1) };
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), suspect)])), NONE);
    // The device is reserved, so a new job does not take the slot that becomes free.
    scheduler.step([Change::Arrived(Ticket(4), demand(1))]);
    assert_eq!(starts(&scheduler.step([left(1)])), NONE);
    assert_eq!(starts(&scheduler.step([left(2)])), [3]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(5), demand(1))])), NONE);
    assert_eq!(starts(&scheduler.step([left(3)])), [4, 5]);
}

#[test]
fn jobs_that_may_print_take_turns_in_an_executor_and_others_run_beside_them() {
    let mut scheduler = with_pools(&[PoolGuarantee::default(); 2], 8, 100);
    let prints = Demand { prints: true, ..demand(1) };
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), prints)])), [1]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), prints)])), NONE);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), demand(1))])), [3]);
    let elsewhere = Demand { pool: PoolId(1), ..prints };
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(4), elsewhere)])), [4]);
    assert_eq!(starts(&scheduler.step([left(3)])), NONE);
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn a_job_that_waits_for_its_turn_to_print_keeps_no_slot_free() {
    let mut scheduler = with_device(2, 100);
    let prints = Demand { prints: true, ..demand(1) };
    scheduler.step([Change::Arrived(Ticket(1), prints)]);
    scheduler.step([Change::Arrived(Ticket(2), prints)]);
    // It is passed more often than a job that waits for memory would be.
    for ticket in 10..200 {
        assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(ticket), demand(1))])), [ticket]);
        assert_eq!(starts(&scheduler.step([left(ticket)])), NONE);
    }
    assert_eq!(starts(&scheduler.step([left(1)])), [2]);
}

#[test]
fn a_reservation_of_a_job_that_left_is_forgotten() {
    let mut scheduler = with_device(2, 100);
    scheduler.step([Change::Arrived(Ticket(1), demand(1))]);
    scheduler.step([Change::Arrived(Ticket(2), Demand { alone: true, ..demand(1) })]);
    scheduler.step([left(2)]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(3), demand(1))])), [3]);
}

#[test]
fn nothing_starts_on_a_device_that_is_down_and_work_resumes_when_it_is_back() {
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::ExecutorDown(first(0, 0))]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), demand(1))])), NONE);
    assert_eq!(starts(&scheduler.step([Change::ExecutorUp(first(0, 0))])), [1]);
}

#[test]
fn what_only_a_lost_device_could_hold_is_refused() {
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::Device { device: DeviceId(1), slots: 1, bytes: 1000 }]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(1), demand(500))])), NONE);
    let refused = DemandTooLarge { bytes: 500, device_bytes_max: 100 };
    assert_eq!(scheduler.step([Change::DeviceGone(DeviceId(1))]), [Action::Refuse(Ticket(1), refused)]);
    assert_eq!(waiting(&scheduler), 0);
}

#[test]
fn draining_hands_back_what_waits_and_what_still_arrives() {
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::Arrived(Ticket(1), demand(1))]);
    scheduler.step([Change::Arrived(Ticket(2), demand(1))]);
    assert_eq!(scheduler.step([Change::Draining]), [Action::Requeue(Ticket(2))]);
    assert_eq!(scheduler.step([Change::Arrived(Ticket(3), demand(1))]), [Action::Requeue(Ticket(3))]);
    assert!(scheduler.step([left(1)]).is_empty());
}

#[test]
fn under_endless_work_of_all_priorities_each_gets_its_share_of_starts() {
    let mut scheduler = with_device(1, 100);
    let mut priority_of = Vec::new();
    for index in 0..2100_u64 {
        let priority = Priority::ALL[(index % 3) as usize];
        priority_of.push(priority);
        scheduler.step([Change::Arrived(Ticket(index), Demand { priority, ..demand(1) })]);
    }
    let mut counts = [0; 3];
    let mut running = 0;
    for _ in 0..420 {
        let next = starts(&scheduler.step([left(running)]));
        running = next[0];
        counts[Priority::ALL.iter().position(|p| *p == priority_of[running as usize]).unwrap()] += 1;
    }
    assert_eq!(counts[2], 20, "low: one start in 21, {counts:?}");
    assert!((319..=321).contains(&counts[0]), "{counts:?}");
}

#[test]
fn a_large_job_is_not_passed_for_ever_by_small_ones() {
    let mut scheduler = with_device(4, 100);
    for ticket in 0..4 {
        scheduler.step([Change::Arrived(Ticket(ticket), demand(20))]);
    }
    scheduler.step([Change::Arrived(Ticket(1_000_000), demand(90))]);
    for ticket in 4..1000 {
        scheduler.step([Change::Arrived(Ticket(ticket), demand(20))]);
        if starts(&scheduler.step([left(ticket - 4)])).contains(&1_000_000) {
            assert!(ticket > 64, "it had no reason to be preferred so soon");
            return;
        }
    }
    panic!("the large job never started");
}

#[test]
fn a_large_job_of_low_priority_is_not_passed_for_ever_by_small_ones_of_high() {
    let mut scheduler = with_device(4, 100);
    let high = |bytes| Demand { priority: Priority::High, ..demand(bytes) };
    for ticket in 0..4 {
        scheduler.step([Change::Arrived(Ticket(ticket), high(20))]);
    }
    scheduler.step([Change::Arrived(Ticket(1_000_000), Demand { priority: Priority::Low, ..demand(90) })]);
    let mut running: std::collections::VecDeque<u64> = (0..4).collect();
    for ticket in 4..4000 {
        running.extend(starts(&scheduler.step([Change::Arrived(Ticket(ticket), high(20))])));
        let Some(leaving) = running.pop_front() else { panic!("nothing runs and nothing starts") };
        let started = starts(&scheduler.step([left(leaving)]));
        if started.contains(&1_000_000) {
            return;
        }
        running.extend(started);
    }
    panic!("the large job never started");
}

#[test]
fn a_job_starts_only_where_it_may_and_is_passed_on_when_that_is_gone() {
    let mut scheduler = with_device(1, 100);
    scheduler.step([Change::Device { device: DeviceId(1), slots: 1, bytes: 50 }]);
    scheduler.step([Change::ExecutorUp(first(1, 0))]);
    let second = Demand { allowed: [DeviceId(1)].into_iter().collect(), ..demand(10) };
    assert_eq!(scheduler.step([Change::Arrived(Ticket(1), second)]), [Action::Start(Ticket(1), first(1, 0))]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(2), second)])), NONE, "device 0 is free and not allowed");
    let refused = DemandTooLarge { bytes: 60, device_bytes_max: 50 };
    let large = Demand { bytes: 60, ..second };
    assert_eq!(scheduler.step([Change::Arrived(Ticket(3), large)]), [Action::Refuse(Ticket(3), refused)]);
    assert_eq!(scheduler.step([Change::DeviceGone(DeviceId(1))]), [Action::Forward(Ticket(2))]);
    assert_eq!(scheduler.step([Change::Arrived(Ticket(4), second)]), [Action::Forward(Ticket(4))]);
    assert_eq!(starts(&scheduler.step([Change::Arrived(Ticket(5), demand(10))])), [5]);
}

#[test]
fn a_job_prefers_the_device_that_has_its_input_and_does_not_wait_for_it() {
    let mut scheduler = with_device(8, 100);
    scheduler.step([Change::Device { device: DeviceId(1), slots: 1, bytes: 100 }]);
    scheduler.step([Change::ExecutorUp(first(1, 0))]);
    let (executor, input) = (first(1, 0), BlobDigest::of(b"input"));
    let resident = |is_resident| Change::Input { executor, input, is_resident };
    let wants = Demand { input: Some(input), ..demand(1) };
    let arrive = |scheduler: &mut Scheduler, ticket| {
        scheduler.step([Change::Arrived(Ticket(ticket), wants)]).into_iter().find_map(|action| match action {
            Action::Start(_, executor) => Some(executor.device.0),
            _ => None,
        })
    };
    assert_eq!(arrive(&mut scheduler, 1), Some(0), "the emptier device");
    scheduler.step([resident(true)]);
    assert_eq!(arrive(&mut scheduler, 2), Some(1));
    assert_eq!(arrive(&mut scheduler, 3), Some(0), "the device with the input is full");
    scheduler.step([left(2)]);
    scheduler.step([resident(false)]);
    assert_eq!(arrive(&mut scheduler, 4), Some(0));
    scheduler.step([resident(true)]);
    scheduler.step([Change::ExecutorDown(executor)]);
    scheduler.step([Change::ExecutorUp(executor)]);
    assert_eq!(arrive(&mut scheduler, 5), Some(0), "a new executor has no inputs");
}

#[test]
fn a_job_that_lacks_its_input_lets_at_most_eight_younger_ones_pass_in_a_row() {
    let mut scheduler = with_device(1, 100);
    let [here, elsewhere] = [b"here", b"else"].map(|bytes| BlobDigest::of(bytes));
    scheduler.step([Change::Input { executor: first(0, 0), input: here, is_resident: true }]);
    let mut arrive = |ticket, input| {
        scheduler.step([Change::Arrived(Ticket(ticket), Demand { input, ..demand(1) })]);
    };
    arrive(0, None);
    [1, 2].into_iter().for_each(|ticket| arrive(ticket, Some(elsewhere)));
    (10..28).for_each(|ticket| arrive(ticket, Some(here)));
    arrive(30, None);
    let mut order = vec![0];
    while let [next] = starts(&scheduler.step([left(*order.last().unwrap())]))[..] {
        order.push(next);
    }
    let mut expected = vec![0];
    expected.extend((10..18).chain([1]).chain(18..26).chain([2]).chain([26, 27, 30]));
    assert_eq!(order, expected, "a job without an input waits for none");
}

#[test]
fn room_counts_open_slots_and_jobs_that_do_not_fit() {
    let mut scheduler = with_device(4, 100);
    let room = |scheduler: &Scheduler, priority| room(scheduler, 0, priority);
    assert_eq!(scheduler.slots(), 4);
    assert_eq!(room(&scheduler, Priority::Normal), Room { open: 4, stuck: 0 });
    scheduler.step([Change::Arrived(Ticket(1), demand(80))]);
    scheduler.step([Change::Arrived(Ticket(2), demand(30))]);
    assert_eq!(room(&scheduler, Priority::Normal), Room { open: 3, stuck: 1 });
    assert_eq!(room(&scheduler, Priority::High).stuck, 0);
    for ticket in 3..6 {
        scheduler.step([Change::Arrived(Ticket(ticket), demand(1))]);
    }
    assert_eq!(room(&scheduler, Priority::Normal), Room { open: 0, stuck: 0 }, "what waits now waits for a slot");
}

#[test]
fn a_slot_that_is_reserved_for_a_pool_is_open_to_it_alone() {
    let guarantees = [PoolGuarantee::default(), PoolGuarantee { weight: 1, memory_permille: 250 }];
    let mut scheduler = with_pools(&guarantees, 2, 100);
    let open = |scheduler: &Scheduler, pool| room(scheduler, pool, Priority::Normal).open;
    assert_eq!((open(&scheduler, 0), open(&scheduler, 1)), (1, 2));
    scheduler.step([Change::Arrived(Ticket(1), demand(10))]);
    assert_eq!((open(&scheduler, 0), open(&scheduler, 1)), (0, 1));
}

#[test]
fn what_is_shed_goes_back_unless_it_must_stay() {
    let mut scheduler = with_device(1, 100);
    let low = Demand { priority: Priority::Low, ..demand(1) };
    let in_list = Demand { returnable: false, ..demand(1) };
    let suspect = Demand { alone: true, ..demand(1) };
    for (ticket, demand) in [(1, demand(1)), (2, demand(1)), (3, low), (4, in_list), (5, suspect), (6, demand(1))] {
        scheduler.step([Change::Arrived(Ticket(ticket), demand)]);
    }
    let shed = scheduler.step([Change::Shed(PoolId(0), Priority::Normal)]);
    assert_eq!(shed, [Action::Requeue(Ticket(2)), Action::Requeue(Ticket(6))]);
    assert_eq!((scheduler.running(), waiting(&scheduler)), (1, 3));
}

use super::*;

fn brief(bytes: u64) -> Demand {
    Demand { brief_us: Some(100), ..demand(bytes) }
}

/// Returns the jobs that share each slot which is granted.
fn trains(actions: &[Action]) -> Vec<Vec<u64>> {
    let mut trains: Vec<Vec<u64>> = Vec::new();
    for action in actions {
        match action {
            Action::Start(ticket, _) => trains.push(vec![ticket.0]),
            Action::Join { ticket, .. } => trains.last_mut().expect("a train has a first job").push(ticket.0),
            other => panic!("unexpected {other:?}"),
        }
    }
    trains
}

/// Fills the slots of a device with the jobs 0, 1, …, and has these jobs wait behind them, numbered from 100.
fn with_waiting(slots: u32, bytes: u64, waiting: &[Demand]) -> Scheduler {
    let mut scheduler = with_device(slots, bytes);
    for ticket in 0..u64::from(slots) {
        scheduler.step([Change::Arrived(Ticket(ticket), demand(0))]);
    }
    for (ticket, demand) in (100..).zip(waiting) {
        assert_eq!(scheduler.step([Change::Arrived(Ticket(ticket), *demand)]), []);
    }
    scheduler
}

#[test]
fn brief_jobs_that_wait_share_the_next_slot_until_the_last_of_them_has_left() {
    let mut scheduler = with_waiting(1, 100, &[brief(1); 3]);
    assert_eq!(trains(&scheduler.step([left(0)])), [[100, 101, 102]]);
    scheduler.step([Change::Arrived(Ticket(200), brief(1))]);
    assert_eq!(scheduler.running(), 1, "a train has one slot");
    for ticket in [101, 100] {
        assert_eq!(scheduler.step([left(ticket)]), []);
    }
    assert_eq!(trains(&scheduler.step([left(102)])), [[200]]);
}

#[test]
fn a_job_that_can_have_a_slot_of_its_own_rides_in_no_train() {
    let mut scheduler = with_device(4, 100);
    let arrived = (0..4).map(|ticket| Change::Arrived(Ticket(ticket), brief(1)));
    assert_eq!(trains(&scheduler.step(arrived)), [[0], [1], [2], [3]]);
}

#[test]
fn the_slots_of_a_device_share_what_waits() {
    let mut scheduler = with_waiting(4, 100, &[brief(1); 9]);
    assert_eq!(trains(&scheduler.step([left(0)])), [[100, 101, 102]], "a third job for each of the four slots");
    assert_eq!(trains(&scheduler.step([left(1), left(2)])), [vec![103, 105], vec![104]]);
}

#[test]
fn a_train_is_short() {
    let long = |brief_us| [Demand { brief_us: Some(brief_us), ..demand(0) }; 40];
    let mut scheduler = with_waiting(1, 100, &long(250));
    assert_eq!(trains(&scheduler.step([left(0)]))[0].len(), 4, "a millisecond");
    let mut scheduler = with_waiting(1, 100, &long(1));
    assert_eq!(trains(&scheduler.step([left(0)]))[0].len(), 16);
}

#[test]
fn a_train_ends_before_a_job_that_may_not_ride() {
    for next in [demand(1), Demand { pool: PoolId(0), allowed: [DeviceId(1)].into_iter().collect(), ..brief(1) }] {
        let mut scheduler = with_device(1, 100);
        scheduler.step([Change::Device { device: DeviceId(1), slots: 1, bytes: 100 }]);
        scheduler.step([Change::Arrived(Ticket(0), demand(0))]);
        for (ticket, demand) in [(100, brief(1)), (101, brief(1)), (102, next), (103, brief(1))] {
            scheduler.step([Change::Arrived(Ticket(ticket), demand)]);
        }
        assert_eq!(trains(&scheduler.step([left(0)])), [[100, 101]], "{next:?}");
    }
}

#[test]
fn the_jobs_of_a_train_have_memory_at_the_same_time() {
    let mut scheduler = with_waiting(1, 100, &[brief(50), brief(30), brief(40)]);
    assert_eq!(trains(&scheduler.step([left(0)])), [[100, 101]]);
    assert_eq!(trains(&scheduler.step([left(100), left(101)])), [[102]]);
}

#[test]
fn no_train_takes_the_memory_that_another_pool_is_guaranteed() {
    let guarantees = [PoolGuarantee::default(), PoolGuarantee { weight: 1, memory_permille: 500 }];
    let mut scheduler = with_pools(&guarantees, 2, 100);
    let guaranteed = Demand { pool: PoolId(1), ..demand(10) };
    scheduler.step([Change::Arrived(Ticket(0), guaranteed)]);
    scheduler.step([Change::Arrived(Ticket(1), demand(0))]);
    for ticket in 100..103 {
        scheduler.step([Change::Arrived(Ticket(ticket), brief(20))]);
    }
    assert_eq!(trains(&scheduler.step([left(1)])), [[100, 101]], "50 bytes stay with the other pool");
}

#[test]
fn a_device_that_is_reserved_gets_no_train() {
    let mut scheduler = with_waiting(2, 100, &[brief(1); 4]);
    let suspect = Demand { alone: true, priority: Priority::High, ..demand(1) };
    scheduler.step([Change::Arrived(Ticket(200), suspect)]);
    assert_eq!(trains(&scheduler.step([left(0)])), Vec::<Vec<u64>>::new());
    assert_eq!(trains(&scheduler.step([left(1)])), [[200]]);
}

#[test]
fn each_job_of_a_train_is_charged_to_its_pool() {
    let mut scheduler = with_pools(&[PoolGuarantee::default(); 2], 1, 100);
    scheduler.step([Change::Arrived(Ticket(0), demand(0))]);
    let other = Demand { pool: PoolId(1), ..demand(0) };
    for (ticket, demand) in [(100, brief(0)), (101, brief(0)), (102, brief(0)), (200, other), (201, other)] {
        scheduler.step([Change::Arrived(Ticket(ticket), demand)]);
    }
    // Pool 1 has had nothing yet; then pool 0 rides with three jobs, which pool 1 catches up with.
    assert_eq!(trains(&scheduler.step([left(0)])), [[200]]);
    assert_eq!(trains(&scheduler.step([left(200)])), [[100, 101, 102]]);
    let left_together = [left(100), left(101), left(102), Change::Arrived(Ticket(103), demand(0))];
    assert_eq!(trains(&scheduler.step(left_together)), [[201]]);
}

use std::sync::Arc;

use gpufleet_schema::{Event, WorkerName, WorkerSeen, encoding};
use proptest::prelude::*;
use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::events::Origin;

type Outcome = oneshot::Receiver<Result<(), PublishError>>;

const ORIGIN: Origin = Origin { exchange: "events", user_id: None };

/// An event that is recognized by its time.
fn event(at_ms: i64) -> Event {
    Event::WorkerSeen(WorkerSeen {
        worker: "w".parse::<WorkerName>().unwrap(),
        at_ms,
        host: String::new(),
        pid: 1,
        revision: String::new(),
        pools: Vec::new(),
        devices: Vec::new(),
        jobs_running: 0,
        leaving: false,
    })
}

/// Adds one event and returns the outcome of its batch.
fn add(commits: &mut GroupCommit, at_ms: i64) -> Outcome {
    let (confirmed, outcome) = oneshot::channel();
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    commits.add(Addition { events: vec![event(at_ms)], bytes: 400, room, confirmed: Some(confirmed) });
    outcome
}

fn fill(commits: &mut GroupCommit) {
    while !commits.is_full() {
        add(commits, 0);
    }
}

fn times(batch: &Batch) -> Vec<i64> {
    let events = encoding::decode_events(&batch.messages(&ORIGIN).unwrap()[0].body).unwrap();
    events
        .into_iter()
        .map(|event| match event {
            Event::WorkerSeen(seen) => seen.at_ms,
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn an_event_leaves_at_once_if_no_batch_is_unconfirmed() {
    let mut commits = GroupCommit::default();
    assert!(commits.take_due().is_none(), "there is nothing to send");
    for at_ms in 0..3 {
        let mut outcome = add(&mut commits, at_ms);
        let (number, batch) = commits.take_due().unwrap();
        assert_eq!(times(&batch), [at_ms]);
        assert!(outcome.try_recv().is_err(), "it is not confirmed yet");
        commits.settle(number, batch, &Ok(()));
        assert_eq!(outcome.try_recv(), Ok(Ok(())));
    }
}

#[test]
fn events_gather_while_a_batch_is_unconfirmed_and_leave_together_after_its_confirm() {
    let mut commits = GroupCommit::default();
    add(&mut commits, 1);
    let (first, batch) = commits.take_due().unwrap();
    let later: Vec<Outcome> = (2..5).map(|at_ms| add(&mut commits, at_ms)).collect();
    assert!(commits.take_due().is_none());
    commits.settle(first, batch, &Ok(()));
    let (second, batch) = commits.take_due().unwrap();
    assert_eq!(times(&batch), [2, 3, 4]);
    commits.settle(second, batch, &Ok(()));
    assert!(later.into_iter().all(|mut outcome| outcome.try_recv() == Ok(Ok(()))));
}

#[test]
fn a_lost_batch_holds_up_no_later_one_and_tells_its_callers() {
    let mut commits = GroupCommit::default();
    let mut lost = add(&mut commits, 1);
    let (first, batch) = commits.take_due().unwrap();
    let mut later = add(&mut commits, 2);
    commits.settle(first, batch, &Err(PublishError::Closed));
    assert_eq!(lost.try_recv(), Ok(Err(PublishError::Closed)));
    let (second, batch) = commits.take_due().unwrap();
    commits.settle(second, batch, &Ok(()));
    assert_eq!(later.try_recv(), Ok(Ok(())));
}

#[test]
fn a_full_batch_leaves_beside_unconfirmed_ones_up_to_the_maximum() {
    let mut commits = GroupCommit::default();
    for _ in 0..UNCONFIRMED_MAX {
        fill(&mut commits);
        assert!(commits.take_due().is_some());
        add(&mut commits, 0);
        assert!(commits.take_due().is_none(), "a batch that is not full waits for the confirms");
    }
    fill(&mut commits);
    assert!(commits.take_due().is_none());
    assert_eq!(commits.unconfirmed(), UNCONFIRMED_MAX);
}

#[test]
fn a_flush_waits_for_everything_before_it_and_nothing_after_it() {
    let flush = |commits: &mut GroupCommit| {
        let (confirmed, outcome) = oneshot::channel();
        commits.flush(confirmed);
        outcome
    };
    let mut commits = GroupCommit::default();
    assert_eq!(flush(&mut commits).try_recv(), Ok(Ok(())), "there is nothing to wait for");
    add(&mut commits, 1);
    let (first, batch) = commits.take_due().unwrap();
    let mut of_first = flush(&mut commits);
    add(&mut commits, 2);
    let mut of_both = flush(&mut commits);
    commits.settle(first, batch, &Err(PublishError::Closed));
    assert_eq!(of_first.try_recv(), Ok(Err(PublishError::Closed)));
    let (second, batch) = commits.take_due().unwrap();
    add(&mut commits, 3);
    assert!(of_both.try_recv().is_err());
    commits.settle(second, batch, &Ok(()));
    assert_eq!(of_both.try_recv(), Ok(Err(PublishError::Closed)), "one of its batches was lost");
    assert_eq!(flush(&mut commits).try_recv(), Err(oneshot::error::TryRecvError::Empty), "the third is unconfirmed");
}

proptest! {
    /// Steps: add an event, or confirm one of the unconfirmed batches.
    #[test]
    fn every_event_leaves_once_and_in_order_and_none_waits_while_all_is_confirmed(
        steps in proptest::collection::vec(prop_oneof![3 => Just(None), 1 => (0..4_usize).prop_map(Some)], 0..400)
    ) {
        let mut commits = GroupCommit::default();
        let mut open: Vec<(Number, Batch)> = Vec::new();
        let (mut added, mut left) = (0, Vec::new());
        for step in steps {
            match step {
                None => {
                    add(&mut commits, added);
                    added += 1;
                }
                Some(_) if open.is_empty() => {}
                Some(index) => {
                    let (number, batch) = open.remove(index % open.len());
                    commits.settle(number, batch, &Ok(()));
                }
            }
            while let Some((number, batch)) = commits.take_due() {
                left.extend(times(&batch));
                open.push((number, batch));
            }
            prop_assert!(!open.is_empty() || commits.gathered() == 0);
            prop_assert_eq!(open.len(), commits.unconfirmed());
        }
        left.extend(commits.take_rest().iter().flat_map(|(_, batch)| times(batch)));
        prop_assert_eq!(left, (0..added).collect::<Vec<_>>());
    }
}

//! Tests of brief jobs that start together in a slot.

use super::*;

/// Returns a job that may ride in a train.
fn brief() -> NewJob {
    let mut job = job();
    if let Preparation::Ready { demand, .. } = &mut job.preparation {
        demand.brief_us = Some(100);
    }
    job
}

#[test]
fn brief_jobs_start_together_and_one_that_comes_back_starts_alone() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.take(SECOND, vec![brief(), brief(), brief()]);
    assert_eq!(desk.started(), [0]);
    desk.end(first_of(FIRST), Ending::Succeeded, 4);
    let second = |index| JobNo { message: SECOND, index };
    let trains = desk.taken(|effect| if let Effect::Start { jobs, .. } = effect { Some(jobs.clone()) } else { None });
    assert_eq!(trains, [[0, 1, 2].map(second)]);
    desk.tell(Input::Returned { job: second(1), held: () });
    desk.tell(Input::Returned { job: second(2), held: () });
    desk.tell(Input::Returned { job: second(2), held: () });
    assert_eq!(desk.started(), [0; 0], "the first one still has the slot");
    desk.end(second(0), Ending::Succeeded, 0);
    assert_eq!(desk.started(), [1], "not in a train again");
    desk.end(second(1), Ending::Succeeded, 0);
    assert_eq!(desk.started(), [2]);
}

#[test]
fn a_job_that_comes_back_from_a_train_may_have_ended_in_the_meantime() {
    let with_limit = || {
        let limit = QueueLimit { limit: Duration::from_secs(1), before: Duration::ZERO, delivered: Instant::now() };
        NewJob { limit: Some(limit), ..brief() }
    };
    let returned = |event: fn(&mut Desk, JobId)| {
        let mut desk = Desk::new(1);
        desk.take(FIRST, vec![job()]);
        let behind = with_limit();
        let id = behind.subject.job;
        desk.take(SECOND, vec![brief()]);
        desk.take(THIRD, vec![behind]);
        desk.end(first_of(FIRST), Ending::Succeeded, 4);
        assert_eq!(desk.started(), [0, 0, 0]);
        event(&mut desk, id);
        desk.answered();
        desk.settled();
        desk.tell(Input::Returned { job: first_of(THIRD), held: () });
        format!("{:?}{:?}", desk.answered(), desk.settled())
    };
    assert!(
        returned(|desk, id| desk.order(cancel(&[id], None), Speaker::Operator, None)).contains("cancelled by anna")
    );
    assert!(returned(|desk, _| desk.pass(Duration::from_secs(2))).contains("QueueLimit"));
    assert!(returned(|desk, _| desk.tell(Input::Drain)).contains("Requeue"));
    assert!(returned(|desk, _| desk.tell(Input::Lost(THIRD))).contains("Requeue"));
}

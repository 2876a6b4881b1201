//! Tests of sessions, which wait for memory at one worker after the other.

use std::time::Duration;

use super::{Desk, FIRST, Input, NewJob, SECOND, SESSIONS, job};
use crate::{
    dispatcher::{Effect, JobNo, Preparation, Unfit},
    disposition::Ending,
    scheduler::{Change, Demand, DeviceId, SessionTerms},
};

const FIRST_JOB: JobNo = JobNo { message: FIRST, index: 0 };
const SECOND_JOB: JobNo = JobNo { message: SECOND, index: 0 };
/// A little longer than a session waits at a worker.
const PATIENCE: Duration = Duration::from_millis(5_001);

fn session(bytes: u64, insists: bool) -> NewJob {
    let mut new = job();
    if let Preparation::Ready { demand, .. } = &mut new.preparation {
        let session = Some(SessionTerms { memory_permille: 1000, insists, is_whole: false });
        *demand = Demand { bytes, session, ..*demand };
    }
    new
}

fn sent_on(desk: &mut Desk) -> Vec<JobNo> {
    desk.taken(|effect| if let Effect::Forward(job, Unfit::NoRoom) = effect { Some(*job) } else { None })
}

#[test]
fn a_session_that_finds_no_memory_goes_to_another_worker() {
    let mut desk = Desk::new(1);
    desk.take_from(SESSIONS, FIRST, vec![session(60, false)]);
    assert_eq!(desk.started(), [0]);
    desk.take_from(SESSIONS, SECOND, vec![session(60, false)]);
    desk.pass(PATIENCE / 2);
    assert_eq!(sent_on(&mut desk), []);
    desk.pass(PATIENCE);
    assert_eq!(sent_on(&mut desk), [SECOND_JOB]);
    desk.end(FIRST_JOB, Ending::Succeeded, 0);
    assert_eq!(desk.started(), [0_usize; 0], "it has gone");
}

#[test]
fn a_session_that_has_reserved_a_device_stays() {
    let mut desk = Desk::new(1);
    let mut large = job();
    if let Preparation::Ready { demand, .. } = &mut large.preparation {
        demand.bytes = 60;
    }
    desk.take(FIRST, vec![large]);
    desk.take_from(SESSIONS, SECOND, vec![session(60, true)]);
    assert_eq!(desk.started(), [0]);
    desk.pass(PATIENCE);
    desk.pass(PATIENCE);
    assert_eq!(sent_on(&mut desk), []);
    desk.end(FIRST_JOB, Ending::Succeeded, 0);
    assert_eq!(desk.started(), [0]);
    desk.pass(PATIENCE);
    assert_eq!(sent_on(&mut desk), [], "it has started");
}

#[test]
fn a_session_that_can_reserve_no_device_goes_on_however_long_it_has_waited() {
    let mut desk = Desk::new(1);
    desk.take_from(SESSIONS, FIRST, vec![session(60, false)]);
    desk.take_from(SESSIONS, SECOND, vec![session(60, true)]);
    desk.pass(PATIENCE);
    assert_eq!(sent_on(&mut desk), [SECOND_JOB], "the open session may stay for hours");
}

#[test]
fn a_session_that_has_left_is_not_charged() {
    let mut desk = Desk::new(1);
    desk.take_from(SESSIONS, FIRST, vec![session(60, false)]);
    desk.tell(Input::Used { job: FIRST_JOB, used_us: 1_000 });
    desk.end(FIRST_JOB, Ending::Succeeded, 0);
    // The use may be told by a task that has not noticed the end.
    desk.tell(Input::Used { job: FIRST_JOB, used_us: 1_000 });
    assert_eq!(desk.dispatcher.running(), 0);
}

#[test]
fn a_session_whose_device_goes_out_of_service_looks_for_another_worker() {
    let mut desk = Desk::new(1);
    desk.tell(Input::Devices(Change::Device { device: DeviceId(1), slots: 1, bytes: 50 }));
    desk.take_from(SESSIONS, FIRST, vec![session(80, false)]);
    desk.take_from(SESSIONS, SECOND, vec![session(80, true)]);
    desk.tell(Input::Devices(Change::DeviceGone(DeviceId(0))));
    let unfit = desk.taken(|effect| if let Effect::Forward(job, unfit) = effect { Some((*job, *unfit)) } else { None });
    assert!(matches!(unfit[..], [(SECOND_JOB, Unfit::TooLarge(_))]), "{unfit:?}");
}

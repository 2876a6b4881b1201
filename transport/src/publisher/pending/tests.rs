use tokio::sync::{Semaphore, oneshot};

use super::*;
use crate::Properties;

const WAITED: Duration = Duration::from_secs(5);

type Outcome = oneshot::Receiver<Result<(), PublishError>>;

fn request(id: &str, routing_key: &str, deadline: Instant) -> (Request, Outcome) {
    let (done, outcome) = oneshot::channel();
    let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let properties = Properties { message_id: Some(id.to_owned()), ..Properties::default() };
    let message = Message { exchange: "e", routing_key: routing_key.to_owned(), body: Vec::new(), properties };
    (Request { message: Arc::new(message), deadline, done, room }, outcome)
}

fn sent(pending: &mut Pending, id: &str, routing_key: &str) -> (Number, Outcome) {
    let (request, outcome) = request(id, routing_key, Instant::now() + WAITED);
    let number = pending.add(request);
    assert!(pending.take_to_send(number).is_some());
    (number, outcome)
}

fn back(id: &str, routing_key: &str) -> Return {
    Return { message_id: Some(id.to_owned()), exchange: "e".to_owned(), routing_key: routing_key.to_owned() }
}

fn unroutable(routing_key: &str) -> Result<(), PublishError> {
    Err(PublishError::Unroutable { exchange: "e".to_owned(), routing_key: routing_key.to_owned() })
}

#[test]
fn a_return_is_told_to_its_own_message_whichever_confirm_carried_it() {
    let mut pending = Pending::default();
    let (a, mut a_outcome) = sent(&mut pending, "a", "k");
    let (b, mut b_outcome) = sent(&mut pending, "b", "nowhere");
    pending.mark_returned(&back("b", "nowhere"));
    pending.settle(a, Confirm::Ack);
    assert_eq!(a_outcome.try_recv(), Ok(Ok(())));
    assert!(b_outcome.try_recv().is_err());
    pending.settle(b, Confirm::Ack);
    assert_eq!(b_outcome.try_recv(), Ok(unroutable("nowhere")));
    assert!(pending.is_empty());
}

#[test]
fn two_returns_of_one_id_to_one_place_mark_both() {
    let mut pending = Pending::default();
    let (a, mut a_outcome) = sent(&mut pending, "same", "nowhere");
    let (b, mut b_outcome) = sent(&mut pending, "same", "nowhere");
    let (c, mut c_outcome) = sent(&mut pending, "same", "somewhere");
    pending.mark_returned(&back("same", "nowhere"));
    pending.mark_returned(&back("same", "nowhere"));
    for number in [c, b, a] {
        pending.settle(number, Confirm::Ack);
    }
    assert_eq!(a_outcome.try_recv(), Ok(unroutable("nowhere")));
    assert_eq!(b_outcome.try_recv(), Ok(unroutable("nowhere")));
    assert_eq!(c_outcome.try_recv(), Ok(Ok(())));
}

#[test]
fn a_message_that_left_expires_as_unknown_and_one_that_did_not_as_timeout() {
    let mut pending = Pending::default();
    let now = Instant::now();
    let (left, mut left_outcome) = request("a", "k", now);
    let (stayed, mut stayed_outcome) = request("b", "k", now);
    let left = pending.add(left);
    pending.add(stayed);
    pending.take_to_send(left).unwrap();
    pending.expire(now, WAITED, Some(&"no memory".to_owned()));
    let blocked = Some("no memory".to_owned());
    assert_eq!(left_outcome.try_recv(), Ok(Err(PublishError::Unknown { waited: WAITED, blocked: blocked.clone() })));
    assert_eq!(stayed_outcome.try_recv(), Ok(Err(PublishError::Timeout { waited: WAITED, blocked })));
    assert_eq!(pending.numbers(), [left], "its confirm may still carry a return");
    pending.channel_ended();
    assert!(pending.is_empty());
}

#[test]
fn a_message_whose_caller_has_gone_is_not_sent() {
    let mut pending = Pending::default();
    let (request, outcome) = request("a", "k", Instant::now() + WAITED);
    let number = pending.add(request);
    drop(outcome);
    assert!(pending.take_to_send(number).is_none());
    assert!(pending.is_empty());
}

#[test]
fn sending_again_forgets_an_earlier_return() {
    let mut pending = Pending::default();
    let (number, mut outcome) = sent(&mut pending, "a", "k");
    pending.mark_returned(&back("a", "k"));
    pending.take_to_send(number).unwrap();
    pending.settle(number, Confirm::Ack);
    assert_eq!(outcome.try_recv(), Ok(Ok(())));
}

#[test]
fn closing_tells_everybody() {
    let mut pending = Pending::default();
    let (_, mut left) = sent(&mut pending, "a", "k");
    let (request, mut stayed) = request("b", "k", Instant::now());
    pending.add(request);
    pending.close(WAITED);
    assert!(matches!(left.try_recv(), Ok(Err(PublishError::Unknown { .. }))));
    assert_eq!(stayed.try_recv(), Ok(Err(PublishError::Closed)));
}

#[test]
fn deadlines_of_the_settled_do_not_pile_up_behind_one_that_is_not() {
    let mut pending = Pending::default();
    let (_stuck, _outcome) = sent(&mut pending, "stuck", "k");
    for number in 0..10_000 {
        let (number, _) = sent(&mut pending, &number.to_string(), "k");
        pending.settle(number, Confirm::Ack);
    }
    assert!(pending.deadlines.len() < 100, "{}", pending.deadlines.len());
    assert!(pending.next_deadline().is_some(), "the one that waits has its deadline still");
}

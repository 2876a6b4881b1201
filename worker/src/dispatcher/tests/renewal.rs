//! Tests of a job that runs while its channel is lost again and again.

use super::{
    super::{Decoded, Effect, Input, MessageNo, PublishFailure, Settlement, digest},
    Desk, Ending, FIRST, SECOND, first_of, job, not_confirmed,
};

const ID: &str = "1";

/// Runs a job whose channel is lost this often. Returns the last redelivery.
fn lose_channel(desk: &mut Desk, times: u64) -> MessageNo {
    desk.take(FIRST, vec![job()]);
    for redeliveries in 1..=times {
        desk.deliver_again(MessageNo(1 + redeliveries), ID, redeliveries, 0);
    }
    MessageNo(1 + times)
}

fn settled(desk: &mut Desk, message: MessageNo, unreached: bool) {
    desk.tell(Input::Settled(vec![(message, unreached.then(|| digest(ID, b"body")))]));
}

/// Ends the running job: its outcome is published and recorded, but its acknowledgement does not reach the broker.
fn end_first(desk: &mut Desk, ending: Ending) {
    desk.tell(Input::Lost(FIRST));
    desk.end(first_of(FIRST), ending, 4);
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.tell(Input::Recorded(FIRST, Ok(())));
}

fn stopped() -> Ending {
    Ending::Lost { reason: "the worker stops".into(), suspect: false }
}

#[test]
fn a_redelivery_of_a_running_job_is_republished_before_the_broker_has_counted_too_many() {
    let mut desk = Desk::new(1);
    let last = lose_channel(&mut desk, 6);
    assert_eq!(desk.copied(), []);
    assert_eq!(desk.settled(), [Settlement::SentOn; 5], "the last one stands for those of closed channels");
    let seventh = MessageNo(last.0 + 1);
    desk.deliver_again(seventh, ID, 7, 0);
    assert_eq!(desk.copied(), [(seventh, 1)], "the delivery of the job that runs counts, the others do not");
    assert_eq!(desk.settled(), [Settlement::SentOn], "the sixth");
    desk.tell(Input::Published(seventh, Ok(())));
    assert_eq!(desk.settled(), [Settlement::SentOn], "acknowledged once the copy is confirmed");
    assert!(desk.answered().is_empty() && desk.started() == [0], "the job runs on, once");
}

#[test]
fn forty_lost_channels_leave_one_message_that_is_acknowledged_with_its_job() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    let (mut message, mut redeliveries, mut counted, mut copies) = (FIRST, 0, 0, 0);
    for _ in 0..40 {
        message = MessageNo(message.0 + 1);
        redeliveries += 1;
        assert!(redeliveries < 15, "the broker's limit comes near");
        desk.deliver_again(message, ID, redeliveries, counted);
        for (copied, count) in desk.copied() {
            desk.tell(Input::Published(copied, Ok(())));
            settled(&mut desk, copied, false);
            // The copy is delivered.
            (message, redeliveries, counted, copies) = (MessageNo(message.0 + 1), 0, count, copies + 1);
            desk.deliver_again(message, ID, redeliveries, counted);
        }
    }
    assert_eq!(copies, 5);
    assert_eq!(desk.started(), [0], "it ran once");
    desk.settled();
    end_first(&mut desk, Ending::Succeeded);
    assert_eq!(desk.settled(), [Settlement::Answered]);
    settled(&mut desk, FIRST, true);
    assert_eq!(desk.settled(), [Settlement::Answered], "only the last one is left");
}

#[test]
fn a_stopping_worker_leaves_its_running_job_as_one_message() {
    let mut desk = Desk::new(1);
    let last = lose_channel(&mut desk, 6);
    desk.settled();
    desk.tell(Input::Drain);
    end_first(&mut desk, stopped());
    let answered = desk.answered();
    assert!(format!("{answered:?}").contains("Again"), "{answered:?}");
    let mut settlements = desk.settled();
    settled(&mut desk, FIRST, true);
    settlements.extend(desk.settled());
    assert_eq!(settlements, [Settlement::SentOn; 2], "the retry stands for the redelivery too");
    settled(&mut desk, last, false);
    let refused = desk.taken(|effect| matches!(effect, Effect::Refuse(..)).then_some(()));
    assert!(refused.is_empty() && desk.answered().is_empty());
}

/// The retry has the id and body of the message that it follows.
#[test]
fn a_retry_that_comes_before_its_message_is_settled_is_not_taken_for_a_redelivery() {
    let mut desk = Desk::new(1);
    desk.take(FIRST, vec![job()]);
    desk.tell(Input::Lost(FIRST));
    desk.end(first_of(FIRST), stopped(), 4);
    desk.deliver_again(SECOND, ID, 1, 0);
    desk.tell(Input::Answered(FIRST, Ok(())));
    desk.tell(Input::Recorded(FIRST, Ok(())));
    assert_eq!(desk.settled(), [Settlement::SentOn]);
    settled(&mut desk, FIRST, true);
    assert_eq!(desk.settled(), [], "it may be the retry");
    assert_eq!(desk.taken(|effect| matches!(effect, Effect::Decode(_)).then_some(())).len(), 2, "it runs");
}

#[test]
fn a_copy_that_is_refused_leaves_the_redelivery_where_it_is() {
    let mut desk = Desk::new(1);
    lose_channel(&mut desk, 7);
    desk.settled();
    let [(renewed, _)] = desk.copied()[..] else { panic!("not renewed") };
    desk.tell(Input::Published(renewed, Err(PublishFailure { reason: "full".to_owned() })));
    assert_eq!(desk.settled(), []);
    let eighth = MessageNo(renewed.0 + 1);
    desk.deliver_again(eighth, ID, 8, 0);
    assert_eq!(desk.copied(), [(eighth, 1)], "the next one tries again");
}

#[test]
fn a_copy_whose_confirmation_was_lost_becomes_one_with_its_redelivery() {
    let mut desk = Desk::new(1);
    let renewed = lose_channel(&mut desk, 7);
    desk.settled();
    desk.tell(Input::Published(renewed, Err(not_confirmed())));
    let copy = MessageNo(renewed.0 + 1);
    desk.deliver_again(copy, ID, 0, 1);
    assert_eq!(desk.settled(), [Settlement::SentOn], "the copy stands for it");
    settled(&mut desk, renewed, false);
    end_first(&mut desk, Ending::Succeeded);
    settled(&mut desk, FIRST, true);
    assert_eq!(desk.settled(), [Settlement::Answered; 2], "the job's own delivery and the copy");
}

/// The redelivery may be all that the broker has, and the job still runs.
#[test]
fn a_message_that_waited_does_not_replace_a_redelivery_that_arrived_after_it() {
    let mut desk = Desk::new(2);
    let (namesake, newest) = (MessageNo(3), MessageNo(4));
    desk.take(FIRST, vec![job()]);
    desk.deliver_again(SECOND, ID, 1, 0);
    desk.deliver(namesake, ID, false);
    desk.tell(Input::Decoded(namesake, Decoded { is_list: false, body_bytes: 4, held: (), jobs: vec![job()] }));
    desk.deliver_again(newest, ID, 2, 0);
    desk.tell(Input::Lost(FIRST));
    desk.end(first_of(FIRST), Ending::Succeeded, 4);
    desk.tell(Input::Answered(FIRST, Err(not_confirmed())));
    assert_eq!(desk.settled(), [Settlement::Requeue]);
    settled(&mut desk, FIRST, true);
    assert_eq!(desk.settled(), [], "the second waits behind the namesake now, as the newest does");
}

#[test]
fn a_redelivery_that_takes_the_place_of_its_message_counts_only_what_was_tried() {
    for (is_tried, count) in [(true, 1), (false, 0)] {
        // A job does not start before all orders are known.
        let mut desk = if is_tried { Desk::new(1) } else { Desk::cut_off(1) };
        let last = lose_channel(&mut desk, 6);
        desk.settled();
        desk.tell(Input::Lost(FIRST));
        if is_tried {
            desk.end(first_of(FIRST), Ending::Succeeded, 4);
            desk.tell(Input::Answered(FIRST, Err(not_confirmed())));
        }
        assert_eq!(desk.settled(), [Settlement::Requeue]);
        settled(&mut desk, FIRST, true);
        assert_eq!(desk.dispatcher.message(last).info.delivery_count, count);
    }
}

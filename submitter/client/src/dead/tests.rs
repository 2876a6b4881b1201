use gpufleet_schema::{
    OneOrMany, Priority, Program, Task,
    bounds::{LABELS_MAX, MESSAGE_BYTES_MAX},
    topology::{HEADER_BODY_BYTES, TYPE_EVENTS},
};
use gpufleet_transport::Death;

use super::*;

fn task() -> Task<'static> {
    let job = crate::Job::catalog("saxpy").scalar("a", 2.0).input("x", &[1.0_f32]).input("y", &[1.0_f32]);
    job.build().unwrap().task
}

fn body(tasks: &OneOrMany<Task<'_>>) -> Vec<u8> {
    Encoding::MessagePack.encode_tasks(tasks).unwrap()
}

fn properties() -> Properties {
    let content_type = Some(Encoding::MessagePack.content_type().to_owned());
    Properties { content_type, ..Properties::default() }
}

fn death(queue: &str, reason: &str) -> Death {
    Death { queue: queue.to_owned(), reason: reason.to_owned() }
}

fn renewed(body: &[u8], done: &[JobId]) -> Option<Result<Vec<Task<'static>>, DeadError>> {
    let done = done.iter().copied().collect();
    let tasks = renewal::renewed(Encoding::MessagePack, body, &done)?;
    // The body is leaked so that its tasks can borrow from it until the process ends.
    Some(tasks.map(|tasks| {
        let body: &'static [u8] = Vec::leak(self::body(&tasks));
        Encoding::MessagePack.decode_tasks(body).unwrap().into_vec()
    }))
}

#[test]
fn a_letter_lists_the_jobs_of_a_message_without_a_type_and_none_of_an_event() {
    let task = task();
    let body = body(&OneOrMany::One(task.clone()));
    assert_eq!(DeadLetter::read(&properties(), &[], &body).jobs, [task.job_id]);
    let events = Properties { kind: Some(TYPE_EVENTS.to_owned()), ..properties() };
    assert_eq!(DeadLetter::read(&events, &[], &body).jobs, []);
}

#[test]
fn the_origin_of_a_letter_is_its_task_queue_and_not_a_retry_queue() {
    let task_queue = "gpufleet.v1.tasks.default.low";
    let deaths = [death(task_queue, "delivery_limit"), death("gpufleet.v1.retry.1", "expired")];
    let letter = DeadLetter::read(&properties(), &deaths, &[]);
    assert_eq!(
        (letter.origin.as_str(), letter.reason.as_str()),
        (task_queue, "dead-lettered by the broker: delivery_limit")
    );
    let destination = ("default".parse().unwrap(), Priority::Low);
    assert_eq!(letter.destination(), Some(destination.clone()));
    let of_slot = DeadLetter::read(&properties(), &[death("gpufleet.v1.tasks.default.7.low", "delivery_limit")], &[]);
    assert_eq!(of_slot.destination(), Some(destination), "it returns to the pool's own queue");
    let elsewhere = DeadLetter::read(&properties(), &deaths[1..], &[]);
    assert_eq!((elsewhere.origin.as_str(), elsewhere.destination()), ("gpufleet.v1.retry.1", None));
}

#[test]
fn a_session_is_not_replayed() {
    let deaths =
        [death("gpufleet.v1.tasks.default.session", "delivery_limit"), death("gpufleet.v1.retry.1", "expired")];
    let letter = DeadLetter::read(&properties(), &deaths, &[]);
    assert!(letter.is_of_session() && letter.destination().is_none());
    let session = Task::new(Program::Session { label: "python".to_owned(), idle_limit_ms: None });
    let renewed = renewed(&body(&OneOrMany::One(session)), &[]).unwrap();
    assert!(matches!(renewed, Err(DeadError::Session)), "{renewed:?}");
}

#[test]
fn a_host_program_is_listed_and_not_replayed() {
    let host = crate::Job::host(["python", "train.py"], "torch").build().unwrap().task;
    let job_id = host.job_id;
    let body = body(&OneOrMany::One(host));
    let deaths = [death("gpufleet.v1.tasks.default.program", "delivery_limit")];
    let letter = DeadLetter::read(&properties(), &deaths, &body);
    assert_eq!((letter.jobs.as_slice(), letter.origin.as_str()), (&[job_id][..], deaths[0].queue.as_str()));
    assert!(letter.is_of_host_program() && !letter.is_of_session() && letter.destination().is_none());
    let renewed = renewed(&body, &[]).unwrap();
    assert!(matches!(renewed, Err(DeadError::HostProgram)), "{renewed:?}");
    assert!(DeadError::HostProgram.concerns_one_letter());
}

#[test]
fn our_headers_count_only_in_a_letter_that_the_broker_did_not_move() {
    let headers = [(HEADER_REASON, "r"), (HEADER_ORIGIN, "default.high"), (HEADER_USER, "anna")];
    let headers = headers.map(|(name, text)| (name.to_owned(), text.into()));
    let properties = Properties { headers: headers.into(), user_id: Some("mallory".to_owned()), ..properties() };
    let read = |deaths: &[Death]| {
        let letter = DeadLetter::read(&properties, deaths, &[]);
        (letter.origin, letter.reason, letter.user)
    };
    assert_eq!(read(&[]), ("default.high".to_owned(), "r".to_owned(), Some("anna".to_owned())));
    let queue = "gpufleet.v1.tasks.a.low";
    let moved = read(&[death(queue, "expired")]);
    assert_eq!(moved, (queue.to_owned(), "dead-lettered by the broker: expired".to_owned(), None));
}

#[test]
fn a_letter_that_the_broker_moved_belongs_to_the_user_whom_it_validated() {
    let properties = Properties { user_id: Some("anna".to_owned()), ..properties() };
    let moved = DeadLetter::read(&properties, &[death("gpufleet.v1.tasks.a.low", "delivery_limit")], &[]);
    assert_eq!(moved.user.as_deref(), Some("anna"));
    assert_eq!(DeadLetter::read(&properties, &[], &[]).user, None, "a worker's own user is not the job's");
}

#[test]
fn a_letter_whose_body_was_cut_has_the_original_size() {
    let whole = i64::try_from(MESSAGE_BYTES_MAX + 1).unwrap();
    let headers = [(HEADER_BODY_BYTES.to_owned(), whole.into())];
    let cut = DeadLetter::read(&Properties { headers: headers.into(), ..properties() }, &[], &[0; 10]);
    assert_eq!((cut.bytes, cut.kept_bytes, cut.is_cut()), (whole.unsigned_abs(), 10, true));
    assert!(!DeadLetter::read(&properties(), &[], &[0; 10]).is_cut());
}

#[test]
fn a_renewed_task_is_another_job_that_names_the_old_one() {
    let old = task();
    let new = renewed(&body(&OneOrMany::One(old.clone())), &[]).unwrap().unwrap();
    assert_ne!(new[0].job_id, old.job_id);
    assert_eq!(new[0].labels[REPLAY_LABEL], old.job_id.to_string());
    assert_eq!(new[0].buffers, old.buffers);
}

#[test]
fn a_task_with_all_labels_used_is_refused_unless_it_has_the_replay_label() {
    let mut old = task();
    old.labels = (0..LABELS_MAX).map(|index| (format!("label-{index}"), String::new())).collect();
    let refused = renewed(&body(&OneOrMany::One(old.clone())), &[]).unwrap();
    assert!(matches!(refused, Err(DeadError::LabelsFull { job_id }) if job_id == old.job_id), "{refused:?}");
    old.labels.remove("label-0");
    old.labels.insert(REPLAY_LABEL.to_owned(), "before".to_owned());
    renewed(&body(&OneOrMany::One(old)), &[]).unwrap().unwrap();
}

#[test]
fn a_task_that_a_worker_would_find_invalid_is_refused() {
    let invalid = Task { program: Program::Catalog(String::new()), ..task() };
    let refused = renewed(&body(&OneOrMany::Many(vec![task(), invalid.clone()])), &[]).unwrap();
    assert!(matches!(refused, Err(DeadError::Invalid { job_id, .. }) if job_id == invalid.job_id), "{refused:?}");
}

#[test]
fn jobs_that_were_already_replayed_are_left_out() {
    let (first, second) = (task(), task());
    let list = body(&OneOrMany::Many(vec![first.clone(), second.clone()]));
    let rest = renewed(&list, &[first.job_id]).unwrap().unwrap();
    assert_eq!(rest.iter().map(|task| &task.labels[REPLAY_LABEL]).collect::<Vec<_>>(), [&second.job_id.to_string()]);
    assert_eq!(renewed(&list, &[first.job_id, second.job_id]).unwrap().unwrap(), []);
    assert_eq!(renewed(&body(&OneOrMany::One(first.clone())), &[first.job_id]).unwrap().unwrap(), []);
}

#[test]
fn a_body_without_tasks_can_not_be_renewed() {
    assert!(renewed(&body(&OneOrMany::Many(Vec::new())), &[]).is_none());
    assert!(renewed(b"nonsense", &[]).is_none());
}

#[test]
fn a_renewed_task_that_exceeds_a_message_is_refused() {
    let x = vec![0.0_f32; MESSAGE_BYTES_MAX / 8];
    let task = crate::Job::catalog("saxpy").scalar("a", 2.0).input("x", &x).input("y", &x).build().unwrap().task;
    let refused = renewal::encode(Encoding::MessagePack, &OneOrMany::One(task));
    assert!(matches!(refused, Err(DeadError::TooLarge { bytes }) if bytes > MESSAGE_BYTES_MAX as u64), "{refused:?}");
}

#[test]
fn bodies_are_bounded_to_the_byte_and_a_dropped_body_makes_room() {
    let mut bodies = Bodies::at_most(10);
    let first = bodies.keep(vec![1; 6]);
    assert_eq!(first, Some(vec![1; 6]));
    let not_kept = bodies.keep(vec![2; 5]);
    assert_eq!(not_kept, None);
    assert_eq!(bodies.keep(vec![3; 4]), Some(vec![3; 4]));
    assert_eq!((bodies.keep(vec![4]), bodies.keep(Vec::new())), (None, Some(Vec::new())));
    bodies.forget(not_kept);
    assert_eq!(bodies.keep(vec![5]), None, "a body that was not kept makes no room");
    bodies.forget(first);
    assert_eq!((bodies.keep(vec![6; 7]), bodies.keep(vec![7; 6])), (None, Some(vec![7; 6])));
}

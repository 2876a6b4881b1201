//! Users with the permissions that `gpufleet permissions` prints can do their work and nothing else: they reach no
//! other pool and no other client's replies, can't forge outcomes, and can't send an operator's orders. (fault 23)

use gpufleet::{CancelScope, FailedJob, JobError, SubmitError};
use gpufleet_schema::{
    AttemptFinished, AttemptState, ClientName, Command, Event, JobId, JobState, MessageId, Order, Selection,
    WorkerName, encoding,
    topology::{
        DEAD_QUEUE, EVENTS_ACTION_KEY, EVENTS_CLIENT, EVENTS_KEY, EVENTS_WORKER, HEADER_REASON, REPLIES, Speaker,
        TASKS, reply_queue, submissions_key,
    },
};
use gpufleet_tests::{WAIT, busy, delivered, gpufleet_command, kernels};
use gpufleet_transport::{DeclareError, Message, PublishError};

use crate::confined::{By, Confined};

const INTRUDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/intruder.py");
fn only(job: JobId) -> Selection {
    Selection { jobs: vec![job], ..Selection::default() }
}

fn events(exchange: &'static str, routing_key: &str, events: &[Event]) -> Message {
    Message::to(exchange, routing_key, encoding::encode_events(events).unwrap())
}

fn forbidden(published: Result<(), PublishError>) {
    let error = published.unwrap_err();
    assert!(matches!(error, PublishError::Forbidden { .. }), "{error}");
    assert!(error.to_string().contains("gpufleet permissions"), "{error}");
}

fn failed(error: JobError) -> FailedJob {
    let JobError::Failed(failed) = error else { panic!("{error}") };
    *failed
}

#[tokio::test(flavor = "multi_thread")]
async fn every_role_works_with_its_printed_permissions() {
    let confined = Confined::start("roles", By::Rabbitmqctl).await;
    let (ground, anna) = (&confined.ground, confined.fleet("anna").await);
    let in_pool = |pool: &str| kernels::doubles(&[3.0]).pool(pool.parse().unwrap());
    let mut handle = anna.submit(in_pool("team-a")).await.unwrap();
    assert_eq!(handle.wait(WAIT).await.unwrap().output::<f32>("y").unwrap(), [6.0]);
    let recorded = ground.final_job(handle.id()).await.job;
    assert_eq!((recorded.state, recorded.user_id), (JobState::Succeeded, Some(confined.user("anna"))));
    anna.close().await;

    // A job that loses its executor passes through a retry queue, for which a permission of its own is needed.
    let bert = confined.fleet("bert").await;
    let mut twice = bert.submit(busy::until_released().pool("team-b".parse().unwrap())).await.unwrap();
    ground.poll_job("running", twice.id(), |job| job.state == JobState::Running).await;
    confined.worker.kill_executor().await;
    ground.release_jobs();
    assert!(twice.wait(WAIT).await.unwrap().attempt > 1);

    let folder = tempfile::tempdir().unwrap();
    let olga = confined.url("olga");
    let environment =
        [("GPUFLEET_AMQP_URL", olga.as_str()), ("GPUFLEET_DATABASE_URL", ground.endpoints().database_url.as_str())];
    for arguments in [&["dead", "list"][..], &["workers", "drain", confined.worker.name()]] {
        gpufleet_command(folder.path(), &environment, arguments).await.ok();
    }
    assert_eq!(confined.worker.ended().await, Some(0));
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_reaches_no_other_pool_and_no_other_clients_replies() {
    let confined = Confined::start("strangers", By::Functions).await;
    let (anna, bert) = (confined.fleet("anna").await, confined.fleet("bert").await);
    let in_pool = |pool: &str| kernels::doubles(&[3.0]).pool(pool.parse().unwrap());
    let mut good = anna.submit(in_pool("team-a")).await.unwrap();
    good.wait(WAIT).await.unwrap();
    for pool in ["team-b", "default"] {
        let error = anna.submit(in_pool(pool)).await.unwrap_err();
        assert!(matches!(error, SubmitError::Publish(PublishError::Forbidden { .. })), "{pool}: {error}");
    }
    // The first job declares bert's reply queue.
    bert.submit(in_pool("team-b")).await.unwrap().wait(WAIT).await.unwrap();

    let broker = confined.broker("anna").await;
    let message = |exchange: &'static str, routing_key: &str| Message::to(exchange, routing_key, b"{}".to_vec());
    forbidden(broker.publish(message(REPLIES, bert.client().as_str())).await);
    forbidden(broker.publish(message(TASKS, "team-a-more.normal")).await);
    broker.publish(message(TASKS, "team-a.7.normal")).await.unwrap();
    for slot in ["team-b.7.normal", "team-a.8.normal"] {
        forbidden(broker.publish(message(TASKS, slot)).await);
    }
    forbidden(broker.publish(message("", &reply_queue(bert.client()))).await);
    let strange: ClientName = format!("{}-x", confined.user("bert")).parse().unwrap();
    let error = broker.declare_reply_queue(&strange).await.unwrap_err();
    assert!(matches!(error, DeclareError::Forbidden { .. }), "{error}");
    let error = broker.declare_base().await.unwrap_err();
    assert!(matches!(error, DeclareError::Forbidden { .. }), "{error}");

    let own = format!("{}-intruder", confined.user("anna"));
    let said = confined.python("anna", INTRUDER, &[&own, bert.client().as_str()]).await;
    let attempts: Vec<(&str, &str)> = said.lines().map(|line| line.split_once(": ").unwrap()).collect();
    assert_eq!(attempts.len(), 13, "{said}");
    let own = ["declare own queue", "bind own queue to own name", "delete own queue"];
    for (attempt, outcome) in attempts {
        assert_eq!(outcome, if own.contains(&attempt) { "allowed" } else { "refused" }, "{attempt}: {said}");
    }
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_forged_outcome_is_dead_lettered_and_the_true_one_recorded() {
    let confined = Confined::start("forged", By::Functions).await;
    let (ground, anna) = (&confined.ground, confined.fleet("anna").await);
    let mut job = anna.submit(busy::until_released().pool("team-a".parse().unwrap())).await.unwrap();
    let forger: WorkerName = "forger".parse().unwrap();
    let forged = AttemptFinished::new(job.id(), 1, forger, 1_700_000_000_000, AttemptState::Failed);
    let forged = Event::AttemptFinished(forged);
    let bert = confined.broker("bert").await;
    let forged = std::slice::from_ref(&forged);
    forbidden(bert.publish(events(EVENTS_WORKER, EVENTS_KEY, forged)).await);
    forbidden(bert.publish(events("", EVENTS_KEY, forged)).await);
    let team_a = submissions_key(&"team-a".parse().unwrap());
    for key in [EVENTS_KEY, EVENTS_ACTION_KEY, &team_a] {
        forbidden(bert.publish(events(EVENTS_CLIENT, key, forged)).await);
    }
    // The broker does not check the contents of events, but the recorder does.
    let team_b = submissions_key(&"team-b".parse().unwrap());
    bert.publish(events(EVENTS_CLIENT, &team_b, forged)).await.unwrap();
    let admin = confined.admin().await;
    let mut dead = admin.consume(DEAD_QUEUE.to_owned(), 1);
    let letter = delivered(&mut dead).await;
    let reason = letter.properties.header_text(HEADER_REASON).unwrap();
    assert!(reason.contains("only workers may report"), "{reason}");
    ground.release_jobs();
    busy::assert_done(&job.wait(WAIT).await.unwrap().outputs);
    let detail = ground.final_job(job.id()).await;
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Succeeded, 1));
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_an_operator_cancels_the_jobs_of_others_or_drains_a_worker() {
    let confined = Confined::start("orders", By::Functions).await;
    let (ground, name) = (&confined.ground, confined.worker.name().parse::<WorkerName>().unwrap());
    let (anna, bert) = (confined.fleet("anna").await, confined.fleet("bert").await);
    let endless = || busy::for_seconds(600).pool("team-a".parse().unwrap());
    let (mut first, mut second) = (anna.submit(endless()).await.unwrap(), anna.submit(endless()).await.unwrap());
    for job in [&first, &second] {
        ground.poll_job("running", job.id(), |job| job.state == JobState::Running).await;
    }
    for job in [&first, &second] {
        assert_eq!(bert.cancel(only(job.id()), None).await.unwrap(), CancelScope::Own);
    }
    forbidden(bert.drain_worker(name.clone(), None).await);
    let broker = confined.broker("bert").await;
    let drain = Order::new(0, None, Command::Drain { worker: name });
    forbidden(broker.order(&drain, Speaker::Worker, MessageId::new()).await);
    // The broker accepts the order, and the worker refuses it.
    broker.order(&drain, Speaker::Client, MessageId::new()).await.unwrap();

    // The worker reads orders in sequence. When anna's order has ended her job, the worker has read bert's order too.
    assert_eq!(anna.cancel(only(first.id()), Some("anna".to_owned())).await.unwrap(), CancelScope::Own);
    let ended = failed(first.wait(WAIT).await.unwrap_err());
    assert_eq!((ended.state, ended.failure.unwrap().message.as_str()), (AttemptState::Cancelled, "cancelled by anna"));
    ground.poll_log("the drain order is refused", &confined.worker, "its sender has no permission").await;
    ground.poll_job("running still", second.id(), |job| job.state == JobState::Running).await;
    assert!(confined.worker.is_alive());

    let olga = confined.fleet("olga").await;
    assert_eq!(olga.cancel(only(second.id()), Some("olga".to_owned())).await.unwrap(), CancelScope::All);
    let ended = failed(second.wait(WAIT).await.unwrap_err());
    assert_eq!(ended.failure.unwrap().message, "cancelled by olga");
    confined.end().await;
}

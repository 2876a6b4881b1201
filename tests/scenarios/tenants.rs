//! Users with the permissions of producers can reach neither the pools nor the jobs of others, whatever RabbitMQ lets them publish: no job
//! in another pool, no reply to another user's client, no outcome of another user's job, no forged dead letter. (faults 23 and 24)

use std::time::Duration;

use gpufleet::Replayed;
use gpufleet_ledger::Ledger;
use gpufleet_local::Signal;
use gpufleet_schema::{
    Encoding, Event, JobId, JobInfo, JobState, OneOrMany, Priority, Selection, Submitted, Task, encoding,
    topology::{
        DEAD_QUEUE, EVENTS_CLIENT, HEADER_ORIGIN, HEADER_REASON, HEADER_USER, TASKS, submissions_key, task_key,
    },
};
use gpufleet_tests::{WAIT, busy, delivered, kernels, memory_bytes, poll_until};
use gpufleet_transport::{Delivery, Message, Properties};

use crate::confined::{By, Confined};

const TENANT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/tenant.py");
const DAY: Duration = Duration::from_secs(86_400);
const FLOODS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/floods.py");
const EXPIRING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/expiring.py");

fn task_message(pool: &str, task: &Task<'_>, user: Option<String>) -> Message {
    Message {
        exchange: TASKS,
        routing_key: task_key(&pool.parse().unwrap(), Priority::Normal),
        body: Encoding::Json.encode_tasks(&OneOrMany::One(task.borrowed())).unwrap(),
        properties: Properties {
            content_type: Some(Encoding::Json.content_type().to_owned()),
            user_id: user,
            ..Properties::default()
        },
    }
}

fn reason(letter: &Delivery) -> String {
    letter.properties.header_text(HEADER_REASON).unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_way_through_the_broker_leads_into_another_pool() {
    let confined = Confined::start("ways", By::Functions).await;
    let anna = format!("{}-tenant", confined.user("anna"));
    let jobs: [JobId; 5] = std::array::from_fn(|_| JobId::new());
    let ids = jobs.map(|job| job.to_string());
    let arguments: Vec<&str> = [&anna, "team-a", "team-b"].into_iter().chain(ids.iter().map(String::as_str)).collect();
    let said = confined.python("anna", TENANT, &arguments).await;
    let (rabbitmq_3, rabbitmq_4) = (["copies: taken", "hidden_copies: taken"], ["copies: 403", "hidden_copies: 403"]);
    let others = ["bound_exchange: taken", "alternate_exchange: taken", "dead_letters: taken"];
    // RabbitMQ 4 (4.0.5 here) checks the keys in `CC` and `BCC` headers too.
    let broker_checks_copies = said.lines().take(2).eq(rabbitmq_4);
    let of_copies = if broker_checks_copies { rabbitmq_4 } else { rabbitmq_3 };
    assert_eq!(said.lines().collect::<Vec<_>>(), [&of_copies[..], &others].concat());

    let [copied, hidden, bound, alternate, expired] = jobs;
    let admin = confined.admin().await;
    let mut dead = admin.consume(DEAD_QUEUE.to_owned(), 10);
    let mut refused = Vec::new();
    // If the broker takes copies, they arrive in both pools.
    for _ in 0..others.len() + if broker_checks_copies { 0 } else { 3 } {
        let letter = delivered(&mut dead).await;
        let job: JobId = letter.properties.message_id.as_deref().unwrap().parse().unwrap();
        refused.push((job, reason(&letter)));
    }
    let of_copies = usize::from(!broker_checks_copies);
    for (job, part, count) in [
        (copied, "which is not one of pool team-b", of_copies),
        (copied, "CC header", of_copies),
        (hidden, "which is not one of pool team-b", of_copies),
        (bound, "_bound\", which is not one of gpufleet's", 1),
        (alternate, "_alternate\", which is not one of gpufleet's", 1),
        (expired, "_expiring\", which is not one of gpufleet's", 1),
    ] {
        let found = refused.iter().filter(|(of, reason)| *of == job && reason.contains(part)).count();
        assert_eq!(found, count, "{part}: {refused:?}");
    }
    // The job with hidden copies ran once, in the pool of its user. The others ran nowhere.
    if broker_checks_copies {
        assert!(confined.ground.look(hidden).await.is_none(), "{hidden}");
    } else {
        let ran = confined.ground.final_job(hidden).await;
        assert_eq!((ran.job.pool.as_deref(), ran.attempts.len()), (Some("team-a"), 1));
    }
    for job in [copied, bound, alternate, expired] {
        assert!(confined.ground.look(job).await.is_none(), "{job}");
    }
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_with_the_id_and_the_client_of_another_user_changes_nothing_for_that_user() {
    let confined = Confined::start("ids", By::Functions).await;
    let (ground, anna) = (&confined.ground, confined.fleet("anna").await);
    let held = busy::until_released().pool("team-a".parse().unwrap()).keep(DAY);
    let mut job = anna.submit(held).await.unwrap();
    ground.poll_job("running", job.id(), |job| job.state == JobState::Running).await;

    let bert = confined.broker("bert").await;
    let keep_ms = Some(DAY.as_millis() as u64);
    let forged = Task { job_id: job.id(), reply: Some(anna.client().clone()), keep_ms, ..kernels::saxpy() };
    // With his user id, bert may name only his own clients. Without a user id, the reply lacks the token of anna's client. The forged task
    // runs first, and its outputs are kept too.
    for user in [Some(confined.user("bert")), None] {
        bert.publish(task_message("team-b", &forged, user)).await.unwrap();
    }
    // The worker answers in order: bert's next job comes after the forged ones.
    let last = confined.fleet("bert").await;
    last.submit(kernels::doubles(&[3.0]).pool("team-b".parse().unwrap())).await.unwrap().wait(WAIT).await.unwrap();
    poll_until("the forged reply arrived", async || anna.counts().replies_unreadable == 1).await;

    ground.release_jobs();
    busy::assert_done(&job.wait(WAIT).await.unwrap().outputs);
    let detail = ground.final_job(job.id()).await;
    assert_eq!((detail.job.state, detail.attempts.len()), (JobState::Succeeded, 1));
    assert_eq!((detail.job.user_id, detail.job.pool.as_deref()), (Some(confined.user("anna")), Some("team-a")));
    let ledger = Ledger::connect(ground.endpoints().database_url.parse().unwrap()).await.unwrap();
    let kept = ledger.output_bytes(job.id(), "y").await.unwrap();
    assert_eq!(kept, Some(42_u32.to_le_bytes().to_vec()), "the kept output is the one of anna's job");
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_users_runs_no_jobs_of_others_or_of_nobody() {
    let confined = Confined::start("users", By::Functions).await;
    assert_eq!(confined.worker.stop(Signal::Terminate).await, Some(0));
    let [team_a, team_b] =
        [("team-a", "anna"), ("team-b", "olga")].map(|(pool, user)| format!("{pool}:users={}", confined.user(user)));
    let pools = ["--require-user-id", "--pool", &team_a, "--pool", &team_b];
    let _worker = confined.start_worker_with(&pools).await;
    let (admin, anna, bert) = (confined.admin().await, confined.broker("anna").await, confined.broker("bert").await);
    let mut dead = admin.consume(DEAD_QUEUE.to_owned(), 10);
    for (broker, pool, user, part) in [
        (&bert, "team-b", Some("bert"), "may not use pool team-b"),
        (&anna, "team-a", None, "pool team-a accepts only messages with the AMQP property user_id"),
        (&admin, "default", None, "(--require-user-id)"),
    ] {
        let task = kernels::saxpy();
        broker.publish(task_message(pool, &task, user.map(|user| confined.user(user)))).await.unwrap();
        let refused = reason(&delivered(&mut dead).await);
        assert!(refused.contains(part), "{refused}");
        assert!(confined.ground.look(task.job_id).await.is_none(), "{pool}");
    }
    let job = kernels::doubles(&[3.0]).pool("team-a".parse().unwrap());
    confined.fleet("anna").await.submit(job).await.unwrap().wait(WAIT).await.unwrap();
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producers_flood_of_cancellations_pushes_out_no_order_of_an_operator() {
    let confined = Confined::start("flood", By::Functions).await;
    assert_eq!(confined.worker.stop(Signal::Terminate).await, Some(0));
    let (bert, olga) = (confined.fleet("bert").await, confined.fleet("olga").await);
    let mut unwanted = bert.submit(kernels::doubles(&[3.0]).pool("team-b".parse().unwrap())).await.unwrap();
    let jobs = vec![unwanted.id()];
    olga.cancel(Selection { jobs, ..Selection::default() }, Some("olga".to_owned())).await.unwrap();
    // Nine orders of 15 MiB are more than the stream keeps.
    let said = confined.python("anna", FLOODS, &["9", "400000"]).await;
    assert!(said.lines().count() == 9 && said.lines().all(|bytes| bytes.parse::<u64>().unwrap() > 15 << 20), "{said}");
    let worker = confined.start_worker().await;
    let error = unwanted.wait(WAIT).await.unwrap_err();
    assert!(error.to_string().contains("cancelled by olga"), "{error}");
    let peak = memory_bytes(worker.process().pid(), "VmHWM").unwrap();
    assert!(peak < 200 << 20, "the worker took {} MiB", peak >> 20);
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_letter_with_forged_headers_returns_to_its_own_pool_and_user() {
    let confined = Confined::start("letters", By::Functions).await;
    assert_eq!(confined.worker.stop(Signal::Terminate).await, Some(0));
    let (id, origin) = (JobId::new().to_string(), format!("{HEADER_ORIGIN}=team-a.high"));
    let user = format!("{HEADER_USER}={}", confined.user("anna"));
    confined.python("bert", EXPIRING, &["team-b", &id, &origin, &user]).await;

    let olga = confined.fleet("olga").await;
    poll_until("the message has expired", async || olga.dead_depth().await.unwrap() == Some(1)).await;
    let mut letters = olga.dead().await.unwrap();
    let index = letters.next().await.unwrap().unwrap();
    let letter = letters.letter(index).unwrap();
    assert_eq!((letter.origin.as_str(), letter.user.as_deref()), ("gpufleet.v1.tasks.team-b.normal", None));
    let Replayed::As(jobs) = letters.replay(index).await.unwrap() else { panic!("one new job") };
    letters.requeue().await;
    let _worker = confined.start_worker().await;
    let detail = confined.ground.final_job(jobs[0]).await;
    assert_eq!((detail.job.pool.as_deref(), detail.job.user_id), (Some("team-b"), Some(confined.user("olga"))));
    confined.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_submission_under_the_id_of_another_user_does_not_describe_that_job() {
    let confined = Confined::start("fills", By::Functions).await;
    let (ground, anna) = (&confined.ground, confined.fleet("anna").await);
    let id = JobId::new();
    let bert = confined.broker("bert").await;
    let forged = Task { job_id: id, name: Some("forged".to_owned()), ..kernels::saxpy() };
    let job = JobInfo::of(&forged, "team-b".parse().unwrap(), Priority::Normal, None);
    let events = [Event::Submitted(Submitted { job, at_ms: 1_700_000_000_000 })];
    let body = encoding::encode_events(&events).unwrap();
    let properties = Properties { user_id: Some(confined.user("bert")), ..Properties::default() };
    let routing_key = submissions_key(&"team-b".parse().unwrap());
    bert.publish(Message { exchange: EVENTS_CLIENT, routing_key, body, properties }).await.unwrap();
    ground.poll_job("the forged row", id, |job| job.name.as_deref() == Some("forged")).await;

    let job = kernels::doubles(&[3.0]).pool("team-a".parse().unwrap()).with_id(id);
    anna.submit(job).await.unwrap().wait(WAIT).await.unwrap();
    let detail = ground.final_job(id).await;
    assert_eq!((detail.job.name, detail.job.user_id), (None, Some(confined.user("anna"))));
    assert_eq!(detail.job.pool.as_deref(), Some("team-a"));
    confined.end().await;
}

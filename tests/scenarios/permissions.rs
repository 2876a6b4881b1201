//! Broker users with the permissions that `gpufleet permissions` prints can do their work and nothing else: no other
//! pool, no other client's replies, no forged outcome, no order without the operator's role. (fault 23)

use std::process::Stdio;

use futures::future::join_all;
use gpufleet::{CancelScope, FailedJob, Fleet, JobError, SubmitError};
use gpufleet_local::{programs, setup};
use gpufleet_schema::{
    AttemptFinished, AttemptState, ClientName, Command as Order, Event, JobId, JobState, MessageId, Selection, Timings,
    WorkerName, encoding,
    topology::{
        DEAD_QUEUE, EVENTS_CLIENT, EVENTS_KEY, EVENTS_WORKER, HEADER_REASON, REPLIES, Speaker, TASKS, reply_queue,
    },
};
use gpufleet_tests::{Ground, TestWorker, WAIT, busy, delivered, gpufleet_command, kernels};
use gpufleet_transport::{Broker, DeclareError, Message, Options, Properties, PublishError};
use tokio::{
    process::{Child, Command},
    sync::Semaphore,
};

const INTRUDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/intruder.py");
const PASSWORD: &str = "secret";
/// Bounds the `rabbitmqctl` commands that run at once. Each starts an Erlang VM, which keeps a core busy for seconds, and more of them exceed
/// their time limit.
static COMMANDS: Semaphore = Semaphore::const_new(2);

/// How the printed commands are carried out.
#[derive(Debug, Clone, Copy)]
enum By {
    /// As they are printed.
    Rabbitmqctl,
    /// By the functions of the broker that `rabbitmqctl` calls, without starting an Erlang VM for each.
    Functions,
}

/// A vhost in which each process has a user with only the permissions of its role.
struct Confined {
    ground: Ground,
    vhost: String,
    worker: TestWorker,
    _recorder: Child,
}

impl Confined {
    async fn start(label: &str, by: By) -> Self {
        let ground = Ground::shared(label).await;
        let vhost = format!("{}-confined", ground.fleet().space());
        ground.services().broker().create_vhost(&vhost).await.unwrap();
        let roles: [(&str, &[&str]); 5] = [
            ("anna", &["--role", "producer", "--pool", "team-a"]),
            ("bert", &["--role", "producer", "--pool", "team-b"]),
            ("walt", &["--role", "worker", "--pool", "default", "--pool", "team-a", "--pool", "team-b"]),
            ("rita", &["--role", "recorder"]),
            ("olga", &["--role", "operator"]),
        ];
        join_all(roles.map(|(name, role)| allow(&ground, &vhost, name, role, by))).await;
        let recorder = Command::new(programs::ours(None, "gpufleet-ledger").unwrap())
            .arg("record")
            .env("GPUFLEET_AMQP_URL", url(&ground, &vhost, "rita"))
            .env("GPUFLEET_DATABASE_URL", &ground.endpoints().database_url)
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let pools = ["--pool", "team-a:affinity", "--pool", "team-b"];
        let broker = url(&ground, &vhost, "walt");
        let arguments = [&["--amqp-url", broker.as_str()], &pools[..]].concat();
        let worker = ground.worker_with(&arguments).await;
        Self { ground, vhost, worker, _recorder: recorder }
    }

    fn user(&self, name: &str) -> String {
        user(&self.ground, name)
    }

    fn url(&self, name: &str) -> String {
        url(&self.ground, &self.vhost, name)
    }

    async fn fleet(&self, name: &str) -> Fleet {
        Fleet::connect(&self.url(name)).await.unwrap()
    }

    async fn broker(&self, name: &str) -> Broker {
        Broker::connect(Options::new(self.url(name).parse().unwrap(), "a scenario")).await.unwrap()
    }

    async fn end(self) {
        self.ground.services().broker().delete_vhost(&self.vhost).await.unwrap();
    }
}

/// A user name that is unique on the broker, because scenarios share the broker and its users.
fn user(ground: &Ground, name: &str) -> String {
    format!("{name}-{}", ground.fleet().space())
}

fn url(ground: &Ground, vhost: &str, name: &str) -> String {
    let broker = ground.services().broker();
    format!("amqp://{}:{PASSWORD}@127.0.0.1:{}/{vhost}", user(ground, name), broker.port())
}

/// Creates a user, and runs the commands that `gpufleet permissions` prints for its role.
async fn allow(ground: &Ground, vhost: &str, name: &str, role: &[&str], by: By) {
    let (broker, user, folder) = (ground.services().broker(), user(ground, name), tempfile::tempdir().unwrap());
    let added = format!("rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"{PASSWORD}\">>, <<\"scenario\">>)");
    ground.erlang(&format!("ok = {added}.")).await;
    let arguments = [&["permissions", "--user", &user, "--vhost", vhost], role].concat();
    let printed = gpufleet_command(folder.path(), &[], &arguments).await;
    assert_eq!(printed.code, 0, "{printed:?}");
    for line in printed.stdout.lines().filter(|line| !line.starts_with('#')) {
        let words = words(line).await;
        assert_eq!(words[0], "rabbitmqctl", "{line}");
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let done = match by {
            By::Rabbitmqctl => {
                let _turn = COMMANDS.acquire().await.expect("the semaphore is never closed");
                broker.ctl(&arguments).await
            }
            By::Functions => broker.eval(&function_of(&arguments)).await,
        };
        done.unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

/// The call of the broker's function that a command of `rabbitmqctl` makes.
fn function_of(arguments: &[&str]) -> String {
    let [command, "--vhost", vhost, user, rest @ ..] = arguments else { panic!("{arguments:?}") };
    let more = match (*command, rest) {
        ("set_permissions", [_, _, _]) | ("set_topic_permissions", [_, _, _]) | ("clear_topic_permissions", []) => rest,
        _ => panic!("{arguments:?}"),
    };
    let text = |text: &&str| format!("<<\"{}\">>", text.replace('\\', r"\\").replace('"', r#"\""#));
    let arguments: Vec<_> = [user, vhost].into_iter().chain(more).chain(&["scenario"]).map(text).collect();
    format!("ok = rabbit_auth_backend_internal:{command}({}).", arguments.join(", "))
}

/// Splits a line into words as a shell does.
async fn words(line: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", &format!("printf '%s\\n' {line}")]).output().await.unwrap();
    String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect()
}

fn only(job: JobId) -> Selection {
    Selection { jobs: vec![job], ..Selection::default() }
}

fn events(exchange: &'static str, events: &[Event]) -> Message {
    let body = encoding::encode_events(events).unwrap();
    Message { exchange, routing_key: EVENTS_KEY.to_owned(), body, properties: Properties::default(), mandatory: true }
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

    // A job that loses its executor goes through a retry queue, which needs a permission of its own.
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
        let ended = gpufleet_command(folder.path(), &environment, arguments).await;
        assert_eq!(ended.code, 0, "{ended:?}");
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
    let message = |exchange: &'static str, routing_key: &str| {
        let (routing_key, body) = (routing_key.to_owned(), b"{}".to_vec());
        Message { exchange, routing_key, body, properties: Properties::default(), mandatory: true }
    };
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
    let output = Command::new("python3")
        .args([INTRUDER, &own, bert.client().as_str()])
        .env("GPUFLEET_AMQP_URL", confined.url("anna"))
        .env("PYTHONPATH", setup::pika_folder().unwrap())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(WAIT, output).await.expect("it ends").unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
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
    let forged = Event::AttemptFinished(AttemptFinished {
        job_id: job.id(),
        attempt: 1,
        worker: "forger".parse::<WorkerName>().unwrap(),
        device: None,
        ran_on: None,
        started_ms: None,
        at_ms: 1_700_000_000_000,
        state: AttemptState::Failed,
        failure: None,
        retry_at_ms: None,
        output_bytes: 0,
        timings: Timings::default(),
        job: None,
        charged_us: None,
        printf_output: None,
        kept: None,
    });
    let bert = confined.broker("bert").await;
    forbidden(bert.publish(events(EVENTS_WORKER, std::slice::from_ref(&forged))).await);
    forbidden(bert.publish(events("", std::slice::from_ref(&forged))).await);
    // The broker does not check the contents of events; the recorder does.
    bert.publish(events(EVENTS_CLIENT, &[forged])).await.unwrap();
    let url = ground.services().broker().vhost_url(&confined.vhost);
    let admin = Broker::connect(Options::new(url.parse().unwrap(), "a scenario")).await.unwrap();
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
    let drain = gpufleet_schema::Order::new(0, None, Order::Drain { worker: name });
    forbidden(broker.order(&drain, Speaker::Worker, MessageId::new()).await);
    // The broker accepts the order, and the worker refuses it.
    broker.order(&drain, Speaker::Client, MessageId::new()).await.unwrap();

    // The worker reads orders in sequence: once anna's order has ended her job, it has also read bert's.
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

//! `gpufleet doctor` reports what is broken and what to do, for each set-up that can fail, and never prints a password.

use std::{fs, time::Duration};

use gpufleet::Fleet;
use gpufleet_ledger::WorkerRow;
use gpufleet_schema::{
    Event, WorkerSeen, encoding,
    topology::{EVENTS_KEY, EVENTS_WORKER},
};
use gpufleet_tests::{Ended, Ground, gpufleet_command, kernels, poll_until};
use gpufleet_transport::Message;
use serde_json::Value;
use tempfile::TempDir;

const AMQP_URL: &str = "GPUFLEET_AMQP_URL";
const DATABASE_URL: &str = "GPUFLEET_DATABASE_URL";
const BLOBS: &str = "GPUFLEET_BLOBS";
/// The exit code if the doctor finds an error.
const UNHEALTHY: i32 = 12;

/// A fleet, and the environment of the doctor.
struct Patient {
    ground: Ground,
    folder: TempDir,
    environment: Vec<(String, String)>,
}

/// The JSON that the doctor printed.
struct Diagnosis(Value);

impl Patient {
    /// Creates a fleet with a broker, a ledger and a blob store, but no worker.
    async fn new(label: &str) -> Self {
        Self::of(Ground::shared(label).await)
    }

    fn of(ground: Ground) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut patient = Self { folder, environment: Vec::new(), ground };
        let (broker, database) = (patient.ground.node_url(), patient.ground.endpoints().database_url.clone());
        let blobs = patient.folder.path().join("blobs");
        fs::create_dir(&blobs).unwrap();
        patient.set(AMQP_URL, &broker);
        patient.set(DATABASE_URL, &database);
        patient.set(BLOBS, blobs.to_str().unwrap());
        patient
    }

    fn set(&mut self, name: &str, value: &str) {
        self.unset(name);
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    fn unset(&mut self, name: &str) {
        self.environment.retain(|(known, _)| known != name);
    }

    async fn run(&self, arguments: &[&str]) -> Ended {
        let environment: Vec<_> =
            self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        gpufleet_command(self.folder.path(), &environment, &[&["doctor"], arguments].concat()).await
    }

    async fn diagnose(&self, arguments: &[&str]) -> Diagnosis {
        let ended = self.run(&[arguments, &["-o", "json"]].concat()).await;
        for (name, value) in &self.environment {
            let secret = value.split_once("://").and_then(|(_, rest)| rest.split_once('@')?.0.split_once(':'));
            if let Some((_, password)) = secret {
                assert!(!format!("{ended:?}").contains(password), "the password of {name} is printed: {ended:?}");
            }
        }
        assert_eq!(ended.stderr, "");
        let printed: Value = serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
        assert_eq!(ended.code, if printed["errors"] == 0 { 0 } else { UNHEALTHY }, "{ended:?}");
        Diagnosis(printed)
    }
}

impl Diagnosis {
    fn finding(&self, check: &str) -> &Value {
        let all = self.0["checks"].as_array().unwrap();
        all.iter().find(|finding| finding["check"] == check).unwrap_or_else(|| panic!("no {check:?} in {}", self.0))
    }

    /// Checks the status of a finding, and that it says these texts.
    fn expect(&self, check: &str, status: &str, said: &[&str]) {
        let finding = self.finding(check);
        assert_eq!(finding["status"], status, "{finding}");
        for text in said {
            assert!(finding.to_string().contains(text), "{text:?} is not in {finding}");
        }
        assert!(status != "error" || finding["fix"].is_string(), "an error has a fix: {finding}");
    }

    /// Checks that these are the only errors.
    fn expect_errors(&self, checks: &[&str]) {
        let all = self.0["checks"].as_array().unwrap();
        let errors: Vec<_> = all.iter().filter(|finding| finding["status"] == "error").collect();
        let names: Vec<_> = errors.iter().map(|finding| finding["check"].as_str().unwrap()).collect();
        assert_eq!(names, checks, "{errors:?}");
    }
}

/// Returns a port on which no server listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns the URL of the same broker and user with another vhost.
fn with_vhost(url: &str, vhost: &str) -> String {
    format!("{}/{vhost}", url.rsplit_once('/').unwrap().0)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_fleet_has_no_error_and_no_check_is_skipped_but_the_hold() {
    let patient = Patient::new("doctor").await;
    let _worker = patient.ground.worker().await;
    poll_until("the worker is in the ledger", async || patient.diagnose(&[]).await.0["errors"] == 0).await;
    let diagnosis = patient.diagnose(&[]).await;
    for check in [
        "broker",
        "tls",
        "login",
        "vhost",
        "permission to receive replies",
        "permission to submit to default",
        "permission to report submissions to default",
        "permission to cancel jobs",
        "ledger",
        "migrations",
        "blob store",
        "workers",
        "pool default",
        "clock of this machine",
        "clocks of workers",
    ] {
        diagnosis.expect(check, "ok", &[]);
    }
    diagnosis.expect("broker", "ok", &["RabbitMQ "]);
    diagnosis.expect("consumer timeout", "skipped", &["--hold", "rabbitmqctl"]);
    let table = patient.run(&[]).await.ok();
    assert!(table.stdout.contains("ok       login") && table.stdout.contains("\n0 errors, "), "{table:?}");
    patient.ground.poll_no_reply_queue().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_supplies_what_the_environment_lacks() {
    let mut patient = Patient::new("doctor-profile").await;
    let config = format!("[profile.a]\namqp_url = {:?}\nblobs = \"/\"\n", patient.ground.node_url());
    let file = patient.folder.path().join("config.toml");
    fs::write(&file, config).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    for name in [AMQP_URL, DATABASE_URL, BLOBS] {
        patient.unset(name);
    }
    patient.set("GPUFLEET_CONFIG", file.to_str().unwrap());
    let nothing = patient.diagnose(&[]).await;
    nothing.expect("broker", "error", &["no broker URL was given", "gpufleet local up"]);
    nothing.expect_errors(&["broker"]);
    let diagnosis = patient.diagnose(&["--profile", "a"]).await;
    diagnosis.expect("login", "ok", &[]);
    diagnosis.expect("ledger", "skipped", &["no database"]);
    diagnosis.expect("workers", "skipped", &["no ledger"]);
    diagnosis.expect("clock of this machine", "skipped", &["no ledger"]);
    diagnosis.expect_errors(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_that_is_away_is_named_and_the_ledger_is_checked_all_the_same() {
    let mut patient = Patient::new("doctor-away").await;
    patient.set(AMQP_URL, &format!("amqp://anna:hunter2@127.0.0.1:{}/v", free_port()));
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("broker", "error", &["Connection refused", "check that the broker is running"]);
    diagnosis.expect("login", "skipped", &[]);
    diagnosis.expect("pools", "skipped", &[]);
    diagnosis.expect("ledger", "ok", &[]);
    diagnosis.expect_errors(&["broker", "workers"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_and_a_missing_vhost_are_told_apart() {
    let mut patient = Patient::new("doctor-login").await;
    let url = patient.ground.node_url();
    let (_, place) = url.split_once('@').unwrap();
    patient.set(AMQP_URL, &format!("amqp://gpufleet:wrong-one@{place}"));
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("broker", "ok", &["RabbitMQ"]);
    diagnosis.expect("login", "error", &["wrong user or password"]);
    diagnosis.expect("vhost", "skipped", &[]);
    diagnosis.expect_errors(&["login", "workers"]);

    patient.set(AMQP_URL, &with_vhost(&url, "nowhere"));
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("login", "ok", &[]);
    diagnosis.expect("vhost", "error", &["nowhere", "rabbitmqctl add_vhost"]);
    diagnosis.expect_errors(&["vhost", "workers"]);
}

/// Adds a user to the fleet's vhost, and returns its URL.
async fn add_user(ground: &Ground, name: &str, patterns: [&str; 3]) -> String {
    let user = format!("{name}-{}", ground.fleet().space());
    let [configure, write, read] = patterns;
    let add = format!("rabbit_auth_backend_internal:add_user(<<\"{user}\">>, <<\"hunter2\">>, <<\"scenario\">>)");
    ground.erlang(&format!("ok = {add}.")).await;
    let allow = format!(
        "rabbit_auth_backend_internal:set_permissions(<<\"{user}\">>, @, <<\"{configure}\">>, <<\"{write}\">>, <<\"{read}\">>, <<\"scenario\">>)"
    );
    ground.erlang(&format!("ok = {allow}.")).await;
    let url = ground.node_url();
    let (_, place) = url.split_once('@').unwrap();
    format!("amqp://{user}:hunter2@{place}")
}

#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_an_error_of_its_own() {
    let mut patient = Patient::new("doctor-rights").await;
    patient.unset(DATABASE_URL);
    let none = add_user(&patient.ground, "none", ["^$", "^$", "^$"]).await;
    patient.set(AMQP_URL, &none);
    let diagnosis = patient.diagnose(&["--pool", "default"]).await;
    let all = ["receive replies", "submit to default", "report submissions to default", "cancel jobs"];
    let all = all.map(|action| format!("permission to {action}"));
    for check in &all {
        diagnosis.expect(check, "error", &["ACCESS_REFUSED", "gpufleet permissions"]);
    }
    diagnosis.expect_errors(&all.each_ref().map(String::as_str));

    // The user may do everything except submit.
    let (replies, events) = ("^gpufleet\\\\.v1\\\\.replies", "^gpufleet\\\\.v1\\\\.(replies|events|control)");
    let reader = add_user(&patient.ground, "reader", [replies, events, replies]).await;
    patient.set(AMQP_URL, &reader);
    let diagnosis = patient.diagnose(&["--pool", "default", "--hold", "1s"]).await;
    diagnosis.expect_errors(&["permission to submit to default"]);
    diagnosis.expect("consumer timeout", "skipped", &["may not send a message to its own queue"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_is_told_which_pool_it_may_not_submit_to() {
    let mut patient = Patient::new("doctor-pools").await;
    patient.unset(DATABASE_URL);
    patient.ground.declare_pools(&["team-a", "team-b"]).await;
    let everything = [".*", ".*", ".*"];
    let url = add_user(&patient.ground, "anna", everything).await;
    let user = url.strip_prefix("amqp://").unwrap().split_once(':').unwrap().0.to_owned();
    let confine = format!(
        "rabbit_auth_backend_internal:set_topic_permissions(<<\"{user}\">>, @, <<\"gpufleet.v1.tasks\">>, <<\"^team-a\">>, <<\"^$\">>, <<\"scenario\">>)"
    );
    patient.ground.erlang(&format!("ok = {confine}.")).await;
    patient.set(AMQP_URL, &url);
    let diagnosis = patient.diagnose(&["--pool", "team-a", "--pool", "team-b"]).await;
    diagnosis.expect("permission to submit to team-a", "ok", &[]);
    diagnosis.expect("permission to submit to team-b", "error", &["team-b.normal"]);
    diagnosis.expect_errors(&["permission to submit to team-b"]);
    diagnosis.expect("pool team-a", "warning", &["no worker serves it", "gpufleet-worker run --pool team-a"]);
    assert_eq!(patient.ground.messages_in("gpufleet.v1.tasks.team-a.normal").await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_certificate_is_an_error_and_a_trusted_one_is_not() {
    let mut patient = Patient::new("doctor-tls").await;
    patient.unset(DATABASE_URL);
    let proxy = patient.ground.tls_proxy().await;
    patient.set(AMQP_URL, proxy.url());
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("tls", "error", &["UnknownIssuer", "SSL_CERT_FILE"]);
    diagnosis.expect_errors(&["tls"]);
    patient.set("SSL_CERT_FILE", proxy.certificate().to_str().unwrap());
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("tls", "ok", &["encrypted"]);
    diagnosis.expect_errors(&[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_away_and_one_that_is_not_migrated_are_told_apart() {
    let mut patient = Patient::new("doctor-ledger").await;
    patient.set(DATABASE_URL, &format!("postgres://anna:hunter2@127.0.0.1:{}/d", free_port()));
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("ledger", "error", &["does not answer", "check that Postgres is running"]);
    diagnosis.expect("migrations", "skipped", &[]);
    diagnosis.expect("workers", "skipped", &["can't be read"]);
    diagnosis.expect_errors(&["ledger"]);

    let other = Ground::shared("doctor-older").await;
    let (postgres, database) = (other.services().postgres(), "doctor-empty");
    postgres.create_database(database).await.unwrap();
    let applied = "create table _sqlx_migrations (version bigint primary key, description text not null, \
                   installed_on timestamptz not null default now(), success boolean not null, checksum bytea not null, \
                   execution_time bigint not null)";
    patient.set(DATABASE_URL, &postgres.url(database));
    let empty = patient.diagnose(&[]).await;
    empty.expect("migrations", "error", &["no ledger tables yet", "gpufleet-ledger migrate"]);
    postgres.psql(database, applied).await.unwrap();
    postgres
        .psql(database, "insert into _sqlx_migrations select 1, 'create', now(), true, decode('00', 'hex'), 1")
        .await
        .unwrap();
    let changed = patient.diagnose(&[]).await;
    changed.expect("ledger", "ok", &[]);
    changed.expect("migrations", "error", &["migration 1 was changed"]);
    postgres.drop_database(database).await.unwrap();

    let own = &other.endpoints().database_url;
    let name = own.rsplit_once('/').unwrap().1.split('?').next().unwrap();
    let forget = "delete from _sqlx_migrations where version = (select max(version) from _sqlx_migrations)";
    postgres.psql(name, forget).await.unwrap();
    patient.set(DATABASE_URL, own);
    let older = patient.diagnose(&[]).await;
    older.expect("migrations", "error", &["but this program needs", "upgrade them with `gpufleet-ledger migrate`"]);
    older.expect_errors(&["migrations"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_folder_that_is_missing_or_read_only_is_an_error_and_none_is_a_warning() {
    /// A folder that is not writable, even for root.
    const READ_ONLY: &str = "/sys";
    let mut patient = Patient::new("doctor-blobs").await;
    patient.unset(DATABASE_URL);
    patient.set(BLOBS, READ_ONLY);
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("blob store", "error", &["write", READ_ONLY]);
    diagnosis.expect_errors(&["blob store"]);
    patient.set(BLOBS, &patient.folder.path().join("none").to_string_lossy());
    patient.diagnose(&[]).await.expect("blob store", "error", &["No such file", "existing folder"]);
    patient.unset(BLOBS);
    patient.diagnose(&[]).await.expect("blob store", "warning", &["16 MiB", BLOBS]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_with_waiting_jobs_and_no_worker_is_an_error_even_if_no_option_names_it() {
    let patient = Patient::new("doctor-waiting").await;
    patient.ground.declare_pools(&["team-a"]).await;
    let fleet = patient.ground.client_with(Fleet::builder()).await;
    let handle = fleet.submit(kernels::doubles(&[3.0]).pool("team-a".parse().unwrap())).await.unwrap();
    patient.ground.poll_job("it is in the ledger", handle.id(), |_| true).await;
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("pool team-a", "error", &["1 message waits", "gpufleet-worker run --pool team-a"]);
    diagnosis.expect("workers", "error", &["no worker is up"]);
    diagnosis.expect_errors(&["workers", "pool team-a"]);
    let never = patient.diagnose(&["--pool", "never-served"]).await;
    never.expect("pool never-served", "error", &["no worker has ever served it"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_whose_sessions_can_not_be_reached_is_named() {
    let patient = Patient::new("doctor-sessions").await;
    let port = free_port();
    let (listen, closed) = (format!("127.0.0.1:{port}"), [port, port]);
    let pool = ["--pool", "gpu:sessions=1"];
    let reached = [&pool[..], &["--session-listen", &listen]].concat();
    let worker = patient.ground.worker_with(&reached).await;
    let takes_sessions = |row: &WorkerRow| row.sessions.as_ref().is_some_and(|sessions| sessions.ports == closed);
    patient.ground.poll_worker("its sessions are in the ledger", worker.name(), takes_sessions).await;
    let well = patient.diagnose(&[]).await;
    // No session is open, so the port is closed.
    well.expect("sessions", "ok", &["reaches 1 worker", "a refused connection counts as an answer"]);
    well.expect_errors(&[]);

    // No name is that long, so no resolver is asked.
    let wrong = "x".repeat(80);
    let hidden = [&reached[..], &["--session-advertise", &wrong]].concat();
    let hidden = patient.ground.worker_with(&hidden).await;
    let advertises = |row: &WorkerRow| row.sessions.as_ref().is_some_and(|sessions| sessions.hosts == [wrong.as_str()]);
    patient.ground.poll_worker("its host is in the ledger", hidden.name(), advertises).await;
    let sick = patient.diagnose(&[]).await;
    let unreached = format!("{} at {wrong}:{port} (", hidden.name());
    sick.expect("sessions", "error", &["does not reach 1 of 2 workers", &unreached, "--session-advertise HOST"]);
    sick.expect_errors(&["sessions"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_timeout_that_is_too_low_is_found_by_holding_a_message() {
    let patient = Patient::of(Ground::breakable("doctor-hold").await);
    let long = patient.diagnose(&["--hold", "1s"]).await;
    long.expect("consumer timeout", "ok", &["unacknowledged for 1s"]);
    patient.ground.consumer_timeout(Duration::from_secs(2), Duration::from_millis(250)).await;
    let short = patient.diagnose(&["--hold", "60s"]).await;
    short.expect("consumer timeout", "error", &["timed out", "consumer_timeout = 691200000"]);
    patient.ground.poll_no_reply_queue().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_with_a_wrong_clock_is_named() {
    let patient = Patient::new("doctor-clock").await;
    let ahead = std::time::SystemTime::now() + Duration::from_secs(600);
    let at_ms = ahead.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis();
    let seen = WorkerSeen {
        worker: "fast-worker".parse().unwrap(),
        at_ms: i64::try_from(at_ms).unwrap(),
        host: "host".to_owned(),
        pid: 1,
        revision: "r".to_owned(),
        pools: vec!["default".parse().unwrap()],
        devices: Vec::new(),
        jobs_running: 0,
        sessions: None,
        programs: None,
        leaving: false,
    };
    let message = Message::to(EVENTS_WORKER, EVENTS_KEY, encoding::encode_events(&[Event::WorkerSeen(seen)]).unwrap());
    let broker = patient.ground.broker().await;
    broker.publish(message).await.unwrap();
    broker.close().await;
    patient.ground.poll_worker("it is in the ledger", "fast-worker", |_| true).await;
    let diagnosis = patient.diagnose(&[]).await;
    diagnosis.expect("clocks of workers", "error", &["fast-worker is", "ahead of the database", "NTP"]);
    diagnosis.expect("clock of this machine", "ok", &[]);
}

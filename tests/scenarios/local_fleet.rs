//! `gpufleet local up` starts a fleet that keeps running after the command. Other commands find the fleet, and `up` repairs it in place.
//! `down` removes all of it.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use gpufleet_local::{
    RabbitMq, Signal, StateDir,
    process::{Identity, marked},
    programs,
    setup::Part,
    state,
};
use gpufleet_tests::{WAIT, gpufleet_command, poll_until, write_queue_names};
use gpufleet_transport::install_tls;
use serde_json::{Value, json};

/// Kills the processes of the fleet in this folder when it is dropped, so that none is left after a failed assertion.
struct KillOnDrop(PathBuf);

impl KillOnDrop {
    fn left(&self) -> Vec<Identity> {
        marked(state::MARKER, &self.0.to_string_lossy())
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        for identity in self.left() {
            identity.signal(Signal::Kill);
        }
    }
}

/// Settings for workers elsewhere. Each of them would keep a local worker from starting.
const ELSEWHERE: [(&str, &str); 6] = [
    ("GPUFLEET_DEVICES", "none such"),
    ("GPUFLEET_NVML", "/nowhere/libnvidia-ml.so"),
    ("GPUFLEET_TRUSTED_KEYS", "/nowhere/key.pub"),
    ("GPUFLEET_SANDBOX", "of another kind"),
    ("GPUFLEET_CACHE_SIZE", "much"),
    ("GPUFLEET_EXECUTOR_USER", "nobody-of-this-name"),
];

#[tokio::test(flavor = "multi_thread")]
async fn a_local_fleet_is_started_found_and_stopped() {
    let scratch = tempfile::tempdir().unwrap();
    // If root starts the fleet, Postgres runs as another user, which must be able to enter the folder.
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let dir = fs::canonicalize(scratch.path()).unwrap().join("fleet");
    let kill_on_drop = KillOnDrop(dir.clone());
    let dir = dir.to_str().unwrap();
    let worker = programs::ours(None, "gpufleet-worker").unwrap();
    let found = [("GPUFLEET_LOCAL_DIR", dir), ("GPUFLEET_BIN_DIR", worker.parent().unwrap().to_str().unwrap())];
    let environment = [&found[..], &ELSEWHERE].concat();
    let gpufleet_in = async |environment: &[(&str, &str)], arguments: &[&str]| {
        let ended = gpufleet_command(scratch.path(), environment, arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.stdout
    };
    let gpufleet = async |arguments: &[&str]| gpufleet_in(&environment, arguments).await;

    // `submit` reads the variable too.
    let of_worker = [&environment[..], &[("GPUFLEET_POOL", "not:a=pool")]].concat();
    gpufleet_in(&of_worker, &["local", "up", "--dir", dir, "--cuda", "emulated"]).await;
    let status: Value = serde_json::from_str(&gpufleet(&["local", "status", "-o", "json"]).await).unwrap();
    assert_eq!(status["state"], "up", "{status}");
    let job = ["submit", "mandelbrot", "--arg", "width=8", "--arg", "height=8", "--arg", "centre_x=-0.5"];
    let more =
        ["--arg", "centre_y=0.0", "--arg", "step=0.3", "--arg", "max_iterations=50", "--out", "iterations=m.npy"];
    gpufleet(&[&job[..], &more].concat()).await;
    assert!(scratch.path().join("m.npy").exists());

    assert!(
        kill_on_drop.left().len() >= 4,
        "broker, port mapper, Postgres, ledger; only root sees a worker's environment"
    );
    gpufleet(&["local", "down"]).await;
    assert_eq!(kill_on_drop.left(), []);
    assert!(gpufleet(&["local", "status"]).await.contains("no fleet is running"));
}

/// The time within which `up` repairs a fleet, unless this machine is slow.
const REPAIRED_WITHIN: Duration = Duration::from_secs(30);
/// The variable that makes the test kill all pairs of services, which takes minutes. By default it kills the pairs that depend on each
/// other, which takes a minute.
const ALL_PAIRS: &str = "GPUFLEET_LOCAL_PAIRS";
const SERVICES: [&str; 6] = ["broker", "epmd", "postgres", "gpufleet-ledger", "gpufleet-w1", "gpufleet-w2"];
/// Pairs of a service and a service that it needs, or that shares the ports of its node.
const DEPENDENT: [(&str, &str); 5] = [
    ("broker", "epmd"),
    ("broker", "postgres"),
    ("broker", "gpufleet-ledger"),
    ("broker", "gpufleet-w1"),
    ("postgres", "gpufleet-ledger"),
];

/// A fleet of two workers in a folder, and the folder that jobs are submitted from.
struct LocalFleet {
    scratch: tempfile::TempDir,
    dir: PathBuf,
    _kill_on_drop: KillOnDrop,
    /// The time that the whole fleet took to start.
    started_in: Duration,
}

impl LocalFleet {
    async fn up() -> Self {
        Self::up_with(&["--workers", "2"]).await
    }

    async fn up_with(options: &[&str]) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let dir = fs::canonicalize(scratch.path()).unwrap().join("fleet");
        let mut fleet = Self { _kill_on_drop: KillOnDrop(dir.clone()), scratch, dir, started_in: Duration::ZERO };
        let begun = Instant::now();
        fleet.command(&[&UP[..], options].concat()).await;
        fleet.started_in = begun.elapsed();
        fleet
    }

    async fn command(&self, arguments: &[&str]) -> String {
        let ended = self.attempt(arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        ended.stdout
    }

    async fn attempt(&self, arguments: &[&str]) -> gpufleet_tests::Ended {
        let worker = programs::ours(None, "gpufleet-worker").unwrap();
        let bin = worker.parent().unwrap().to_str().unwrap();
        let found = [("GPUFLEET_LOCAL_DIR", self.dir.to_str().unwrap()), ("GPUFLEET_BIN_DIR", bin)];
        gpufleet_command(self.scratch.path(), &[&found[..], &ANOTHER_BUCKET].concat(), arguments).await
    }

    fn file(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap()
    }

    /// Returns the addresses that a client may have stored.
    fn addresses(&self) -> [String; 3] {
        ["endpoints.json", "broker/ports", "secrets/postgres-port"].map(|name| self.file(name))
    }

    fn process(&self, name: &str) -> Identity {
        let record = self.file(&format!("processes/{name}"));
        Identity::of(record.split(' ').next().unwrap().parse().unwrap()).expect("it runs")
    }

    async fn broker(&self) -> RabbitMq {
        RabbitMq::start(&StateDir::persistent(&self.dir).unwrap()).await.unwrap()
    }

    /// Kills these processes with SIGKILL, but not their children.
    async fn kill(&self, names: &[&str]) {
        if names.contains(&"broker") {
            write_queue_names(&self.broker().await).await;
        }
        for victim in names.iter().map(|name| self.process(name)).collect::<Vec<_>>() {
            victim.signal(Signal::Kill);
            poll_until("the process is dead", async || !victim.is_alive()).await;
        }
    }

    /// Kills the services and checks that `up` restarts them at their addresses, and promptly, and leaves the others running. Returns how
    /// long the repair took.
    async fn assert_repaired_after_killing(&self, names: &[&str], comparable: Duration) -> Duration {
        let before = self.addresses();
        let spared: Vec<&str> = SERVICES.into_iter().filter(|name| !names.contains(name)).collect();
        // Restarting the broker also replaces its port mapper.
        let spared = spared.into_iter().filter(|name| *name != "epmd" || !names.contains(&"broker"));
        let spared: Vec<(&str, Identity)> = spared.map(|name| (name, self.process(name))).collect();
        let begun = Instant::now();
        self.kill(names).await;
        self.command(&UP).await;
        assert_eq!(self.addresses(), before, "{names:?}");
        for (name, identity) in spared {
            assert_eq!(self.process(name), identity, "{name} was restarted although only {names:?} were killed");
        }
        self.command(&JOB).await;
        let took = begun.elapsed();
        println!("{names:?}: repaired in {:.1} s", took.as_secs_f64());
        assert_prompt(took, comparable, names);
        let status: Value = serde_json::from_str(&self.command(&["local", "status", "-o", "json"]).await).unwrap();
        assert_eq!(status["state"], "up", "{names:?}: {status}");
        took
    }
}

/// Checks that a repair waited for no timeout, judged by how long something comparable took on this machine.
fn assert_prompt(took: Duration, comparable: Duration, what: &[&str]) {
    assert!(took < REPAIRED_WITHIN.max(2 * comparable), "{what:?}: {took:?}, and comparable things {comparable:?}");
}

/// The settings of another bucket, which neither the fleet nor its commands may use.
const ANOTHER_BUCKET: [(&str, &str); 4] = [
    ("AWS_ACCESS_KEY_ID", "another"),
    ("AWS_SECRET_ACCESS_KEY", "another"),
    ("AWS_SESSION_TOKEN", "another"),
    ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
];
const S3: [&str; 2] = ["--blobs", "s3"];
/// The number of floats in an array of more than 1 MiB, which goes through the blob store.
const FLOATS: u32 = (1 << 18) + 1;
const UP: [&str; 4] = ["local", "up", "--cuda", "emulated"];
const JOB: [&str; 14] = [
    "submit",
    "mandelbrot",
    "--arg",
    "width=8",
    "--arg",
    "height=8",
    "--arg",
    "centre_x=-0.5",
    "--arg",
    "centre_y=0.0",
    "--arg",
    "step=0.3",
    "--arg",
    "max_iterations=50",
];

#[tokio::test(flavor = "multi_thread")]
async fn local_up_restarts_killed_services_at_their_addresses() {
    let fleet = LocalFleet::up().await;
    let begun = Instant::now();
    let mut comparable = fleet.started_in;
    for name in SERVICES {
        let took = fleet.assert_repaired_after_killing(&[name], fleet.started_in).await;
        // The machine may have become slower since the start.
        comparable = comparable.max(took);
    }
    let all_pairs = (0..SERVICES.len()).flat_map(|a| (a + 1..SERVICES.len()).map(move |b| (SERVICES[a], SERVICES[b])));
    let pairs = if std::env::var_os(ALL_PAIRS).is_some() { all_pairs.collect() } else { DEPENDENT.to_vec() };
    for (one, other) in pairs {
        fleet.assert_repaired_after_killing(&[one, other], comparable).await;
    }
    println!("total: {:.1} s", begun.elapsed().as_secs_f64());
}

/// The console is printed with its URL, shows the fleet's jobs, and may act. `up` repairs it at its address like the other services.
#[tokio::test(flavor = "multi_thread")]
async fn a_local_fleet_has_a_console_when_asked() {
    let fleet = LocalFleet::up_with(&["--console"]).await;
    let status: Value = serde_json::from_str(&fleet.command(&["local", "status", "-o", "json"]).await).unwrap();
    let url = status["console"].as_str().expect("the status names the console").to_owned();
    assert!(fleet.command(&["local", "status"]).await.contains(&format!("the console is at {url}\n")));
    fleet.command(&JOB).await;
    install_tls();
    let viewer = reqwest::Client::builder().no_proxy().build().unwrap();
    let (url, token) = url.split_once("#token=").expect("the address has the viewer's token");
    let cancel = viewer.post(format!("{url}actions/cancel"));
    let cancel = cancel.header("origin", url.trim_end_matches('/')).header("sec-fetch-site", "same-origin");
    for request in [viewer.get(format!("{url}api/me")), cancel] {
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 401, "another user of the machine, such as the one that runs kernels");
    }
    let session = viewer.get(format!("{url}session")).bearer_auth(token).send().await.unwrap();
    let cookie = session.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    let page = async |path: &str| viewer.get(format!("{url}{path}")).header("cookie", &cookie).send().await.unwrap();
    assert!(page("").await.text().await.unwrap().contains("<title>gpufleet</title>"));
    let me: Value = serde_json::from_str(&page("api/me").await.text().await.unwrap()).unwrap();
    assert_eq!((&me["actions"], &me["has_broker"], &me["identity"]), (&json!(true), &json!(true), &json!("token")));
    let shown = async || {
        let jobs = page("api/v1/jobs?state=succeeded").await.text().await.unwrap();
        jobs.contains("\"kernel\":\"mandelbrot\"")
    };
    poll_until("the console shows the job", async || shown().await).await;

    fleet.kill(&["console"]).await;
    fleet.command(&UP).await;
    assert!(shown().await, "a console that was started once is started again, at its address");
}

/// Every minute RabbitMQ checks that it is registered, and starts a port mapper if there is none. The fleet does not
/// record that process, which keeps running, and keeps the port, after its node has ended.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_mapper_started_by_the_broker_changes_no_port() {
    let fleet = LocalFleet::up().await;
    let before = fleet.addresses();
    let broker = fleet.broker().await;
    fleet.kill(&["epmd"]).await;
    broker.eval("rabbit_nodes:ensure_epmd().").await.unwrap();
    let names = || marked(state::MARKER, fleet.dir.to_str().unwrap()).into_iter().filter(|it| is_epmd(it.pid)).count();
    poll_until("the broker's own port mapper", async || names() == 1).await;
    fleet.kill(&["broker"]).await;
    let begun = Instant::now();
    fleet.command(&UP).await;
    assert_eq!(fleet.addresses(), before);
    fleet.command(&JOB).await;
    assert_prompt(begun.elapsed(), fleet.started_in, &["epmd", "broker"]);
    assert_eq!(names(), 1, "the fleet's own");
}

fn is_epmd(pid: u32) -> bool {
    fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("comm"))
        .is_ok_and(|name| name.trim_end() == "epmd")
}

/// Binds a port that an ending process may still have.
async fn bound(port: u16) -> TcpListener {
    let bind = || TcpListener::bind(("127.0.0.1", port));
    poll_until("the port is free", async || bind().is_ok()).await;
    bind().expect("no other process uses the port")
}

#[tokio::test(flavor = "multi_thread")]
async fn local_up_names_a_port_that_another_process_took_and_keeps_the_addresses() {
    let fleet = LocalFleet::up().await;
    let before = fleet.addresses();
    // The broker is last, because `up` restarts Postgres even if the broker's port is taken.
    for (record, service, process) in
        [("secrets/postgres-port", "Postgres", "postgres"), ("broker/ports", "RabbitMQ", "broker")]
    {
        fleet.kill(&[process]).await;
        let text = fleet.file(record);
        let port: u16 =
            text.split(|c: char| !c.is_ascii_digit()).find(|digits| !digits.is_empty()).unwrap().parse().unwrap();
        let stranger = bound(port).await;
        let ended = fleet.attempt(&UP).await;
        assert_ne!(ended.code, 0, "{ended:?}");
        let told = [service, &port.to_string(), &std::process::id().to_string(), "local down", record];
        assert!(told.iter().all(|text| ended.stderr.contains(text)), "{told:?} are not all in {ended:?}");
        assert_eq!(fleet.addresses(), before);
        drop(stranger);
    }
    fleet.command(&UP).await;
    fleet.command(&JOB).await;
    assert_eq!(fleet.addresses(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_fleet_stops_as_fast_without_its_broker() {
    /// How much longer stopping may take without the broker. With the broker it takes a fraction of a second. A worker that waited for
    /// confirms would take five seconds longer.
    const IDLE_STOP: Duration = Duration::from_secs(3);
    let fleet = LocalFleet::up().await;
    fleet.command(&JOB).await;
    let stop = async |name: &str| {
        let (worker, begun) = (fleet.process(name), Instant::now());
        worker.signal(Signal::Terminate);
        poll_until("the worker has ended", async || !worker.is_alive()).await;
        begun.elapsed()
    };
    let with_broker = stop("gpufleet-w1").await;
    fleet.kill(&["broker"]).await;
    let log = fleet.dir.join("log/gpufleet-w2.log");
    poll_until("the worker has lost its broker", async || {
        fs::read_to_string(&log).is_ok_and(|log| log.contains("broker connection lost"))
    })
    .await;
    let without_broker = stop("gpufleet-w2").await;
    println!("stopped in {with_broker:?} with the broker, in {without_broker:?} without");
    assert!(without_broker < with_broker + IDLE_STOP, "{with_broker:?} with the broker, {without_broker:?} without");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_a_bucket_keeps_its_objects_and_its_key() {
    let fleet = LocalFleet::up_with(&S3).await;
    let bytes: Vec<u8> = (0..FLOATS).flat_map(|n| (n as f32).to_le_bytes()).collect();
    fs::write(fleet.scratch.path().join("x.bin"), &bytes).unwrap();
    let (input, zeros) = (format!("x=x.bin:f32[{FLOATS}]"), format!("y=f32[{FLOATS}]"));
    let submit = ["submit", "saxpy", "--arg", "a=1", "--in", &input, "--zeros", &zeros, "--detach", "--keep", "1h"];
    let id = fleet.command(&submit).await.trim().to_owned();
    fleet.command(&["wait", &id, "--timeout", "60s"]).await;
    assert_fetched(&fleet, &id, &bytes).await;
    assert!(fs::read_dir(fleet.dir.join("s3/gpufleet")).unwrap().count() > 0, "the array went through the bucket");

    let before = ["endpoints.json", "secrets/s3"].map(|name| fleet.file(name));
    assert_the_key_is_secret(&fleet, &before[1]).await;
    let other = fleet.attempt(&[&UP[..], &["--blobs", "folder"]].concat()).await.ok();
    assert!(other.stderr.contains("runs with --blobs s3, not with --blobs folder"), "{other:?}");

    fleet.kill(&["s3"]).await;
    fleet.command(&UP).await;
    assert_fetched(&fleet, &id, &bytes).await;
    fleet.command(&["local", "down"]).await;
    fleet.command(&[&UP[..], &S3].concat()).await;
    assert_eq!(["endpoints.json", "secrets/s3"].map(|name| fleet.file(name)), before);
    assert_fetched(&fleet, &id, &bytes).await;
    fleet.command(&["local", "down"]).await;
}

async fn assert_fetched(fleet: &LocalFleet, id: &str, bytes: &[u8]) {
    fleet.command(&["fetch", id, "--out", "y=y.bin"]).await;
    let file = fleet.scratch.path().join("y.bin");
    assert!(fs::read(&file).unwrap() == bytes, "the output is the input");
    fs::remove_file(file).unwrap();
}

/// Checks that only the owner's files and the environment of processes contain the key.
async fn assert_the_key_is_secret(fleet: &LocalFleet, key: &str) {
    for name in ["endpoints.json", "secrets/s3"] {
        assert_eq!(fs::metadata(fleet.dir.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    for entry in fs::read_dir(fleet.dir.join("log")).unwrap() {
        let log = entry.unwrap().path();
        assert!(!String::from_utf8_lossy(&fs::read(&log).unwrap()).contains(key), "{}", log.display());
    }
    let command_line = format!("/proc/{}/cmdline", fleet.process("s3").pid);
    assert!(!fs::read_to_string(command_line).unwrap().contains(key));
    for arguments in [&UP[..], &["local", "status"], &["local", "status", "-o", "json"]] {
        let ended = fleet.attempt(arguments).await;
        assert!(ended.stdout.contains("s3") && !format!("{ended:?}").contains(key), "{ended:?}");
    }
}

/// Runs a shell script, whose only variable of the fleet is its folder.
async fn shell(fleet: &LocalFleet, script: &str) -> gpufleet_tests::Ended {
    let programs = programs::ours(None, "gpufleet").unwrap();
    let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let mut command = tokio::process::Command::new("sh");
    command.args(["-ec", script]).env_clear().env("PATH", path).env("GPUFLEET_LOCAL_DIR", &fleet.dir);
    command.env("PYTHONPATH", Part::Pika.folder().unwrap()).current_dir(fleet.scratch.path()).kill_on_drop(true);
    tokio::time::timeout(WAIT, command.output()).await.expect("every script ends").unwrap().into()
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_all_kinds_use_the_fleet_with_the_variables_of_local_env() {
    const PRODUCER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/foreign/producer.py");
    let fleet = LocalFleet::up_with(&S3).await;
    let script = format!(
        "eval \"$(gpufleet local env)\"; unset GPUFLEET_LOCAL_DIR; gpufleet-ledger labels list; \
         echo \"$GPUFLEET_CUDA\"; python3 {PRODUCER} 2 1,2,3 10,20,30"
    );
    let ended = shell(&fleet, &script).await.ok();
    assert!(ended.stdout.ends_with("emulated\n[12.0, 24.0, 36.0]\n"), "{ended:?}");

    let variables: Value = serde_json::from_str(&fleet.command(&["local", "env", "-o", "json"]).await).unwrap();
    assert_eq!(fleet.command(&["local", "url"]).await.trim(), variables["GPUFLEET_AMQP_URL"]);
    assert_a_worker_joins(&fleet, &variables).await;

    let log = fleet.command(&["local", "logs", "gpufleet-w1", "--lines", "1000"]).await;
    assert!(!log.is_empty() && fleet.file("log/gpufleet-w1.log").contains(log.lines().last().unwrap()), "{log}");
    fleet.command(&["local", "down"]).await;
    let ended = fleet.attempt(&["local", "env"]).await;
    assert!(ended.code == 7 && ended.stdout.is_empty() && ended.stderr.contains("no fleet is running in"), "{ended:?}");
    assert!(fleet.command(&["local", "logs"]).await.contains("/log/broker.log <=="));
}

/// Starts a worker by hand that uses the fleet's broker and bucket, and waits until the ledger knows it.
async fn assert_a_worker_joins(fleet: &LocalFleet, variables: &Value) {
    let mut command = tokio::process::Command::new(programs::ours(None, "gpufleet-worker").unwrap());
    command
        .args(["run", "--name", "by-hand", "--pool", "default"])
        .env_clear()
        .envs([("PATH", std::env::var("PATH").unwrap()), ("HOME", std::env::var("HOME").unwrap_or_default())]);
    for (name, value) in variables.as_object().unwrap() {
        command.env(name, value.as_str().unwrap());
    }
    let log = fs::File::create(fleet.scratch.path().join("by-hand.log")).unwrap();
    let mut worker = command.stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true).spawn().unwrap();
    poll_until("the ledger knows the worker", async || fleet.command(&["workers"]).await.contains("by-hand")).await;
    worker.kill().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_programs_are_bad_input() {
    let scratch = tempfile::tempdir().unwrap();
    let nothing = scratch.path().to_str().unwrap();
    let environment = [("GPUFLEET_BIN_DIR", nothing)];
    let ended = gpufleet_command(scratch.path(), &environment, &["local", "up", "--dir", "fleet"]).await;
    assert_eq!(ended.code, 3, "{ended:?}");
    assert!(ended.stderr.contains("gpufleet-worker") && ended.stderr.contains("GPUFLEET_BIN_DIR"), "{ended:?}");
}

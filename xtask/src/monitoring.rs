//! `cargo xtask monitoring`: checks the alerts with Prometheus' own tools. Then a Prometheus watches a private fleet in which two of the
//! alerts must fire.

use std::{
    fs,
    net::TcpListener,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use gpufleet_local::{LocalFleet, Process, StateDir, Worker, process::ProcessSpec, programs, setup::Part};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    process::Command,
};

use crate::{
    interrupt::unless_interrupted,
    setup,
    terminal::Terminal,
    workspace::{self, FLEET_PACKAGES},
};

const FOLDER: &str = "deploy/prometheus";
/// The addresses in the example's configuration. Those of the private fleet replace them.
const WORKER: &str = "127.0.0.1:9464";
const RECORDER: &str = "127.0.0.1:9471";
const BROKER: &str = "127.0.0.1:15692";
/// The arguments for metrics. With port 0, each program takes a free port and logs it.
const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];
/// A pool that a worker declared before it left.
const IDLE_POOL: &str = "idle";
const JOB: [&str; 7] = ["saxpy", "--arg", "a=2", "--fill", "x=f32[4]:1.5", "--zeros", "y=f32[4]"];
/// The alerts that must fire in the private fleet.
const FIRING: [&str; 2] = ["GpufleetNoConsumers", "GpufleetDeadLettersGrowing"];
const TARGETS: usize = 4;
/// The limit of each wait. RabbitMQ updates the metrics of its queues every five seconds.
const WAIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(200);

pub async fn run() -> anyhow::Result<()> {
    let terminal = Terminal::new();
    setup::ensure(&[Part::Services, Part::Prometheus], &terminal)?;
    terminal.heading("check the configuration and the alerts");
    for arguments in [
        &["check", "config", "prometheus.yml"][..],
        &["check", "rules", "alerts.yml"],
        &["test", "rules", "alerts_test.yml"],
    ] {
        let mut promtool = Command::new(program("promtool")?);
        promtool.args(arguments).current_dir(workspace::root().join(FOLDER));
        workspace::run(promtool).await?;
    }
    every_alert_is_tested()?;
    terminal.heading("build");
    workspace::build(&FLEET_PACKAGES).await?;
    terminal.heading("watch a private fleet");
    Box::pin(unless_interrupted(watch())).await?;
    eprintln!("All {TARGETS} targets are up, and {} fire.", FIRING.join(" and "));
    Ok(())
}

/// Checks that each alert has tests, because promtool accepts alerts without a test.
fn every_alert_is_tested() -> anyhow::Result<()> {
    let read = |name| fs::read_to_string(workspace::root().join(FOLDER).join(name)).context(name);
    let (alerts, tests) = (read("alerts.yml")?, read("alerts_test.yml")?);
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        let tested = tests.matches(&format!("alertname: {alert}\n")).count();
        ensure!(
            tested >= 2,
            "{FOLDER}/alerts_test.yml tests {alert} {tested} times; test that it fires, and that it does not"
        );
    }
    Ok(())
}

async fn watch() -> anyhow::Result<()> {
    let fleet = LocalFleet::builder().label("monitoring").bin_dir(workspace::programs()?);
    let fleet = fleet.recorder_args(METRICS).worker_args(METRICS).start().await?;
    let recorder = fleet.ledger().context("the fleet has no recorder")?;
    let broker = serve_broker_metrics(&fleet).await?;
    let targets = [
        (WORKER, address_of(&fleet.worker(0).process()).await?),
        (RECORDER, address_of(&recorder).await?),
        (BROKER, broker),
    ];
    let state = StateDir::ephemeral()?;
    let prometheus = Prometheus::start(&state, &targets)?;
    poll("all targets are up", async || prometheus.targets_up().await == Some(TARGETS)).await?;
    leave_pool_with_a_job(&fleet).await?;
    publish_nonsense(&fleet).await?;
    for alert in FIRING {
        poll(&format!("{alert} fires"), async || prometheus.firing().await.iter().any(|name| name == alert)).await?;
    }
    let others: Vec<_> =
        prometheus.firing().await.into_iter().filter(|name| !FIRING.contains(&name.as_str())).collect();
    ensure!(others.is_empty(), "nothing is wrong that would be a reason for {}", others.join(", "));
    ensure!(prometheus.targets_up().await == Some(TARGETS), "a target is down");
    state.close().await?;
    fleet.stop().await?;
    Ok(())
}

/// Starts RabbitMQ's exporter in the running broker, and returns its address.
async fn serve_broker_metrics(fleet: &LocalFleet) -> anyhow::Result<String> {
    let (port, broker) = (free_port()?, fleet.services().broker());
    let file = fleet.services().state().path().join("plugins");
    fs::write(&file, "[rabbitmq_prometheus].\n").context("failed to write the list of plugins")?;
    let address = format!("[{{ip, \"127.0.0.1\"}}, {{port, {port}}}]");
    broker.eval(&format!("ok = application:set_env(rabbitmq_prometheus, tcp_config, {address}).")).await?;
    broker.eval(&format!("ok = application:set_env(rabbit, enabled_plugins_file, \"{}\").", file.display())).await?;
    broker.eval(&format!("{{ok, _, _}} = rabbit_plugins:ensure(\"{}\").", file.display())).await?;
    Ok(format!("127.0.0.1:{port}"))
}

/// Submits a job to a pool whose only worker has left.
async fn leave_pool_with_a_job(fleet: &LocalFleet) -> anyhow::Result<()> {
    let worker: Arc<Worker> = fleet.launch_worker(&["--pool", IDLE_POOL])?;
    worker.wait_ready().await?;
    worker.terminate().await?;
    let mut submit = Command::new(programs::ours(Some(&workspace::programs()?), "gpufleet")?);
    submit.env("GPUFLEET_AMQP_URL", &fleet.endpoints().amqp_url);
    submit.args(["submit", "--detach", "--pool", IDLE_POOL]).args(JOB);
    // The URL has a password, so the environment does not appear in the error.
    let status = submit.kill_on_drop(true).status().await.context("failed to start gpufleet submit")?;
    ensure!(status.success(), "gpufleet submit ended with {status}");
    Ok(())
}

/// Publishes a message that no worker can read, so that it is dead-lettered.
async fn publish_nonsense(fleet: &LocalFleet) -> anyhow::Result<()> {
    let exchange = format!("rabbit_misc:r(<<\"{}\">>, exchange, <<\"\">>)", fleet.space());
    let queue = "<<\"gpufleet.v1.tasks.default.normal\">>";
    let publish = format!("rabbit_basic:publish({exchange}, {queue}, [], <<\"nonsense\">>).");
    fleet.services().broker().eval(&publish).await.map(drop).map_err(Into::into)
}

/// A Prometheus server, which ends with the state directory.
struct Prometheus {
    address: String,
}

impl Prometheus {
    /// Starts Prometheus with the example's configuration and alerts, except that it scrapes every second and fires without a delay.
    fn start(state: &Arc<StateDir>, targets: &[(&str, String)]) -> anyhow::Result<Self> {
        let folder = state.path().join("prometheus");
        fs::create_dir_all(&folder).context("failed to make a folder for Prometheus")?;
        let example = |name: &str| {
            fs::read_to_string(workspace::root().join(FOLDER).join(name)).context("failed to read an example")
        };
        let mut config = example("prometheus.yml")?.replace("interval: 15s", "interval: 1s");
        for (shown, actual) in targets {
            ensure!(config.contains(shown), "{FOLDER}/prometheus.yml does not scrape {shown}");
            config = config.replace(shown, actual);
        }
        let alerts = example("alerts.yml")?;
        let alerts = alerts.lines().map(|line| match line.split_once("for: ") {
            Some((indent, _)) if indent.trim().is_empty() => format!("{indent}for: 0s\n"),
            _ => format!("{line}\n"),
        });
        fs::write(folder.join("prometheus.yml"), config).context("failed to write the configuration")?;
        fs::write(folder.join("alerts.yml"), alerts.collect::<String>()).context("failed to write the alerts")?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let options = [
            format!("--config.file={}", folder.join("prometheus.yml").display()),
            format!("--storage.tsdb.path={}", folder.join("data").display()),
            format!("--web.listen-address={address}"),
        ];
        ProcessSpec::new("prometheus", &program("prometheus")?).args(options).directory(&folder).spawn(state)?;
        Ok(Self { address })
    }

    /// Returns the number of targets, if all of them are up.
    async fn targets_up(&self) -> Option<usize> {
        let answer = self.ask("/api/v1/targets").await?;
        let targets = answer["data"]["activeTargets"].as_array()?;
        targets.iter().all(|target| target["health"] == "up").then_some(targets.len())
    }

    /// Returns the names of the alerts that fire.
    async fn firing(&self) -> Vec<String> {
        let answer = self.ask("/api/v1/alerts").await.unwrap_or_default();
        let alerts = answer["data"]["alerts"].as_array().cloned().unwrap_or_default();
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        firing.filter_map(|alert| alert["labels"]["alertname"].as_str().map(str::to_owned)).collect()
    }

    /// Returns the data of a response; `None` if Prometheus does not answer yet.
    async fn ask(&self, path: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(&self.address).await.ok()?;
        // With HTTP/1.0, the response ends with the connection.
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
    }
}

/// Returns the address that a program has logged.
async fn address_of(process: &Process) -> anyhow::Result<String> {
    let logged = || {
        let log = fs::read_to_string(process.log()).ok()?;
        let line = log.lines().find(|line| line.contains("serving metrics"))?;
        Some(line.split_once("address=")?.1.trim().to_owned())
    };
    poll("a program serves metrics", async || logged().is_some()).await?;
    logged().context("the log has no address")
}

async fn poll(what: &str, met: impl AsyncFn() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + WAIT;
    while !met().await {
        if Instant::now() >= deadline {
            bail!("after {} s it is not so that {what}", WAIT.as_secs());
        }
        tokio::time::sleep(PAUSE).await;
    }
    eprintln!("  {what}");
    Ok(())
}

fn program(name: &'static str) -> anyhow::Result<std::path::PathBuf> {
    programs::system(name).with_context(|| format!("failed to find {name}"))
}

/// Returns a free port. Another process may take it before it is used; then the start fails.
fn free_port() -> anyhow::Result<u16> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).context("failed to look for a free port")?;
    Ok(listener.local_addr()?.port())
}

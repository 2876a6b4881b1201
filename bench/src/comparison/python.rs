//! Celery, Ray and Slurm: a Python program in `bench/comparison` drives each, and answers requests in lines of JSON.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use gpufleet_local::{Services, setup};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use super::system::{AfterKill, Kill, Records, System};
use crate::cpu::{Part, Parts};

/// For one answer: Slurm takes minutes for a few hundred jobs.
const ANSWER_DEADLINE: Duration = Duration::from_secs(400);
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// A network of its own with nothing but loopback: Ray listens on every address that it finds. The second address is for
/// Slurm, whose look-ups fail on a machine that has 127.0.0.1 only.
const LOOPBACK_ONLY: &str = r#"ip link set lo up && ip address add 127.0.0.2/8 dev lo && exec "$@""#;

/// Which program, and how it runs.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    pub name: &'a str,
    /// The broker, for a system that needs one.
    pub amqp_url: Option<&'a str>,
    pub acks_late: bool,
}

#[derive(Debug)]
pub struct PythonSystem {
    name: String,
    about: String,
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    broker: Option<u32>,
}

#[derive(Debug, Deserialize)]
struct Started {
    about: String,
}

#[derive(Debug, Deserialize)]
struct RoundTrips {
    round_trips_ms: Vec<f64>,
}

#[derive(Debug, Deserialize)]
struct Rate {
    seconds: f64,
    jobs: f64,
}

impl PythonSystem {
    /// Returns when the system takes jobs. Its processes end with the services.
    pub async fn start(services: &Services, program: Program<'_>) -> anyhow::Result<Self> {
        let Program { name, amqp_url, acks_late } = program;
        let run = if acks_late { format!("{name}-late") } else { name.to_owned() };
        let folder = services.state().path().join(&run);
        fs::create_dir(&folder).with_context(|| format!("create {}", folder.display()))?;
        let log = services.state().log(&run);
        let log = fs::File::create(&log).with_context(|| format!("create {}", log.display()))?;
        let mut command = python(&scripts().join(format!("{name}_side.py")), amqp_url.is_none())?;
        let (marker, state) = services.state().marker();
        command
            .env(marker, state)
            .env("COMPARISON_FOLDER", &folder)
            .env("COMPARISON_LOG_PREFIX", services.state().logs().join(&run))
            .env("HOME", &folder)
            .env("PYTHONPATH", setup::comparison_folder()?)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RAY_USAGE_STATS_ENABLED", "0")
            .envs(amqp_url.map(|url| ("COMPARISON_AMQP_URL", url)))
            .envs(acks_late.then_some(("COMPARISON_ACKS_LATE", "1")))
            .current_dir(scripts())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().context("start Python")?;
        let requests = child.stdin.take().expect("its input is piped");
        let answers = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        let broker = amqp_url.and_then(|_| services.broker().pid());
        let mut system = Self { name: name.to_owned(), about: String::new(), child, requests, answers, broker };
        system.about = system.answer::<Started>().await?.about;
        Ok(system)
    }

    async fn ask<T: DeserializeOwned>(&mut self, request: Value) -> anyhow::Result<T> {
        self.requests.write_all(format!("{request}\n").as_bytes()).await.context("ask")?;
        self.answer().await
    }

    async fn answer<T: DeserializeOwned>(&mut self) -> anyhow::Result<T> {
        let line = timeout(ANSWER_DEADLINE, self.answers.next_line())
            .await
            .with_context(|| format!("{} did not answer in {} s", self.name, ANSWER_DEADLINE.as_secs()))??
            .with_context(|| format!("{} ended without an answer", self.name))?;
        let answer: Value = serde_json::from_str(&line)?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            bail!("{error}");
        }
        Ok(serde_json::from_value(answer)?)
    }
}

impl System for PythonSystem {
    fn about(&self) -> String {
        self.about.clone()
    }

    /// Everything below the submitter.
    fn parts(&self) -> Parts {
        Parts::default()
            .with(Part::Broker, self.broker)
            .with_below(Part::Supervisor, self.child.id().expect("it was not waited for"))
    }

    async fn latency(&mut self, jobs: usize) -> anyhow::Result<Vec<Duration>> {
        let trips: RoundTrips = self.ask(json!({ "do": "latency", "jobs": jobs })).await?;
        Ok(trips.round_trips_ms.iter().map(|ms| Duration::from_secs_f64(ms / 1e3)).collect())
    }

    async fn throughput(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<f64> {
        let rate: Rate = self.ask(json!({ "do": "throughput", "jobs": jobs, "in_flight": in_flight })).await?;
        Ok(rate.jobs / rate.seconds)
    }

    async fn packed_throughput(&mut self, _jobs: usize, _in_flight: usize) -> anyhow::Result<Option<f64>> {
        Ok(None)
    }

    async fn kill_worker(&mut self, kill: Kill) -> anyhow::Result<AfterKill> {
        let Kill { jobs, milliseconds, after } = kill;
        self.ask(json!({ "do": "kill", "jobs": jobs, "milliseconds": milliseconds, "after": after })).await
    }

    async fn history(&mut self) -> anyhow::Result<Records> {
        self.ask(json!({ "do": "history" })).await
    }

    /// Closes its input, which ends it. What it leaves behind, such as a step of Slurm, ends with the services.
    async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.requests);
        let status = timeout(STOP_DEADLINE, self.child.wait()).await.context("it did not stop")??;
        if status.success() { Ok(()) } else { bail!("{} ended with {status}", self.name) }
    }
}

/// Python with this program, in a network of its own on request.
fn python(script: &Path, isolated: bool) -> anyhow::Result<Command> {
    let python = setup::python().context("python3 is not installed")?;
    if !isolated {
        let mut command = Command::new(python);
        command.arg(script);
        return Ok(command);
    }
    let mut command = Command::new("unshare");
    if fs::metadata("/proc/self")?.uid() != 0 {
        command.arg("--map-root-user");
    }
    command.args(["--net", "sh", "-c", LOOPBACK_ONLY, "sh"]).arg(python).arg(script);
    Ok(command)
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("comparison")
}

//! Runs a Python program of `bench/python` that drives another system or a foreign client. The program answers requests in lines of JSON.

use std::{
    env, fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, bail};
use gpufleet_local::{Services, programs, setup::Part};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::stats::Run;

/// The deadline for one answer. Slurm takes minutes for a few hundred jobs.
const ANSWER_DEADLINE: Duration = Duration::from_secs(400);
const STOP_DEADLINE: Duration = Duration::from_secs(60);
/// A shell command that runs a program in a network with loopback only, because Ray listens on every address that it finds. Slurm needs the
/// second address: its look-ups fail on a machine that has only 127.0.0.1.
const LOOPBACK_ONLY: &str = r#"ip link set lo up && ip address add 127.0.0.2/8 dev lo && exec "$@""#;

/// The program to run, and its settings.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    pub name: &'a str,
    /// The name of the run, which its folder and its logs have.
    pub run: &'a str,
    /// The interpreter; the system's if it is `None`.
    pub interpreter: Option<&'a Path>,
    /// The broker's URL. A program without one runs in a network of its own.
    pub amqp_url: Option<&'a str>,
    /// The number of floats in each array of a job.
    pub floats: usize,
    pub environment: &'a [(&'a str, &'a str)],
}

/// A running program. Dropping it kills it.
#[derive(Debug)]
pub struct PythonProgram {
    name: String,
    about: String,
    child: Child,
    requests: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

#[derive(Debug, Deserialize)]
struct Started {
    about: String,
}

#[derive(Debug, Deserialize)]
struct RoundTrips {
    seconds: f64,
    round_trips_ms: Vec<f64>,
}

impl PythonProgram {
    /// Starts the program, and returns when it accepts jobs. Its processes end with the services.
    pub async fn start(services: &Services, program: Program<'_>) -> anyhow::Result<Self> {
        let Program { name, run, interpreter, amqp_url, floats, environment } = program;
        let folder = services.state().path().join(run);
        fs::create_dir(&folder).with_context(|| format!("failed to create {}", folder.display()))?;
        let log = services.state().log(run);
        let log = fs::File::create(&log).with_context(|| format!("failed to create {}", log.display()))?;
        let mut command = python(interpreter, &scripts().join(format!("{name}_side.py")), amqp_url.is_none())?;
        let packages = env::join_paths([Part::Comparison.folder()?, Part::Pika.folder()?])?;
        let (marker, state) = services.state().marker();
        command
            .env(marker, state)
            .env("BENCH_FOLDER", &folder)
            .env("BENCH_LOG_PREFIX", services.state().logs().join(run))
            .env("BENCH_FLOATS", floats.to_string())
            .env("HOME", &folder)
            .env("PYTHONPATH", packages)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("RAY_USAGE_STATS_ENABLED", "0")
            .envs(amqp_url.map(|url| ("BENCH_AMQP_URL", url)))
            .envs(environment.iter().copied())
            .current_dir(scripts())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().context("failed to start Python")?;
        let requests = child.stdin.take().expect("its input is piped");
        let answers = BufReader::new(child.stdout.take().expect("its output is piped")).lines();
        let mut program = Self { name: name.to_owned(), about: String::new(), child, requests, answers };
        program.about = program.answer::<Started>().await?.about;
        Ok(program)
    }

    /// Returns versions and settings, for people.
    pub fn about(&self) -> &str {
        &self.about
    }

    pub fn pid(&self) -> u32 {
        self.child.id().expect("it was not waited for")
    }

    /// Runs `jobs` jobs, `in_flight` at a time. The caller sets the deadline.
    pub async fn run(&mut self, jobs: usize, in_flight: usize) -> anyhow::Result<Run> {
        let run: RoundTrips = self.ask(json!({ "do": "run", "jobs": jobs, "in_flight": in_flight })).await?;
        let round_trips = run.round_trips_ms.iter().map(|ms| Duration::from_secs_f64(ms / 1e3)).collect();
        Ok(Run { took: Duration::from_secs_f64(run.seconds), round_trips })
    }

    pub async fn ask<T: DeserializeOwned>(&mut self, request: Value) -> anyhow::Result<T> {
        self.requests.write_all(format!("{request}\n").as_bytes()).await.context("failed to send the request")?;
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

    /// Closes the program's input, which ends it. Processes that it leaves behind, such as a step of Slurm, end with the services.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        drop(self.requests);
        let status = timeout(STOP_DEADLINE, self.child.wait()).await.context("it did not stop")??;
        if status.success() { Ok(()) } else { bail!("{} ended with {status}", self.name) }
    }
}

/// Returns the command that runs a script with Python, in a network of its own if it is `isolated`.
fn python(interpreter: Option<&Path>, script: &Path, isolated: bool) -> anyhow::Result<Command> {
    let system = || programs::system("python3").context("python3 is not installed");
    let python = interpreter.map_or_else(system, |interpreter| Ok(interpreter.to_owned()))?;
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
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python")
}

//! Runs gpufleet's commands as a user does, and Python programs.

use std::{
    io,
    path::Path,
    process::{Output, Stdio},
    time::Duration,
};

use gpufleet_local::{programs, setup::Part};
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::{Ground, WAIT, memory_bytes};

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs `gpufleet` without gpufleet's variables in its environment.
pub async fn gpufleet_command(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> Ended {
    let output = gpufleet_process(folder, arguments).envs(environment.iter().copied()).output();
    Ended::from(tokio::time::timeout(WAIT, output).await.expect("every command ends").unwrap())
}

/// Runs `gpufleet` like [`gpufleet_command`], and measures the peak of its memory in bytes.
pub async fn gpufleet_peak_memory(folder: &Path, environment: &[(&str, &str)], arguments: &[&str]) -> (Ended, u64) {
    /// The time between two samples. The peak never decreases, so only a change just before the end is missed.
    const SAMPLE_EVERY: Duration = Duration::from_millis(10);
    let mut command = gpufleet_process(folder, arguments);
    command.envs(environment.iter().copied()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    let pid = child.id().expect("the command was just started");
    let mut output = std::pin::pin!(child.wait_with_output());
    let mut peak = 0;
    let measured = async {
        loop {
            tokio::select! {
                output = &mut output => return (Ended::from(output.unwrap()), peak),
                () = tokio::time::sleep(SAMPLE_EVERY) => peak = memory_bytes(pid, "VmHWM").unwrap_or(peak),
            }
        }
    };
    tokio::time::timeout(WAIT, measured).await.expect("every command ends")
}

/// Runs a Python program with pika that connects to this URL.
pub async fn run_python(amqp_url: &str, deadline: Duration, arguments: &[&str]) -> Output {
    let output = Command::new("python3")
        .args(arguments)
        .env("GPUFLEET_AMQP_URL", amqp_url)
        .env("PYTHONPATH", Part::Pika.folder().unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    tokio::time::timeout(deadline, output).await.expect("the program ends").unwrap()
}

/// Returns the command `gpufleet` without gpufleet's variables in its environment.
pub fn gpufleet_process(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(programs::ours(None, "gpufleet").unwrap());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("GPUFLEET_")) {
        command.env_remove(name);
    }
    // Keeps the command from finding a local fleet of the developer.
    command.env("XDG_STATE_HOME", folder);
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    // SAFETY: between fork and exec the function makes system calls alone.
    unsafe { command.pre_exec(take_default_signals) };
    command
}

/// A shell has its background jobs ignore these signals, and programs inherit that, also those under test.
fn take_default_signals() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGQUIT] {
        // SAFETY: the default action installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    Ok(())
}

impl Ground {
    /// Runs `gpufleet` against this fleet.
    pub async fn gpufleet(&self, folder: &Path, arguments: &[&str]) -> Ended {
        let endpoints = self.endpoints();
        let environment = [
            ("GPUFLEET_AMQP_URL", endpoints.amqp_url.as_str()),
            ("GPUFLEET_DATABASE_URL", endpoints.database_url.as_str()),
        ];
        gpufleet_command(folder, &environment, arguments).await
    }

    /// Starts `gpufleet` against this fleet's broker, for tests that read its output while it runs.
    pub fn start_gpufleet(&self, folder: &Path, arguments: &[&str]) -> Child {
        let mut command = gpufleet_process(folder, arguments);
        command.env("GPUFLEET_AMQP_URL", &self.endpoints().amqp_url);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }
}

impl Ended {
    /// The same command, which must have succeeded.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// The JSON that the command printed. It must have succeeded.
    #[track_caller]
    pub fn json(&self) -> Value {
        assert_eq!(self.code, 0, "{self:?}");
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().unwrap_or(-1),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }
}

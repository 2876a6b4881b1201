//! The options of `gpufleet run --on-worker`.

use std::{path::PathBuf, str::FromStr, time::Duration};

use clap::Args;
use gpufleet::{Job, schema::bounds::ATTEMPTS_MAX};

use super::super::Options;
use crate::{complaint::Complaint, environment, spec};

/// A host program: its environment and its files.
#[derive(Debug, Args)]
pub struct HostOptions {
    /// Run the command on the worker's machine with a whole GPU, not here. It needs --env or --image, and no --memory
    #[arg(long, requires = "place", help_heading = "On a worker")]
    pub on_worker: bool,
    /// Environment of the worker to run the command in, such as torch. Its programs come first in PATH
    #[arg(long, value_name = "NAME", requires = "on_worker", group = "place", help_heading = "On a worker")]
    pub env: Option<String>,
    /// Container image of the worker to run the command in, such as pytorch:2.9, and not in an environment
    #[arg(long, value_name = "IMAGE", requires = "on_worker", group = "place", help_heading = "On a worker")]
    pub image: Option<String>,
    /// File or folder that the command finds in its working directory: src as src, the contents of . as they are. Repeatable. Files that
    /// .gpufleetignore names and .git are left out
    #[arg(long, value_name = "PATH", requires = "on_worker", help_heading = "On a worker")]
    pub upload: Vec<PathBuf>,
    /// Files to bring back when the command has ended, such as 'out/**'. Repeatable
    #[arg(long, value_name = "GLOB", requires = "on_worker", help_heading = "On a worker")]
    pub download: Vec<String>,
    /// Folder to write them to [default: the current one]
    #[arg(long, value_name = "FOLDER", requires = "on_worker", help_heading = "On a worker")]
    pub dir: Option<PathBuf>,
    /// Replace files that exist in that folder
    #[arg(long, requires = "on_worker", help_heading = "On a worker")]
    pub force: bool,
    /// Environment variable of the command. Repeatable. It has none of those here
    #[arg(long, value_name = "NAME=VALUE", requires = "on_worker", help_heading = "On a worker")]
    pub variable: Vec<VariableSpec>,
    /// Let the command use the network, if the pool allows it
    #[arg(long, requires = "on_worker", help_heading = "On a worker")]
    pub network: bool,
    /// Number of times that the command may run, 1 to 20, if workers are lost while it runs [default: 1]
    #[arg(long, value_name = "N", requires = "on_worker", value_parser = spec::whole(1..=ATTEMPTS_MAX), help_heading = "On a worker")]
    pub attempts: Option<u32>,
    /// Print the job's id once the broker has stored the job, and exit. `gpufleet logs --follow ID` shows the output, `gpufleet fetch ID
    /// --dir FOLDER` writes the files and the output to a folder
    #[arg(long, requires = "on_worker", conflicts_with_all = ["dir", "force", "report"], help_heading = "On a worker")]
    pub detach: bool,
    /// Keep the files and the output for this long after the command has ended, for `gpufleet fetch` [default: 7days with --detach, 1day with
    /// a blob store, else not at all]
    #[arg(long, value_name = "DURATION", requires = "on_worker", value_parser = spec::keep, help_heading = "On a worker")]
    pub keep: Option<Duration>,
}

/// `NAME=VALUE`; the value may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VariableSpec {
    pub name: String,
    pub value: String,
}

/// For how long a detached job keeps its files and output.
const KEEP_DETACHED: Duration = Duration::from_secs(7 * 24 * 3600);
/// For how long any other job keeps them if there is a blob store, in case this command is interrupted.
const KEEP: Duration = Duration::from_secs(24 * 3600);

impl FromStr for VariableSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((name, value)) if !name.is_empty() => Ok(Self { name: name.to_owned(), value: value.to_owned() }),
            _ => Err("expected NAME=VALUE, such as SEED=7".to_owned()),
        }
    }
}

impl Options {
    /// The job of the host program, without its files.
    pub fn host_program(&self, has_store: bool) -> Result<Job, Complaint> {
        self.check_kind()?;
        let words = self.command.iter().map(|word| word.to_str().map(str::to_owned));
        let command: Option<Vec<String>> = words.collect();
        let command = command.ok_or_else(|| Complaint::bad_input("the command has bytes that are not UTF-8"))?;
        let host = &self.host;
        let job = match (&host.env, &host.image) {
            (_, Some(image)) => Job::host_in_image(command, image),
            (environment, None) => Job::host(command, environment.as_deref().expect("clap requires one of both")),
        };
        let mut job = self.job.describe(job.pool(self.pool())).network(host.network);
        for VariableSpec { name, value } in &host.variable {
            job = job.variable(name, value);
        }
        for glob in &host.download {
            job = job.download(glob);
        }
        if let Some(limit) = self.time_limit {
            job = job.time_limit(limit);
        }
        if let Some(limit) = self.queue_limit {
            job = job.queue_limit(limit);
        }
        if let Some(attempts) = host.attempts {
            job = job.attempts_max(attempts);
        }
        Ok(job.keep(self.kept_for(has_store)))
    }

    /// Refuses the options of sessions. The program has a whole device, and no limit but that of its time.
    fn check_kind(&self) -> Result<(), Complaint> {
        // This variable is for programs that run here.
        let variable = std::env::var_os(environment::SESSION_LIBRARY);
        let is_given = self.library.as_ref().is_some_and(|library| Some(library.as_os_str()) != variable.as_deref());
        let of_sessions = [
            ("--memory", self.memory.is_some()),
            ("--sessions", self.sessions.is_some()),
            ("--idle-limit", self.idle_limit.is_some()),
            ("--library", is_given),
        ];
        match of_sessions.into_iter().find(|(_, is_given)| *is_given) {
            Some((option, _)) => Err(Complaint::usage(format!("{option} can't be used with --on-worker")).hint(
                format!("leave {option} out: the command has a whole device and its driver; or leave --on-worker out"),
            )),
            None => Ok(()),
        }
    }

    /// For how long the files and the output are kept; zero if not at all.
    pub fn kept_for(&self, has_store: bool) -> Duration {
        let default = match (self.host.detach, has_store) {
            (true, _) => KEEP_DETACHED,
            (false, true) => KEEP,
            (false, false) => Duration::ZERO,
        };
        self.host.keep.unwrap_or(default)
    }
}

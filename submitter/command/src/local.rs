//! `gpufleet local`: a whole fleet on this machine.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gpufleet_local::{BlobKind, Cuda, LocalError, Status, UpOptions, persistent::FleetState, setup::Part};

use super::{
    complaint::{Complaint, chain},
    connection, environment,
    exit::Exit,
    options::OutputOptions,
    output, spec,
    table::{self, Column},
    waiting,
};

mod logs;
mod variables;

/// Start, stop or inspect a whole fleet on this machine
///
/// The fleet has its own RabbitMQ and Postgres on free loopback ports, a blob store, a ledger and workers. While it is running, the
/// other commands use it by default.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    /// Folder for the data and logs of the fleet [default: gpufleet/local in $XDG_STATE_HOME, ~/.local/state or, for root, /var/lib]
    #[arg(long, global = true, value_name = "FOLDER", env = environment::LOCAL_DIR, hide_env_values = true)]
    dir: Option<PathBuf>,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet local setup
  gpufleet local up
  gpufleet local up --workers 2 --pool default --pool team-a --cuda emulated
  gpufleet local up --blobs s3
  gpufleet local up --console
  eval \"$(gpufleet local env)\"       # let other programs use the fleet
  gpufleet local logs gpufleet-w1
  gpufleet local down";

#[derive(Debug, Subcommand)]
enum Action {
    /// Install what a fleet on this machine needs and lacks: RabbitMQ, Postgres, and NVRTC for CUDA C
    ///
    /// RabbitMQ and Postgres are packages of the system, so they need root or sudo. Their own services are neither started nor
    /// changed. NVRTC and the CUDA headers come from PyPI and go to ~/.cache/gpufleet (140 MB).
    Setup,
    /// Start the processes that are not running yet; running ones stay as they are
    Up {
        /// Number of workers, 1 to 64 [default: as many as last time, else 1]
        #[arg(long, value_name = "COUNT", value_parser = spec::whole(1..=64))]
        workers: Option<u32>,
        /// Pool that the workers serve. Repeatable [default: default]
        #[arg(long)]
        pool: Vec<gpufleet::schema::PoolName>,
        /// CUDA driver of the workers: auto (a GPU if there is one, else the emulated device), system (the NVIDIA driver),
        /// emulated, or the path of a CUDA driver library [default: auto]
        #[arg(long, value_name = "DRIVER")]
        cuda: Option<Cuda>,
        /// Blob store: folder, or s3 for a bucket of a private S3 server. It can't change while the fleet is running [default: folder]
        #[arg(long, value_enum, value_name = "KIND", hide_possible_values = true)]
        blobs: Option<Blobs>,
        /// Also start the console, which shows the fleet in the browser to everyone on this machine
        #[arg(long)]
        console: bool,
    },
    /// Stop the fleet; data and logs stay
    Down,
    /// Show the processes of the fleet
    Status {
        #[command(flatten)]
        output: OutputOptions,
    },
    /// Print the environment variables with which other programs use the fleet
    ///
    /// For the shell: eval "$(gpufleet local env)". Then gpufleet-worker, gpufleet-ledger, gpufleet-console and programs in
    /// other languages use the fleet. The values contain passwords.
    Env {
        /// Output format
        #[arg(short, long, value_enum, default_value_t = variables::Format::Shell, value_name = "FORMAT")]
        output: variables::Format,
    },
    /// Print the URL of the fleet's broker, with its password
    Url,
    /// Print the ends of the logs of the fleet's processes, also after the fleet was stopped
    Logs {
        /// Name of a process, as `gpufleet local status` shows it [default: all]
        #[arg(value_name = "PROCESS")]
        process: Option<String>,
        /// Number of lines of each log, blank ones left out
        #[arg(long, value_name = "N", default_value_t = 20, value_parser = spec::whole(1..=100_000))]
        lines: u32,
    },
}

/// The kind of the blob store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Blobs {
    Folder,
    S3,
}

impl From<Blobs> for BlobKind {
    fn from(kind: Blobs) -> Self {
        match kind {
            Blobs::Folder => Self::Folder,
            Blobs::S3 => Self::S3,
        }
    }
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    tokio::select! {
        exit = perform(options) => exit,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted; the processes that were started keep running")
            .hint("`gpufleet local up` starts the rest, `gpufleet local down` stops everything")),
    }
}

/// If cancelled, part of the fleet is running. `up` completes it, and `down` stops it.
async fn perform(options: &Options) -> Result<Exit, Complaint> {
    let dir = options.dir.clone().map_or_else(connection::local_dir, Ok).map_err(complaint)?;
    match &options.action {
        Action::Setup => setup()?,
        Action::Up { workers, pool, cuda, blobs, console } => {
            let up = UpOptions {
                dir: dir.clone(),
                workers: *workers,
                pools: pool.iter().map(ToString::to_string).collect(),
                cuda: cuda.clone(),
                blobs: blobs.map(Into::into),
                console: *console,
            };
            let status = gpufleet_local::up(&up, waiting::steps(false).as_ref()).await.map_err(complaint)?;
            output::emit(&describe(&status))?;
            let differences = gpufleet_local::differences(&up).map_err(complaint)?;
            differences.iter().for_each(|difference| output::warn(difference));
            if !differences.is_empty() {
                output::note(
                    "running processes stay as they are; to change them: gpufleet local down, then gpufleet local up",
                );
            }
            if connection::local_dir().ok().as_ref() != Some(&dir) {
                output::note(&format!(
                    "to use this fleet with the other commands: export {}={}",
                    environment::LOCAL_DIR,
                    status.dir.display()
                ));
            }
        }
        Action::Down => {
            if gpufleet_local::status(&dir).map_err(complaint)?.state == FleetState::Down {
                output::note(&format!("no fleet is running in {}", dir.display()));
            }
            let forced = gpufleet_local::down(&dir, waiting::steps(false).as_ref()).await.map_err(complaint)?;
            for name in forced {
                output::warn(&format!("{name} did not stop in time and was killed"));
            }
        }
        Action::Status { output } => {
            let status = gpufleet_local::status(&dir).map_err(complaint)?;
            output.format.print(&status, describe)?;
        }
        Action::Env { output: format } => variables::print(&dir, *format)?,
        Action::Url => variables::print_url(&dir)?,
        Action::Logs { process, lines } => logs::print(&dir, process.as_deref(), *lines)?,
    }
    Ok(Exit::Success)
}

fn setup() -> Result<(), Complaint> {
    let installed = gpufleet_local::setup::install(&[Part::Services, Part::Compiler], waiting::steps(false).as_ref())
        .map_err(|error| Complaint::bad_input(chain(&error)))?;
    if installed.is_empty() {
        output::note("nothing is missing");
    }
    Ok(())
}

fn complaint(error: LocalError) -> Complaint {
    let complaint = Complaint::new(exit(&error), chain(&error));
    match error {
        LocalError::Ended { .. } | LocalError::NotReady { .. } => {
            complaint.hint("`gpufleet local status` lists the processes and their logs")
        }
        LocalError::File { .. } => {
            complaint.hint("check that the fleet's folder can be written, or choose another with --dir")
        }
        _ => complaint,
    }
}

/// The exit code. It tells whether the user can fix the error with other options or by installing a program.
const fn exit(error: &LocalError) -> Exit {
    match error {
        LocalError::ProgramMissing { .. }
        | LocalError::Name { .. }
        | LocalError::Barrier { .. }
        | LocalError::PathTooLong { .. }
        | LocalError::NoHome => Exit::BadInput,
        LocalError::File { .. }
        | LocalError::Spawn { .. }
        | LocalError::Ended { .. }
        | LocalError::NotReady { .. }
        | LocalError::WillNotDie { .. }
        | LocalError::Command { .. }
        | LocalError::Control { .. }
        | LocalError::Locked { .. }
        | LocalError::NoPort { .. }
        | LocalError::PortTaken { .. } => Exit::Internal,
    }
}

fn describe(status: &Status) -> String {
    let mut text = match status.state {
        FleetState::Down => return format!("no fleet is running in {}\n", status.dir.display()),
        FleetState::Up => format!("a fleet is running in {}\n", status.dir.display()),
        FleetState::Degraded => {
            format!("part of the fleet in {} is running; `gpufleet local up` starts the rest\n", status.dir.display())
        }
    };
    let columns = [
        Column::Left("PROCESS"),
        Column::Right("PID"),
        Column::Left("STATE"),
        Column::Right("UP"),
        Column::Left("LOG"),
    ];
    text.push_str(&table::render(
        &columns,
        status.processes.iter().map(|process| {
            let up = process.seconds.map(std::time::Duration::from_secs).map(humantime::format_duration);
            vec![
                process.name.clone(),
                process.pid.to_string(),
                if process.alive { "running" } else { "dead" }.to_owned(),
                up.map_or_else(|| "-".to_owned(), |up| up.to_string()),
                process.log.display().to_string(),
            ]
        }),
    ));
    if let Some(url) = &status.console {
        text.push_str(&format!("the console is at {url}\n"));
    }
    text
}

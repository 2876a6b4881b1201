//! `gpufleet local`: a whole fleet on this machine.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use gpufleet_local::{Cuda, LocalError, QueueKind, Status, UpOptions, persistent::FleetState};

use super::{
    complaint::{Complaint, chain},
    connection, environment,
    exit::Exit,
    options::Format,
    output,
    table::{self, Column},
    waiting,
};

/// Start, stop and look at a whole fleet on this machine
///
/// A private RabbitMQ and Postgres on free loopback ports, a folder for large arrays, the ledger and workers. While it runs, the other
/// commands use it unless they are told otherwise.
#[derive(Debug, Args)]
pub struct Options {
    #[command(subcommand)]
    action: Action,
    /// Where it keeps its data and logs
    #[arg(long, global = true, value_name = "FOLDER", env = environment::LOCAL_DIR, hide_env_values = true)]
    dir: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Start what does not run yet; what runs goes on as it was started
    Up {
        /// How many workers there shall be [default: as many as there were, at first 1]
        #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
        workers: Option<u32>,
        /// A pool that the workers serve. May be given several times [default: default]
        #[arg(long)]
        pool: Vec<gpufleet::schema::PoolName>,
        /// What the workers compute on: auto (a GPU where there is one, else the emulated device), system (the NVIDIA driver),
        /// emulated, or the path of a CUDA driver library [default: auto]
        #[arg(long, value_name = "DRIVER")]
        cuda: Option<Cuda>,
        /// What task queues are made of: quorum or classic. Whoever submits has to say the same [default: quorum]
        #[arg(long, value_name = "KIND", env = environment::QUEUE_KIND)]
        queue_kind: Option<gpufleet::QueueKind>,
    },
    /// Stop it; data and logs stay
    Down,
    /// Tell what runs
    Status {
        #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
        output: Format,
    },
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    tokio::select! {
        exit = perform(options) => exit,
        () = waiting::interrupt() => Err(Complaint::new(Exit::Interrupted, "interrupted; what runs by now goes on")
            .hint("`gpufleet local up` starts the rest, `gpufleet local down` stops everything")),
    }
}

/// Cancelling leaves the fleet in part, which `up` and `down` can both work with.
async fn perform(options: &Options) -> Result<Exit, Complaint> {
    let dir = options.dir.clone().map_or_else(connection::local_dir, Ok).map_err(complaint)?;
    match &options.action {
        Action::Up { workers, pool, cuda, queue_kind } => {
            let up = UpOptions {
                dir: dir.clone(),
                workers: *workers,
                pools: pool.iter().map(ToString::to_string).collect(),
                cuda: cuda.clone(),
                queue_kind: queue_kind.map(|kind| match kind {
                    gpufleet::QueueKind::Quorum => QueueKind::Quorum,
                    gpufleet::QueueKind::Classic => QueueKind::Classic,
                }),
            };
            let status = gpufleet_local::up(&up, waiting::steps(false).as_ref()).await.map_err(complaint)?;
            output::emit(&describe(&status))?;
            let differences = gpufleet_local::differences(&up).map_err(complaint)?;
            differences.iter().for_each(|difference| output::warn(difference));
            if !differences.is_empty() {
                output::note(
                    "what runs goes on as it was started; to start it anew: gpufleet local down, then up again",
                );
            }
            if connection::local_dir().ok().as_ref() != Some(&dir) {
                output::note(&format!(
                    "for the other commands to use it: export {}={}",
                    environment::LOCAL_DIR,
                    status.dir.display()
                ));
            }
        }
        Action::Down => {
            if gpufleet_local::status(&dir).map_err(complaint)?.state == FleetState::Down {
                output::note(&format!("no fleet runs in {}", dir.display()));
            }
            let forced = gpufleet_local::down(&dir, waiting::steps(false).as_ref()).await.map_err(complaint)?;
            for name in forced {
                output::warn(&format!("{name} did not stop by itself and was killed"));
            }
        }
        Action::Status { output: format } => {
            let status = gpufleet_local::status(&dir).map_err(complaint)?;
            match format {
                Format::Table => output::emit(&describe(&status))?,
                Format::Json => output::emit_json(&status)?,
            }
        }
    }
    Ok(Exit::Success)
}

fn complaint(error: LocalError) -> Complaint {
    let complaint = Complaint::new(exit(&error), format!("failed to {}", chain(&error)));
    match error {
        LocalError::Ended { .. } | LocalError::NotReady { .. } => {
            complaint.hint("`gpufleet local status` shows what runs and where the logs lie")
        }
        _ => complaint,
    }
}

/// Whether the person who reads it can mend it by giving something else, or by installing what is missing.
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
        FleetState::Down => return format!("no fleet runs in {}\n", status.dir.display()),
        FleetState::Up => format!("a fleet runs in {}\n", status.dir.display()),
        FleetState::Degraded => {
            format!("a fleet in {} runs in part; `gpufleet local up` mends it\n", status.dir.display())
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
    text
}

//! `gpufleet workers`: lists the workers and their devices, and drains a worker.

use std::time::Duration;

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use gpufleet::schema::{DeviceProgram, WorkerName};
use gpufleet_ledger::{DeviceRow, ListedWorker, WorkerFilter, WorkerState, age};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    history::distinguishing_end,
    json,
    options::{BrokerOptions, Format, LedgerOptions, OutputOptions},
    output, quantity,
    source::{Source, SourceOptions},
    table::{Column, fit},
    waiting::{self, Spinner},
};

/// List workers and their devices, or drain a worker
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true, after_long_help = json::WORKERS)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a worker take no new jobs, finish its running jobs, and exit
    ///
    /// After its grace period (`gpufleet-worker run --grace`, by default 30s), the worker kills the jobs that still run and requeues them, as
    /// after SIGTERM. A SIGTERM during the grace period does not shorten it; a second one ends it.
    Drain(DrainOptions),
}

#[derive(Debug, Args)]
struct ListOptions {
    /// Include workers that have left or have been silent for three days
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    source: SourceOptions,
}

#[derive(Debug, Args)]
struct DrainOptions {
    /// Name of the worker, as `gpufleet workers` lists it
    name: WorkerName,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    ledger: LedgerOptions,
}

/// A killed worker never reports that it has left. The list omits workers that have been silent for longer than a weekend.
const SILENCE_SHOWN: Duration = Duration::from_secs(3 * 24 * 3600);

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        None => list(&options.list).await,
        Some(Command::Drain(options)) => drain(options).await,
    }
}

async fn list(options: &ListOptions) -> Result<Exit, Complaint> {
    let heard_within = (!options.all).then_some(SILENCE_SHOWN);
    let filter = WorkerFilter { heard_within, ..WorkerFilter::default() };
    let work = Source::ask(&options.source, async |source| source.workers(&filter).await);
    let workers = Spinner::new("reading the workers").around(work).await?;
    let now = Utc::now();
    let listed: Vec<ListedWorker> = workers.into_iter().map(ListedWorker::from).collect();
    match options.output.format {
        Format::Json => output::emit_json(&listed)?,
        Format::Table if listed.is_empty() => {
            output::note(if options.all {
                "no worker has ever reported"
            } else {
                "no workers; --all includes those that have left"
            });
        }
        Format::Table => output::emit(&table(&listed, now, output::stdout_width()))?,
    }
    if listed.len() >= WorkerFilter::LIMIT_MAX as usize {
        output::note(&format!("there may be more; these are the {} most recently heard from", listed.len()));
    }
    Ok(Exit::Success)
}

async fn drain(options: &DrainOptions) -> Result<Exit, Complaint> {
    let name = &options.name;
    let work = async {
        let known = look_up(options).await;
        if known == Known::Never {
            return Err(Complaint::new(Exit::NotFound, format!("no worker {:?} has ever reported", name.as_str()))
                .hint("`gpufleet workers` lists the workers; a new one appears within a second"));
        }
        connection::order(&options.broker, async |fleet| fleet.drain_worker(name.clone(), connection::caller()).await)
            .await?;
        Ok(known)
    };
    let work = Spinner::new("asking the worker to drain").around(work);
    let message = "interrupted before the broker confirmed the order; the worker may or may not drain";
    let known = waiting::unless_interrupted(work, message).await?;
    let rest = match known {
        Known::HasLeft => ", but according to the ledger it has left",
        Known::Unavailable => {
            "; the ledger could not confirm that it exists. `gpufleet workers --all` shows when it has left"
        }
        Known::Serves | Known::Never => "; `gpufleet workers --all` shows when it has left",
    };
    output::emit(&format!("asked worker {name} to drain{rest}\n"))?;
    Ok(Exit::Success)
}

/// The ledger's knowledge of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Serves,
    HasLeft,
    /// No worker of this name has ever reported.
    Never,
    /// The ledger could not be queried. The order needs only the broker.
    Unavailable,
}

async fn look_up(options: &DrainOptions) -> Known {
    // If the options name a broker and no database, the local fleet's ledger would belong to another fleet.
    if options.broker.amqp_url.is_some() && options.ledger.database_url.is_none() {
        return Known::Unavailable;
    }
    let Ok(ledger) = connection::ledger(&options.ledger).await else { return Known::Unavailable };
    let named = WorkerFilter { name: Some(options.name.to_string()), ..WorkerFilter::default() };
    let workers = ledger.workers(&named).await;
    ledger.close().await;
    match workers.as_deref() {
        Ok([]) => Known::Never,
        Ok([worker, ..]) if worker.has_left => Known::HasLeft,
        Ok(_) => Known::Serves,
        Err(_) => Known::Unavailable,
    }
}

/// Marks an estimated value.
const ESTIMATED: char = '*';
const ESTIMATED_MEANS: &str =
    "\n* estimated from this worker's own jobs: the memory that they requested, the time that they used the device\n";
/// The ledger's name for a utilization that the worker itself reported.
const BY_WORKER: &str = "worker";
/// From DEVICE to POWER.
const DEVICE_COLUMNS: usize = 6;

/// A line for each device; the first line of a worker has the columns of the worker. The reasons for devices out of service follow.
fn table(workers: &[ListedWorker], now: DateTime<Utc>, width: Option<usize>) -> String {
    const COLUMNS: [Column; 12] = [
        Column::Left("WORKER"),
        Column::Left("STATE"),
        Column::Right("RUNNING"),
        Column::Left("POOLS"),
        Column::Left("DEVICE"),
        Column::Right("JOBS"),
        Column::Right("MEMORY"),
        Column::Right("BUSY"),
        Column::Right("TEMP"),
        Column::Right("POWER"),
        Column::Left("HOST"),
        Column::Right("HEARD"),
    ];
    let mut rows: Vec<Vec<String>> = Vec::new();
    for ListedWorker { state, worker } in workers {
        let running = worker.jobs_running.to_string();
        let own = [worker.worker.clone(), state.word().to_owned(), running, worker.pools.join(" ")];
        let end = [worker.host.clone(), age(now - worker.heard_at)];
        let mut devices = worker.devices.iter().map(device_cells);
        let first = devices.next().unwrap_or_else(|| vec![String::new(); DEVICE_COLUMNS]);
        rows.push([own.to_vec(), first, end.to_vec()].concat());
        rows.extend(devices.map(|cells| [vec![String::new(); 4], cells, vec![String::new(); 2]].concat()));
    }
    let table = fit(&COLUMNS, &rows, width, &["HOST", "POWER", "TEMP", "POOLS", "MEMORY", "BUSY", "JOBS", "DEVICE"]);
    let note = if table.contains(ESTIMATED) { ESTIMATED_MEANS } else { "" };
    table + note + &programs(workers) + &complaints(workers)
}

/// What the workers offer for host programs, and the programs that have a device.
fn programs(workers: &[ListedWorker]) -> String {
    let mut text = String::new();
    for ListedWorker { state, worker } in workers {
        let offered = worker.programs.as_ref().filter(|_| *state != WorkerState::Left);
        for of_pool in offered.iter().flat_map(|programs| &programs.pools) {
            let places: Vec<&str> = of_pool.places().collect();
            text.push_str(&format!(
                "{} takes {} host program{} of pool {} ({} running, {} waiting for a device) in {}\n",
                worker.worker,
                of_pool.taken_max,
                if of_pool.taken_max == 1 { "" } else { "s" },
                of_pool.pool,
                of_pool.running,
                of_pool.waiting,
                places.join(", "),
            ));
        }
        for device in &worker.devices {
            if let Some(DeviceProgram { job_id, label }) = program(device) {
                text.push_str(&format!("{}, device {} runs {label}, job {job_id}\n", worker.worker, device.device));
            }
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// The host program that has the device.
fn program(device: &DeviceRow) -> Option<&DeviceProgram> {
    device.pools.iter().find_map(|pool| pool.program.as_ref())
}

fn complaints(workers: &[ListedWorker]) -> String {
    let mut text = String::new();
    for ListedWorker { worker, .. } in workers {
        for device in &worker.devices {
            if let Some(reason) = &device.out_of_service {
                let reason = reason.lines().next().unwrap_or_default();
                text.push_str(&format!("{}, device {} is out of service: {reason}\n", worker.worker, device.device));
            }
        }
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// Its [`DEVICE_COLUMNS`]. The name of an emulated device says that it is emulated.
pub fn device_cells(device: &DeviceRow) -> Vec<String> {
    fn shown<T>(value: Option<T>, text: impl FnOnce(T) -> String) -> String {
        value.map_or_else(|| "-".to_owned(), text)
    }
    let sick = if device.out_of_service.is_some() { " (out of service)" } else { "" };
    let program = program(device)
        .map(|program| format!(" (program {})", distinguishing_end(&program.job_id.to_string())))
        .unwrap_or_default();
    // If no driver counts the memory in use, the table shows what the worker's jobs declared.
    let declared = device.jobs_running.map(|_| device.pools.iter().map(|pool| pool.memory_bytes).sum());
    let all = quantity::bytes(device.memory_bytes);
    let memory = match (device.memory_used_bytes, declared) {
        (Some(used), _) => format!("{} of {all}", quantity::bytes(used)),
        (None, Some(declared)) => format!("{} of {all}{ESTIMATED}", quantity::bytes(declared)),
        (None, None) => all,
    };
    let by_worker = device.utilization_by.as_deref() == Some(BY_WORKER);
    let mark = if by_worker { ESTIMATED.to_string() } else { String::new() };
    vec![
        format!("{}: {}{program}{sick}", device.device, device.name),
        shown(device.jobs_running, |jobs| jobs.to_string()),
        memory,
        shown(device.utilization_percent, |percent| format!("{percent} %{mark}")),
        shown(device.temperature_celsius, |degrees| format!("{degrees} °C")),
        shown(device.power_milliwatts, |milliwatts| format!("{} W", milliwatts / 1000)),
    ]
}

#[cfg(test)]
pub mod tests {
    use chrono::Duration;
    use gpufleet::schema::{DeviceSessions, PoolPrograms, PoolSessions, PoolUse, ProgramsSeen, SessionsSeen};
    use gpufleet_ledger::WorkerRow;

    use super::*;

    pub fn worker(name: &str, seconds_ago: i64, has_left: bool) -> WorkerRow {
        let seen = at() - Duration::seconds(seconds_ago);
        WorkerRow {
            worker: name.to_owned(),
            host: "rack-7".to_owned(),
            pid: 42,
            revision: "0.1.0".to_owned(),
            pools: vec!["default".to_owned(), "team-a".to_owned()],
            jobs_running: 3,
            first_seen_at: seen,
            last_seen_at: seen,
            heard_at: seen,
            is_silent: !has_left && seconds_ago > 30,
            has_left,
            sessions: None,
            programs: None,
            devices: vec![device_row(0)],
        }
    }

    fn device_row(number: u32) -> DeviceRow {
        DeviceRow {
            device: number,
            uuid: "GPU-1".to_owned(),
            name: "NVIDIA H200".to_owned(),
            emulated: false,
            compute_capability: [9, 0],
            memory_bytes: 1 << 37,
            driver_version: 12080,
            out_of_service: None,
            jobs_running: Some(3),
            pools: vec![PoolUse {
                pool: "default".parse().unwrap(),
                jobs_running: 3,
                memory_bytes: 3 << 30,
                weight: Some(1),
                guaranteed_bytes: Some(0),
                sessions: None,
                program: None,
            }],
            memory_used_bytes: None,
            utilization_percent: Some(41),
            utilization_by: Some("worker".to_owned()),
            temperature_celsius: None,
            power_milliwatts: None,
        }
    }

    fn at() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    #[test]
    fn a_worker_is_up_silent_or_has_left() {
        assert_eq!(worker("a", 30, false).state(), WorkerState::Up);
        assert_eq!(worker("a", 31, false).state(), WorkerState::Silent);
        assert_eq!(worker("a", 3000, true).state(), WorkerState::Left);
    }

    #[test]
    fn the_table_of_workers() {
        let mut workers = [worker("rack-7-1", 4, false), worker("rack-7-2", 90, false), worker("old", 7200, true)];
        let well = DeviceRow {
            memory_used_bytes: Some(12 << 30),
            utilization_by: Some("nvml".to_owned()),
            temperature_celsius: Some(55),
            power_milliwatts: Some(350_500),
            ..device_row(1)
        };
        let sick = DeviceRow {
            out_of_service: Some("the probe kernel failed\nand more".to_owned()),
            jobs_running: None,
            utilization_percent: None,
            ..device_row(2)
        };
        workers[0].devices.extend([well, sick]);
        workers[2].devices.clear();
        let listed = workers.map(ListedWorker::from);
        insta::assert_snapshot!(table(&listed, at(), None));
        let narrow = table(&listed, at(), Some(40));
        let lines = narrow.lines().take_while(|line| !line.is_empty());
        assert!(lines.map(|line| line.chars().count()).all(|width| width <= 40), "{narrow}");
    }

    /// A worker whose device has a host program.
    pub fn with_program(name: &str) -> WorkerRow {
        let mut worker = worker(name, 1, false);
        let pool = || "default".parse().unwrap();
        let environments = vec!["science".to_owned(), "torch".to_owned()];
        let of_pool =
            PoolPrograms { pool: pool(), taken_max: 2, running: 1, waiting: 1, environments, images: Vec::new() };
        worker.programs = Some(ProgramsSeen { pools: vec![of_pool] });
        let job_id = "01990f3e-0000-7000-8000-000000000008".parse().unwrap();
        worker.devices[0].pools[0].program = Some(DeviceProgram { job_id, label: "python train.py".to_owned() });
        worker
    }

    #[test]
    fn host_programs_are_named_with_their_devices_below_the_table() {
        let text = table(&[ListedWorker::from(with_program("rack-7-1"))], at(), None);
        assert!(text.contains("0: NVIDIA H200 (program 000000000008)"), "{text}");
        let below = "
rack-7-1 takes 2 host programs of pool default (1 running, 1 waiting for a device) in science, torch
rack-7-1, device 0 runs python train.py, job 01990f3e-0000-7000-8000-000000000008
";
        assert!(text.ends_with(below), "{text}");
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        let mut worker = with_program("a");
        let pools = vec![PoolSessions { pool: "default".parse().unwrap(), open_max: 4 }];
        worker.sessions = Some(SessionsSeen { hosts: vec!["gpu-7".to_owned()], ports: [9480, 9499], pools });
        worker.devices[0].pools[0].sessions = Some(DeviceSessions::default());
        json::check(json::WORKERS, &ListedWorker::from(worker));
    }
}

//! `gpufleet workers`: who serves the fleet, and how to make one leave.

use chrono::{DateTime, Duration, Utc};
use clap::{Args, Subcommand};
use gpufleet::{Fleet, schema::WorkerName};
use gpufleet_ledger::{DeviceRow, WorkerRow};
use serde::Serialize;

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    history::age,
    options::{BrokerOptions, Format, LedgerOptions},
    output, quantity,
    table::{Column, fit},
    waiting::{self, Spinner},
};

/// List the workers that have reported, or make one leave
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    list: ListOptions,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Tell a worker to take no more jobs, finish what runs, and leave
    Drain(DrainOptions),
}

#[derive(Debug, Args)]
struct ListOptions {
    /// Also workers that have left
    #[arg(long)]
    all: bool,
    #[arg(short, long, value_enum, default_value_t = Format::Table, value_name = "FORMAT")]
    output: Format,
    #[command(flatten)]
    ledger: LedgerOptions,
}

#[derive(Debug, Args)]
struct DrainOptions {
    /// The worker's name, as the list shows it
    name: WorkerName,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// Three heartbeats of ten seconds.
const SILENT_AFTER: Duration = Duration::seconds(30);
/// Closing takes milliseconds unless the broker is away.
const CLOSE_DEADLINE: std::time::Duration = std::time::Duration::from_secs(5);

/// What a worker's heartbeats say of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Up,
    /// It should have been heard of. Whether it still works is for the broker to find out.
    Silent,
    Left,
}

#[derive(Debug, Serialize)]
struct Listed<'a> {
    state: State,
    #[serde(flatten)]
    worker: &'a WorkerRow,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        None => list(&options.list).await,
        Some(Command::Drain(options)) => drain(options).await,
    }
}

async fn list(options: &ListOptions) -> Result<Exit, Complaint> {
    let work = async {
        let ledger = connection::ledger(&options.ledger).await?;
        let workers = ledger.workers().await.map_err(|error| connection::ledger_complaint(&error));
        ledger.close().await;
        workers
    };
    let workers = Spinner::new("reading the workers").around(work).await?;
    let now = Utc::now();
    let listed: Vec<Listed> = workers
        .iter()
        .map(|worker| Listed { state: state(worker, now), worker })
        .filter(|listed| options.all || listed.state != State::Left)
        .collect();
    match options.output {
        Format::Json => output::emit_json(&listed)?,
        Format::Table if listed.is_empty() => {
            let more =
                if workers.is_empty() { "no worker has ever reported" } else { "all have left; --all lists them" };
            output::note(&format!("no workers: {more}"));
        }
        Format::Table => output::emit(&table(&listed, now, output::stdout_width()))?,
    }
    Ok(Exit::Success)
}

async fn drain(options: &DrainOptions) -> Result<Exit, Complaint> {
    let work = async {
        let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
        let ordered = fleet.drain_worker(options.name.clone(), connection::caller()).await;
        // What is confirmed is on disk, whether or not the goodbye arrives.
        let _closed_in_time = tokio::time::timeout(CLOSE_DEADLINE, fleet.close()).await;
        ordered.map_err(|error| Complaint::new(Exit::Broker, connection::sentence(&chain(&error))))
    };
    tokio::select! {
        done = Spinner::new("telling the worker").around(work) => done?,
        () = waiting::interrupt() => {
            return Err(Complaint::new(Exit::Interrupted, "interrupted: it is open whether the worker was told"));
        }
    }
    output::emit(&format!("asked worker {} to drain\n", options.name))?;
    Ok(Exit::Success)
}

fn state(worker: &WorkerRow, now: DateTime<Utc>) -> State {
    match worker.has_left {
        true => State::Left,
        false if now - worker.last_seen_at > SILENT_AFTER => State::Silent,
        false => State::Up,
    }
}

fn table(workers: &[Listed], now: DateTime<Utc>, width: Option<usize>) -> String {
    const COLUMNS: [Column; 7] = [
        Column::Left("WORKER"),
        Column::Left("STATE"),
        Column::Right("RUNNING"),
        Column::Left("POOLS"),
        Column::Left("DEVICES"),
        Column::Left("HOST"),
        Column::Right("HEARD"),
    ];
    let rows: Vec<Vec<String>> = workers
        .iter()
        .map(|Listed { state, worker }| {
            let word = match state {
                State::Up => "up",
                State::Silent => "silent",
                State::Left => "left",
            };
            vec![
                worker.worker.clone(),
                word.to_owned(),
                worker.jobs_running.to_string(),
                worker.pools.join(" "),
                worker.devices.iter().map(device).collect::<Vec<_>>().join(", "),
                worker.host.clone(),
                age(now - worker.last_seen_at),
            ]
        })
        .collect();
    fit(&COLUMNS, &rows, width, &["HOST", "POOLS", "DEVICES"])
}

/// The emulated device has it in its name.
fn device(device: &DeviceRow) -> String {
    format!("{}: {}, {}", device.device, device.name, quantity::bytes(device.memory_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worker(name: &str, seconds_ago: i64, has_left: bool) -> WorkerRow {
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
            has_left,
            devices: vec![DeviceRow {
                device: 0,
                uuid: "GPU-1".to_owned(),
                name: "NVIDIA H200".to_owned(),
                emulated: false,
                compute_capability: [9, 0],
                memory_bytes: 1 << 37,
                driver_version: 12080,
            }],
        }
    }

    fn at() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    #[test]
    fn a_worker_is_up_until_three_beats_are_missing() {
        assert_eq!(state(&worker("a", 30, false), at()), State::Up);
        assert_eq!(state(&worker("a", 31, false), at()), State::Silent);
        assert_eq!(state(&worker("a", 3000, true), at()), State::Left);
    }

    #[test]
    fn the_table_of_workers() {
        let workers = [worker("rack-7-1", 4, false), worker("rack-7-2", 90, false), worker("old", 7200, true)];
        let listed: Vec<Listed> = workers.iter().map(|worker| Listed { state: state(worker, at()), worker }).collect();
        insta::assert_snapshot!(table(&listed, at(), None));
        assert!(table(&listed, at(), Some(40)).lines().all(|line| line.chars().count() <= 40));
    }
}

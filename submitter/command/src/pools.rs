//! `gpufleet pools`: who waits, who serves, and who got how much of the devices.

use chrono::{DateTime, Utc};
use clap::Args;
use gpufleet::{Fleet, PoolDepth, schema::PoolName};
use gpufleet_ledger::{Dimension, Pool, StatisticsFilter, WorkerFilter, WorkerRow};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    json,
    options::{BrokerOptions, Format, OutputOptions},
    output, quantity,
    source::{Source, SourceOptions},
    table::{self, Column},
    time,
    waiting::Spinner,
};

/// Show the pools: waiting messages, workers, and shares of the devices
///
/// WAITING comes from the broker, which counts messages; one message may have many jobs. WORKERS are those that send heartbeats, or 0 if the
/// broker says that none takes messages. DUE is the pool's share of the device
/// time by weight, while all pools have work. GOT is its share of the time that all pools were charged. BORROWED is the memory that the
/// pool uses beyond its guarantee; other pools leave it unused. SESSIONS, if a pool takes sessions of `gpufleet run`, are the open ones of
/// those that may be open, and the device memory that they take of what they may take. PROGRAMS, if a pool takes host programs
/// (`gpufleet run --on-worker`), are those that run of those that its workers take, and those that wait for a device.
#[derive(Debug, Args)]
#[command(after_long_help = json::POOLS)]
pub struct Options {
    /// Count the device time since then: how long ago (2h, 30d), or a time, which is local without a zone. It is rounded down to the hour
    #[arg(long, value_name = "TIME", value_parser = time::since, default_value = "1h")]
    since: DateTime<Utc>,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    source: SourceOptions,
}

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    let work = async {
        let mut pools = Source::ask(&options.source, async |source| read(source, options.since).await).await?;
        let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
        ask(&fleet, &mut pools).await?;
        let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
        Ok::<_, Complaint>(pools)
    };
    let pools = Spinner::new("reading the pools").around(work).await?;
    match options.output.format {
        Format::Json => output::emit_json(&pools)?,
        Format::Table if pools.is_empty() => output::note("no pools: no worker serves one, and no job has ended"),
        Format::Table => output::emit(&render(&pools, output::stdout_width()))?,
    }
    Ok(Exit::Success)
}

/// The pools that workers serve now, and those of jobs that ended since a time.
pub async fn read(source: &Source, since: DateTime<Utc>) -> Result<Vec<Pool>, Complaint> {
    let workers = source.workers(&WorkerFilter::default()).await?;
    among(source, &workers, since).await
}

/// The pools, with workers that were read already.
pub async fn among(source: &Source, workers: &[WorkerRow], since: DateTime<Utc>) -> Result<Vec<Pool>, Complaint> {
    let filter = StatisticsFilter { by: Some(Dimension::Pool), since, pool: None };
    Ok(Pool::all(workers, &source.statistics(&filter).await?))
}

/// Asks the broker for the depth of each pool.
pub async fn ask(fleet: &Fleet, pools: &mut [Pool]) -> Result<(), Complaint> {
    for pool in pools {
        let Ok(name) = pool.pool.parse::<PoolName>() else { continue };
        let depth = depth(fleet, &name).await?;
        (pool.messages, pool.consumers) = (Some(depth.messages), Some(depth.consumers));
    }
    Ok(())
}

pub async fn depth(fleet: &Fleet, pool: &PoolName) -> Result<PoolDepth, Complaint> {
    fleet.pool_depth(pool).await.map_err(|error| Complaint::new(Exit::Broker, super::complaint::chain(&error)))
}

/// The sessions that wait in a pool.
pub async fn session_depth(fleet: &Fleet, pool: &PoolName) -> Result<PoolDepth, Complaint> {
    fleet.session_depth(pool).await.map_err(|error| Complaint::new(Exit::Broker, super::complaint::chain(&error)))
}

/// The host programs that wait in a pool.
pub async fn program_depth(fleet: &Fleet, pool: &PoolName) -> Result<PoolDepth, Complaint> {
    fleet.program_depth(pool).await.map_err(|error| Complaint::new(Exit::Broker, super::complaint::chain(&error)))
}

const COLUMNS: [Column; 9] = [
    Column::Left("POOL"),
    Column::Right("WAITING"),
    Column::Right("WORKERS"),
    Column::Right("RUNNING"),
    Column::Right("MEMORY"),
    Column::Right("BORROWED"),
    Column::Right("DUE"),
    Column::Right("GOT"),
    Column::Right("DEVICE TIME"),
];
const SESSIONS: &str = "SESSIONS";
const PROGRAMS: &str = "PROGRAMS";

/// The columns of a table, and what each pool has in them.
pub struct Cells {
    pub columns: Vec<Column>,
    pub rows: Vec<Vec<String>>,
}

/// The cell of a pool in a column that not every table has; none if the pool has nothing to show there.
type OptionalCell = fn(&Pool) -> Option<String>;

const OPTIONAL: [(Column, OptionalCell); 2] =
    [(Column::Right(SESSIONS), sessions), (Column::Right(PROGRAMS), programs)];

/// The columns of sessions and of host programs are missing if no pool takes any.
pub fn cells(pools: &[Pool]) -> Cells {
    let shown = OPTIONAL.into_iter().filter(|(_, cell)| pools.iter().any(|pool| cell(pool).is_some()));
    let (columns, optional): (Vec<Column>, Vec<OptionalCell>) = shown.unzip();
    let row = |pool: &Pool| {
        let optional = optional.iter().map(|cell| cell(pool).unwrap_or_else(|| "-".to_owned()));
        cells_of_all(pool).into_iter().chain(optional).collect()
    };
    Cells { columns: COLUMNS.into_iter().chain(columns).collect(), rows: pools.iter().map(row).collect() }
}

/// The cells of the columns that are always there.
fn cells_of_all(pool: &Pool) -> Vec<String> {
    fn shown<T: ToString>(value: Option<T>) -> String {
        value.map_or_else(|| "-".to_owned(), |value| value.to_string())
    }
    let percent = |percent: Option<f64>| shown(percent.map(|percent| format!("{percent:.0} %")));
    vec![
        pool.pool.clone(),
        shown(pool.messages),
        shown(workers(pool)),
        pool.jobs_running.to_string(),
        quantity::bytes(pool.memory_bytes),
        quantity::bytes(pool.borrowed_bytes),
        percent(pool.due_percent),
        percent(pool.got_percent),
        quantity::micros(pool.device_us),
    ]
}

/// None if the pool takes none.
fn sessions(pool: &Pool) -> Option<String> {
    let memory = quantity::bytes_of(pool.session_bytes, pool.session_bytes_max);
    (pool.sessions_max > 0).then(|| format!("{} of {}, {memory}", pool.sessions_open, pool.sessions_max))
}

/// None if the pool takes none.
fn programs(pool: &Pool) -> Option<String> {
    let waiting =
        if pool.programs_waiting > 0 { format!(", {} waiting", pool.programs_waiting) } else { String::new() };
    (pool.programs_max > 0).then(|| format!("{} of {}{waiting}", pool.programs_running, pool.programs_max))
}

/// The workers that serve a pool. A worker whose heartbeats are missing may serve it, but their number is then unknown.
fn workers(pool: &Pool) -> Option<u32> {
    match (pool.workers, pool.consumers) {
        (_, Some(0)) => Some(0),
        (0, Some(_)) => None,
        (workers, _) => Some(workers),
    }
}

fn render(pools: &[Pool], width: Option<usize>) -> String {
    let Cells { columns, rows } = cells(pools);
    table::fit(&columns, &rows, width, &["DEVICE TIME", "BORROWED", "MEMORY", SESSIONS, PROGRAMS, "WORKERS"])
}

#[cfg(test)]
pub mod tests {
    use gpufleet::schema::{DeviceSessions, PoolPrograms, PoolSessions, PoolUse, ProgramsSeen, SessionsSeen};
    use gpufleet_ledger::{DeviceRow, Statistics, StatisticsRow};

    use super::*;
    use crate::{statistics, workers};

    pub fn pools() -> Vec<Pool> {
        let of = |pool: &str, weight| PoolUse {
            pool: pool.parse().unwrap(),
            jobs_running: 2,
            memory_bytes: 1 << 30,
            weight,
            guaranteed_bytes: Some(1 << 28),
            sessions: None,
            program: None,
        };
        let mut worker = workers::tests::worker("w1", 1, false);
        worker.pools = vec!["team-a".to_owned(), "team-b".to_owned()];
        let device =
            DeviceRow { pools: vec![of("team-a", Some(3)), of("team-b", Some(1))], ..worker.devices[0].clone() };
        worker.devices = vec![device.clone(), DeviceRow { out_of_service: Some("sick".to_owned()), ..device }];
        let mut left = workers::tests::worker("w2", 1, true);
        left.pools = vec!["gone".to_owned()];
        let mut used = statistics::tests::statistics();
        let row = |value: &str, device_us| StatisticsRow {
            value: value.to_owned(),
            device_us,
            charged_us: device_us + 1_000,
            ..used.rows[0].clone()
        };
        used.rows = vec![row("team-a", 30_000_000), row("old", 10_000_000), row("", 0)];
        let mut pools = Pool::all(&[worker, left], &used);
        // The only worker has changed its prefetch twice, and still holds messages of its earlier subscriptions.
        (pools[1].messages, pools[1].consumers) = (Some(12), Some(3));
        pools
    }

    #[test]
    fn a_pool_has_its_due_share_and_what_it_got() {
        insta::assert_snapshot!(render(&pools(), None));
    }

    #[test]
    fn the_sessions_of_live_workers_and_their_memory_are_added_up() {
        let taking = |open, open_max, seconds_ago| {
            let mut worker = workers::tests::worker("w1", seconds_ago, false);
            let sessions = DeviceSessions {
                open,
                memory_bytes: u64::from(open) * (6 << 30),
                memory_bytes_max: 20 << 30,
                overhead_bytes: 640 << 20,
            };
            worker.pools = vec!["default".to_owned()];
            worker.devices[0].pools[0].sessions = Some(sessions);
            let pools = vec![PoolSessions { pool: "default".parse().unwrap(), open_max }];
            worker.sessions = Some(SessionsSeen { hosts: Vec::new(), ports: [0, 0], pools });
            worker
        };
        let nothing = Statistics { rows: Vec::new(), ..statistics::tests::statistics() };
        // The last one is silent.
        let pools = Pool::all(&[taking(2, 3, 1), taking(0, 1, 1), taking(1, 8, 100)], &nothing);
        insta::assert_snapshot!(render(&pools, None), @r"
        POOL     WAITING  WORKERS  RUNNING    MEMORY  BORROWED    DUE  GOT  DEVICE TIME                  SESSIONS
        default        -        2        6  6.00 GiB  6.00 GiB  100 %    -         0 µs  2 of 4, 12.0 of 40.0 GiB
        ");
        assert!(!render(&pools, Some(60)).contains(SESSIONS));
    }

    #[test]
    fn the_host_programs_of_live_workers_are_added_up() {
        let running = |running, waiting, environment: &str, seconds_ago| {
            let mut worker = workers::tests::worker("w1", seconds_ago, false);
            let (pool, environments) = ("default".parse().unwrap(), vec![environment.to_owned()]);
            let of_pool = PoolPrograms { pool, taken_max: 2, running, waiting, environments, images: Vec::new() };
            worker.pools = vec!["default".to_owned()];
            worker.programs = Some(ProgramsSeen { pools: vec![of_pool] });
            worker
        };
        let nothing = Statistics { rows: Vec::new(), ..statistics::tests::statistics() };
        // The last one is silent.
        let pools =
            Pool::all(&[running(1, 1, "torch", 1), running(1, 0, "science", 1), running(2, 0, "old", 100)], &nothing);
        assert_eq!(pools[0].environments, ["science", "torch"]);
        insta::assert_snapshot!(render(&pools, None), @r"
        POOL     WAITING  WORKERS  RUNNING    MEMORY  BORROWED    DUE  GOT  DEVICE TIME           PROGRAMS
        default        -        2        6  6.00 GiB  6.00 GiB  100 %    -         0 µs  2 of 4, 1 waiting
        ");
    }

    #[test]
    fn subscriptions_are_not_counted_as_workers() {
        let pool = |heartbeats, consumers| workers(&Pool { workers: heartbeats, consumers, ..Pool::default() });
        assert_eq!(pool(1, Some(3)), Some(1));
        assert_eq!(pool(2, None), Some(2));
        assert_eq!(pool(1, Some(0)), Some(0), "the worker has just died");
        assert_eq!(pool(0, Some(2)), None, "the recorder is behind");
    }

    #[test]
    fn the_help_names_every_field_of_the_json() {
        json::check(json::POOLS, &pools());
    }
}

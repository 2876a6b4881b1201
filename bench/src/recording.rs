//! `gpufleet-bench recording`: measures how many events per second are written into the ledger's tables, on one connection with and without
//! statistics, and on two. The events are in memory; no broker takes part.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::ensure;
use futures::future::try_join_all;
use gpufleet::schema::{
    AttemptFinished, AttemptState, Event, JobId, JobInfo, RanOn, Started, Submitted, Timings, WorkerName,
};
use gpufleet_ledger::{migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir};

use crate::{
    machine,
    stats::Spread,
    table::{spread, table},
};

const DATABASE: &str = "bench";
/// The shared buffers of the database server. With the smaller default of a test server, it would write index pages to disk again and
/// again.
const SHARED_BUFFERS: &str = "1GB";
/// The number of events in a batch: as many as a recorder takes at once while events wait.
const BATCH_EVENTS: usize = 4000;
/// The number of pools. This and the following constants are the numbers of values by which jobs are counted.
const POOLS: u32 = 3;
const KERNELS: u32 = 20;
const USERS: u32 = 10;
const WORKERS: u32 = 8;
const RUNS: u32 = 50;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Jobs per round and case
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=10_000_000))]
    jobs: u32,
    /// Rounds, in which the cases take turns
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    repeat: u32,
}

/// The events of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Life {
    /// The job ended within 100 ms, so its end event reports everything.
    Short,
    /// The job has separate events for its submission, start and end.
    Long,
}

/// The case that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    One,
    WithoutStatistics,
    Two,
}

/// The events per second of each round.
type Rates = BTreeMap<(Life, How), Vec<f64>>;

pub async fn run(options: &Options) -> anyhow::Result<()> {
    eprintln!("load average before: {:.2}", machine::load());
    let state = StateDir::ephemeral()?;
    let measured = measure(options, &state).await;
    state.close().await?;
    print(&measured?);
    Ok(())
}

async fn measure(options: &Options, state: &Arc<StateDir>) -> anyhow::Result<Rates> {
    let postgres = Postgres::start_with(state, SHARED_BUFFERS).await?;
    postgres.create_database(DATABASE).await?;
    let url = postgres.url(DATABASE);
    migrate(&url.parse()?).await?;
    let mut rates = Rates::new();
    for round in 0..=options.repeat {
        for life in [Life::Short, Life::Long] {
            for how in [How::One, How::WithoutStatistics, How::Two] {
                let rate = how.record(&url, &life.events(options.jobs)).await?;
                // The first round only fills caches and creates the partition of the month.
                if round > 0 {
                    rates.entry((life, how)).or_default().push(rate);
                }
            }
        }
        eprintln!("round {round} of {} done", options.repeat);
    }
    postgres.stop().await?;
    Ok(rates)
}

fn print(rates: &Rates) {
    let mut rows = table(["events of a job", "connections", "statistics", "events/s", "of one connection"]);
    for ((life, how), rounds) in rates {
        let one = &rates[&(*life, How::One)];
        let ratios = rounds.iter().zip(one).map(|(rate, one)| rate / one);
        rows.add_row([
            life.events_each().to_string(),
            how.connections().to_string(),
            if *how == How::WithoutStatistics { "off" } else { "on" }.to_owned(),
            spread(&Spread::of_rounds(rounds.iter().copied()), 0),
            spread(&Spread::of_rounds(ratios), 2),
        ]);
    }
    println!("{rows}");
}

impl How {
    const fn connections(self) -> usize {
        match self {
            Self::One | Self::WithoutStatistics => 1,
            Self::Two => 2,
        }
    }

    /// Records the events, and returns events per second. The time includes the merging of statistics.
    async fn record(self, url: &str, events: &[Event]) -> anyhow::Result<f64> {
        let mut stores = Vec::new();
        for _ in 0..self.connections() {
            let store = Store::connect(url.parse()?).await?;
            stores.push(if self == Self::WithoutStatistics { store.without_statistics() } else { store });
        }
        let begun = Instant::now();
        let batches: Vec<&[Event]> = events.chunks(BATCH_EVENTS).collect();
        let count = stores.len();
        let recording = stores.iter_mut().enumerate().map(async |(index, store)| {
            for batch in batches.iter().skip(index).step_by(count) {
                let rejected = store.record(batch).await?;
                ensure!(rejected.is_empty(), "the recorder rejected {} events", rejected.len());
            }
            anyhow::Ok(())
        });
        try_join_all(recording).await?;
        stores[0].upkeep().await?;
        let took: Duration = begun.elapsed();
        for store in stores {
            store.close().await;
        }
        Ok(events.len() as f64 / took.as_secs_f64())
    }
}

impl Life {
    const fn events_each(self) -> usize {
        match self {
            Self::Short => 1,
            Self::Long => 3,
        }
    }

    /// Returns the events of new jobs, in the order in which they happen.
    fn events(self, jobs: u32) -> Vec<Event> {
        let at_ms = i64::try_from(std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis())
            .expect("the clock is not far in the future");
        (0..jobs).flat_map(|number| self.of_job(&job(number, at_ms), number, at_ms)).collect()
    }

    fn of_job(self, job: &JobInfo, number: u32, at_ms: i64) -> Vec<Event> {
        match self {
            Self::Short => vec![finished(job, number, at_ms, true)],
            Self::Long => vec![
                Event::Submitted(Submitted { job: job.clone(), at_ms }),
                started(job, number, at_ms),
                finished(job, number, at_ms, false),
            ],
        }
    }
}

fn job(number: u32, at_ms: i64) -> JobInfo {
    JobInfo {
        pool: format!("pool-{}", number % POOLS).parse().expect("the name is valid"),
        name: Some(format!("step {}", number % RUNS)),
        labels: [("run".to_owned(), (number / 1000 % RUNS).to_string())].into(),
        input_bytes: 512,
        client: Some("client-1".to_owned()),
        submitted_ms: Some(at_ms),
        user_id: Some(format!("user-{}", number % USERS)),
        ..JobInfo::new(JobId::new(), format!("kernel-{}", number % KERNELS))
    }
}

fn ran_on(number: u32) -> RanOn {
    RanOn { worker: worker(number), device: 0, device_name: "NVIDIA H100 80GB HBM3".to_owned(), emulated: false }
}

fn worker(number: u32) -> WorkerName {
    format!("worker-{}", number % WORKERS).parse().expect("the name is valid")
}

fn started(job: &JobInfo, number: u32, at_ms: i64) -> Event {
    Event::Started(Started {
        job: job.clone(),
        attempt: 1,
        worker: worker(number),
        device: 0,
        ran_on: Some(ran_on(number)),
        at_ms,
    })
}

fn finished(job: &JobInfo, number: u32, at_ms: i64, described: bool) -> Event {
    Event::AttemptFinished(AttemptFinished {
        device: Some(0),
        ran_on: Some(ran_on(number)),
        started_ms: Some(at_ms),
        output_bytes: 16,
        timings: Timings { launches_us: vec![5], total_us: 50 + u64::from(number % 1000), ..Timings::default() },
        job: described.then(|| Box::new(job.clone())),
        ..AttemptFinished::new(job.job_id, 1, worker(number), at_ms, AttemptState::Succeeded)
    })
}

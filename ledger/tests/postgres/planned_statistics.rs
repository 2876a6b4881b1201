//! The number of buffers that statistics of the jobs in [`crate::plans`] read: of roll-ups alone, however many jobs there are. The overview
//! also counts jobs without an outcome.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use chrono::{TimeDelta, Utc};
use gpufleet_ledger::StatisticsFilter;

use crate::{database::Database, plans::Scene, statistics::spread_jobs};

/// The maximum number of buffers of one query. The row of a day, pool and value has a sketch of about 1 kB.
const BUFFERS_MAX: u64 = 1500;
/// The maximum number of buffers for each row of a series. The rows of a span and pool are not next to each other.
const SERIES_BUFFERS_PER_ROW_MAX: u64 = 2;
/// The number of pools in `jobs_of_two_years.sql`.
const POOLS: u64 = 3;
const REPEATED: usize = 9;
/// The stages of which statistics have percentiles, as columns of an attempt.
const STAGES: [&str; 5] = [
    "queue_us",
    "compile_us",
    "copy_in_us + copy_out_us",
    "(select sum(us) from unnest(launches_us) as us)",
    "total_us",
];

/// Returns the number of buffers of each query by its name. Prints how long the statistics of 30 days take, and how long the same
/// percentiles take from the attempts.
pub(crate) async fn measure(scene: &Scene) -> BTreeMap<String, u64> {
    scene.database.execute_slowly(&include_str!("rollups_of_jobs.sql").replace("SKETCH", &sketch().await)).await;
    scene.database.execute_slowly("vacuum analyze rollups").await;
    let mut buffers = BTreeMap::new();
    for by in [None, Some("pool"), Some("kernel"), Some("worker"), Some("label:team's")] {
        let name = format!("statistics of 30 days by {}", by.unwrap_or("nothing"));
        let by = by.map(|by| by.parse().unwrap());
        let filter = StatisticsFilter { by, since: Utc::now() - TimeDelta::days(30), pool: None };
        let (statistics, cost) = scene.cost(async |ledger| ledger.statistics(&filter).await.unwrap()).await;
        assert!(!statistics.rows.is_empty(), "{name}");
        assert!(cost.buffers <= BUFFERS_MAX && cost.partitions.is_empty(), "{name}: {cost:?}");
        println!("{name}: {:?}", median(async || _ = scene.ledger.statistics(&filter).await.unwrap()).await);
        buffers.insert(name, cost.buffers);
    }
    for days in [1, 30, 365] {
        let name = format!("series of {days} days");
        let since = Utc::now() - TimeDelta::days(days);
        let (series, cost) = scene.cost(async |ledger| ledger.series(since, None).await.unwrap()).await;
        assert!(!series.points.is_empty(), "{name}");
        let rows = POOLS * series.points.len() as u64;
        assert!(cost.buffers <= SERIES_BUFFERS_PER_ROW_MAX * rows && cost.partitions.is_empty(), "{name}: {cost:?}");
        buffers.insert(name, cost.buffers);
    }
    // Jobs without an outcome may be of any month.
    let (overview, cost) = scene.cost(async |ledger| ledger.overview().await.unwrap()).await;
    assert!(overview.windows.iter().any(|window| window.statistics.jobs > 0), "{overview:?}");
    assert!(cost.buffers <= BUFFERS_MAX, "overview: {cost:?}");
    buffers.insert("overview".to_owned(), cost.buffers);
    for (stages, columns) in
        [("the total time alone", &STAGES[4..]), ("the five stages of the statistics", &STAGES[..])]
    {
        let took = median(async || _ = scene.database.read_slowly(&percentiles(columns)).await).await;
        println!("percentile_cont over the attempts of 30 days, {stages}: {took:?}");
    }
    buffers
}

/// Returns a query of the attempts of 30 days for the percentiles of these stages.
fn percentiles(stages: &[&str]) -> String {
    let values = stages.iter().map(|stage| {
        format!("percentile_cont(array[0.5, 0.95, 0.99]) within group (order by {stage})::text, max({stage})::text")
    });
    let values: Vec<String> = values.collect();
    format!("select concat({}) from attempts where id_at >= now() - interval '30 days'", values.join(", "))
}

async fn median(mut question: impl AsyncFnMut()) -> Duration {
    let mut took = Vec::new();
    for _ in 0..REPEATED {
        let begun = Instant::now();
        question().await;
        took.push(begun.elapsed());
    }
    took.sort_unstable();
    took[REPEATED / 2]
}

/// Returns the sketches of a thousand jobs, as a recorder writes them.
async fn sketch() -> String {
    let (database, mut store, _) = Database::opened().await;
    assert_eq!(store.record(&spread_jobs(1000)).await.unwrap(), []);
    store.upkeep().await.unwrap();
    let stages = "select encode(stages, 'hex') from rollups where grain = 'day' and dimension = '' limit 1";
    database.execute(stages).await.trim().to_owned()
}

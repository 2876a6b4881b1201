//! Queries stay within their buffers, on jobs over 24 months. The plans are those that Postgres logs for the ledger's own statements, as
//! `EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)`. A query that loses its index reads whole partitions, and fails here.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use gpufleet_ledger::{DatabaseUrl, HistoryFilter, JobMatch, Ledger, PageKey, labels};
use gpufleet_schema::{JobId, JobState};
use serde_json::Value;

use crate::{database::Database, planned_statistics};

/// The variable for the numbers of jobs, separated by commas. The test measures each of them. `cargo xtask bench-ledger` sets millions.
const JOBS_VARIABLE: &str = "GPUFLEET_TEST_PLANNED_JOBS";
/// The default number of jobs. More jobs take longer than half a minute on two busy cores.
const JOBS_DEFAULT: &str = "240000";
/// The maximum number of buffers for a page of 50 jobs with their attempts.
const HIT_BUFFERS_MAX: u64 = 600;
const HIT_PARTITIONS_MAX: usize = 3;
/// The maximum number of buffers for each partition without a match: the descent into an index.
const MISS_BUFFERS_PER_PARTITION_MAX: u64 = 4;
/// The maximum growth of the buffers with the number of jobs, because more jobs may make indexes one level deeper.
const GROWTH_MAX: f64 = 1.3;
const LIMIT: u32 = 50;
/// The number of jobs before the 100th page.
const SKIPPED: u32 = 99 * LIMIT;

/// A filter, with a value that many jobs have or one that no job has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Filter {
    State,
    Kernel,
    Pool,
    User,
    Worker,
    Name,
    Label,
}

const FILTERS: [Filter; 7] =
    [Filter::State, Filter::Kernel, Filter::Pool, Filter::User, Filter::Worker, Filter::Name, Filter::Label];

/// The number of buffers and partitions that some statements read.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cost {
    pub(crate) buffers: u64,
    /// The partitions of jobs that have rows.
    pub(crate) partitions: BTreeSet<String>,
}

/// A ledger whose statements explain themselves in the server's log.
pub(crate) struct Scene {
    pub(crate) database: Database,
    pub(crate) ledger: Ledger,
}

impl Filter {
    fn apply(self, filter: &mut HistoryFilter, matches: bool) {
        let value = |text: &str| Some(if matches { text.to_owned() } else { "absent".to_owned() });
        match self {
            // Jobs of every kernel have failed, but none of the tested kernels has a dead-lettered job.
            Self::State => filter.states = vec![if matches { JobState::Failed } else { JobState::Dead }],
            Self::Kernel => filter.kernel = value("kernel-3"),
            Self::Pool => filter.pool = value("pool-1"),
            Self::User => filter.user_id = value("user-2"),
            Self::Worker => filter.worker = value("worker-3"),
            Self::Name => filter.name = value("name-4"),
            Self::Label => filter.labels = vec![("team's".to_owned(), value("1").expect("it is a text"))],
        }
    }

    /// Returns the filter as an SQL condition.
    const fn sql(self) -> &'static str {
        match self {
            Self::State => "state = 'failed'",
            Self::Kernel => "kernel = 'kernel-3'",
            Self::Pool => "pool = 'pool-1'",
            Self::User => "user_id = 'user-2'",
            Self::Worker => "worker = 'worker-3'",
            Self::Name => "name = 'name-4'",
            Self::Label => "labels ->> 'team''s' = '1'",
        }
    }
}

impl Scene {
    async fn with(count: u32) -> Self {
        let database = Database::fresh().await;
        let jobs = include_str!("jobs_of_two_years.sql").replace("COUNT", &count.to_string());
        database.execute_slowly(&jobs).await;
        labels::add(&database.url(), "team's").await.unwrap();
        database.execute_slowly("vacuum analyze").await;
        let settings = [
            ("session_preload_libraries", "auto_explain"),
            ("auto_explain.log_min_duration", "0"),
            ("auto_explain.log_analyze", "on"),
            ("auto_explain.log_timing", "off"),
            ("auto_explain.log_buffers", "on"),
            ("auto_explain.log_format", "json"),
        ];
        let settings: Vec<String> = settings.iter().map(|(name, value)| format!("options[{name}]={value}")).collect();
        let url: DatabaseUrl = format!("{}&{}", database.text_url(), settings.join("&")).parse().unwrap();
        let ledger = Ledger::connect(url).await.unwrap();
        Self { database, ledger }
    }

    /// Runs a question, and returns its answer and what its statements read.
    pub(crate) async fn cost<T>(&self, question: impl AsyncFnOnce(&Ledger) -> T) -> (T, Cost) {
        let logged = self.database.log().len();
        let answer = question(&self.ledger).await;
        let log = self.database.log();
        let mut cost = Cost::default();
        for plan in plans(&log[logged..]) {
            cost.add(&plan);
        }
        (answer, cost)
    }

    async fn page(&self, filter: &HistoryFilter) -> (usize, Cost) {
        let (page, cost) = self.cost(async |ledger| ledger.history(filter).await.unwrap()).await;
        (page.jobs.len(), cost)
    }

    /// Returns the key after the given number of jobs.
    async fn key(&self, condition: &str) -> PageKey {
        let sql = format!(
            "select (extract(epoch from id_at) * 1000000)::bigint || '.' || job_id from
             (select id_at, job_id from jobs where {condition} order by id_at desc, job_id desc limit {SKIPPED}) as skipped
             order by id_at, job_id limit 1"
        );
        self.database.execute(&sql).await.trim().parse().unwrap()
    }

    /// Returns the number of partitions that the planner may open.
    async fn partitions(&self) -> u64 {
        self.database
            .execute("select count(*) from pg_inherits where inhparent = 'jobs'::regclass")
            .await
            .trim()
            .parse()
            .unwrap()
    }

    async fn job(&self, ago: &str) -> JobId {
        let sql = format!("select job_id from jobs where id_at < now() - interval '{ago}' order by id_at desc limit 1");
        self.database.execute(&sql).await.trim().parse().unwrap()
    }
}

/// Returns the plans in a part of the log. Other lines of the log do not begin with a tab.
fn plans(log: &str) -> Vec<Value> {
    let entries = log.split("plan:\n").skip(1);
    let text = |entry: &str| -> String { entry.lines().take_while(|line| line.starts_with('\t')).collect() };
    entries.map(|entry| serde_json::from_str::<Value>(&text(entry)).unwrap()["Plan"].clone()).collect()
}

impl Cost {
    fn add(&mut self, plan: &Value) {
        let blocks = |name: &str| plan[name].as_u64().unwrap();
        self.buffers += blocks("Shared Hit Blocks") + blocks("Shared Read Blocks");
        self.visit(plan);
    }

    fn visit(&mut self, node: &Value) {
        let read = node["Actual Loops"].as_f64().unwrap_or(0.0) > 0.0;
        let relation = node["Relation Name"].as_str().filter(|name| name.starts_with("jobs_2") && read);
        // The partition of a month that has not begun has no rows.
        let this_month = Utc::now().format("jobs_%Y_%m").to_string();
        self.partitions.extend(relation.filter(|name| *name <= this_month.as_str()).map(str::to_owned));
        node["Plans"].as_array().into_iter().flatten().for_each(|child| self.visit(child));
    }

    fn check_hit(&self, what: &str) {
        assert!(self.buffers <= HIT_BUFFERS_MAX, "{what}: {self:?}");
        assert!(self.partitions.len() <= HIT_PARTITIONS_MAX, "{what}: {self:?}");
    }

    fn check_miss(&self, what: &str, partitions: u64) {
        assert!(
            self.buffers <= MISS_BUFFERS_PER_PARTITION_MAX * partitions,
            "{what}: {partitions} partitions, {self:?}"
        );
    }
}

/// Returns single filters, pairs of filters, and no filter at all.
fn combinations() -> Vec<Vec<Filter>> {
    let pairs = (0..FILTERS.len())
        .flat_map(|first| (first + 1..FILTERS.len()).map(move |second| vec![FILTERS[first], FILTERS[second]]));
    let singles = FILTERS.iter().map(|filter| vec![*filter]);
    std::iter::once(Vec::new()).chain(singles).chain(pairs).collect()
}

/// Returns the number of buffers of each question by its name.
async fn measure(count: u32) -> BTreeMap<String, u64> {
    let scene = Scene::with(count).await;
    let partitions = scene.partitions().await;
    let mut buffers = BTreeMap::new();
    let mut note = |what: String, cost: &Cost| _ = buffers.insert(what, cost.buffers);
    for filters in combinations() {
        let mut filter = HistoryFilter { limit: LIMIT, ..HistoryFilter::default() };
        filters.iter().for_each(|one| one.apply(&mut filter, true));
        let name = format!("{filters:?}");
        let (found, cost) = scene.page(&filter).await;
        assert_eq!(found, LIMIT as usize, "{name}");
        cost.check_hit(&name);
        note(format!("{name}, first page"), &cost);

        let conditions: Vec<&str> = filters.iter().map(|filter| filter.sql()).chain(["true"]).collect();
        filter.before = Some(scene.key(&conditions.join(" and ")).await);
        let (_, cost) = scene.page(&filter).await;
        cost.check_hit(&format!("{name}, 100th page"));
        note(format!("{name}, 100th page"), &cost);

        let Some((last, others)) = filters.split_last() else { continue };
        let (absent, present) = if filters[0] == Filter::State { (filters[0], &filters[1..]) } else { (*last, others) };
        let mut filter = HistoryFilter { limit: LIMIT, ..HistoryFilter::default() };
        present.iter().for_each(|one| one.apply(&mut filter, true));
        absent.apply(&mut filter, false);
        if absent == Filter::State && present.is_empty() {
            filter.states = vec![JobState::Expired];
        }
        let (found, cost) = scene.page(&filter).await;
        assert_eq!(found, 0, "{name}");
        cost.check_miss(&name, partitions);
        note(format!("{name}, no match"), &cost);
    }
    for ago in ["1 minute", "20 months"] {
        let job_id = scene.job(ago).await;
        let text = job_id.to_string();
        let (found, cost) = scene.cost(async |ledger| ledger.job(job_id).await.unwrap()).await;
        assert!(found.is_some());
        cost.check_hit("a job by its id");
        note(format!("a job of {ago} ago by its id"), &cost);
        for (part, digits) in [("beginning", &text[..18]), ("end", &text[24..])] {
            let (found, cost) = scene.cost(async |ledger| ledger.find_job(digits).await.unwrap()).await;
            let JobMatch::One(found) = found else { panic!("{digits}: {found:?}") };
            assert_eq!(found.job.job_id, job_id);
            // The end of an id does not determine the month, so an old job is found only after all newer months have been searched.
            match (part, ago) {
                ("end", "20 months") => assert!(cost.buffers <= HIT_BUFFERS_MAX, "{cost:?}"),
                _ => cost.check_hit(part),
            }
            note(format!("a job of {ago} ago by the {part} of its id"), &cost);
        }
    }
    let (found, cost) = scene.cost(async |ledger| ledger.find_job("00000000ffff").await.unwrap()).await;
    assert_eq!(found, JobMatch::None);
    cost.check_miss("an end that no id has", partitions);
    note("an end that no id has".to_owned(), &cost);
    buffers.extend(planned_statistics::measure(&scene).await);
    buffers
}

#[tokio::test]
async fn pages_and_jobs_are_read_within_their_buffers() {
    let counts = std::env::var(JOBS_VARIABLE).unwrap_or_else(|_| JOBS_DEFAULT.to_owned());
    let counts: Vec<u32> = counts.split(',').map(|count| count.parse().expect("numbers of jobs")).collect();
    let mut measured = Vec::new();
    for count in &counts {
        measured.push(measure(*count).await);
    }
    println!("buffers with {counts:?} jobs over 24 months:");
    let mut grown = Vec::new();
    for (what, few) in &measured[0] {
        let all: Vec<u64> = measured.iter().map(|buffers| buffers[what]).collect();
        println!("{what:60} {all:?}");
        if all.iter().any(|buffers| *buffers as f64 > GROWTH_MAX * *few as f64) {
            grown.push(format!("{what}: {all:?}"));
        }
    }
    assert!(grown.is_empty(), "{grown:#?}");
}

/// A filter by a label without an index searches only a window, which the answer names.
#[tokio::test]
async fn an_undeclared_label_is_searched_in_the_last_week_unless_told_otherwise() {
    let (database, _, ledger) = Database::opened().await;
    let filter =
        |since| HistoryFilter { labels: vec![("it's".to_owned(), "a".to_owned())], since, ..HistoryFilter::default() };
    let searched = async |since: Option<DateTime<Utc>>| ledger.history(&filter(since)).await.unwrap().searched_since;
    let since = searched(None).await.expect("no label has an index");
    assert_eq!((Utc::now() - since).num_days(), 7);
    assert_eq!(searched(Some(Utc::now())).await, None);
    labels::add(&database.url(), "it's").await.unwrap();
    assert_eq!(searched(None).await, None);
    labels::remove(&database.url(), "it's").await.unwrap();
    assert!(searched(None).await.is_some());
}

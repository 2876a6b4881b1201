//! Queries on a real Postgres: pages are complete and do not overlap, filters find the right jobs through an index, and a
//! database that can't be used is refused with the reason.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use gpufleet_ledger::{DatabaseUrl, HistoryFilter, JobMatch, Ledger, LedgerError, recorder::Store};
use gpufleet_schema::{AttemptState, Event, JobId, JobState, Submitted};

use crate::{
    database::Database,
    histories::{self, finished, id, info, started},
};

pub const AT: i64 = 1_763_164_800_000;
const DAY_MS: i64 = 86_400_000;

/// Returns the events of job `index` of a varied set. Four jobs share each millisecond.
fn job(index: u32) -> (JobId, Vec<Event>) {
    let at = AT + i64::from(index / 4) * DAY_MS / 8;
    let job_id = id(7, index, Some(at));
    let mut job = info(job_id, at);
    job.kernel = ["saxpy", "sobel", "mandelbrot"][index as usize % 3].to_owned();
    job.pool = ["default", "team-a"][index as usize % 2].parse().unwrap();
    job.labels = [("run".to_owned(), (index % 50).to_string())].into();
    let mut events = vec![Event::Submitted(Submitted { job: job.clone(), at_ms: at + 1 })];
    match index % 5 {
        0 => {}
        1 => events.push(started(&job, 1, at + 2)),
        2 => events.push(finished(job_id, 1, AttemptState::Failed, at + 9)),
        _ => events.push(finished(job_id, 1, AttemptState::Succeeded, at + 9)),
    }
    (job_id, events)
}

pub async fn fill(store: &mut Store, jobs: u32) -> Vec<JobId> {
    let (ids, events): (Vec<JobId>, Vec<Vec<Event>>) = (0..jobs).map(job).unzip();
    let rejected = store.record(&events.concat()).await.unwrap();
    assert_eq!(rejected, []);
    ids
}

/// Returns the jobs of all pages of a filter.
async fn all(ledger: &Ledger, mut filter: HistoryFilter) -> Vec<(DateTime<Utc>, JobId)> {
    let mut seen = Vec::new();
    loop {
        let page = ledger.history(&filter).await.unwrap();
        assert!(page.jobs.len() <= filter.limit as usize);
        assert!(page.next.is_none() || page.jobs.len() == filter.limit as usize, "a page that is followed is full");
        seen.extend(page.jobs.iter().map(|job| (job.created_at, job.job_id)));
        match page.next {
            Some(next) => filter.before = Some(next.to_string().parse().unwrap()),
            None => return seen,
        }
    }
}

#[tokio::test]
async fn pages_are_complete_and_do_not_overlap() {
    let (_, mut store, ledger) = Database::opened().await;
    let ids: BTreeSet<JobId> = fill(&mut store, 203).await.into_iter().collect();
    for limit in [1, 7, 203, 1000] {
        let seen = all(&ledger, HistoryFilter { limit, ..HistoryFilter::default() }).await;
        assert!(seen.is_sorted_by(|a, b| a > b), "newest first, and none twice");
        assert_eq!(seen.iter().map(|(_, job_id)| *job_id).collect::<BTreeSet<_>>(), ids);
    }
    let none =
        ledger.history(&HistoryFilter { kernel: Some("absent".into()), ..HistoryFilter::default() }).await.unwrap();
    assert_eq!(serde_json::to_value(&none).unwrap(), serde_json::json!({ "jobs": [], "next": null }));
}

#[tokio::test]
async fn jobs_that_arrive_while_paging_change_no_later_page() {
    let (_, mut store, ledger) = Database::opened().await;
    fill(&mut store, 40).await;
    let mut filter = HistoryFilter { limit: 10, ..HistoryFilter::default() };
    let first = ledger.history(&filter).await.unwrap();
    filter.before = first.next;
    let before = ledger.history(&filter).await.unwrap();
    let newer = info(id(9, 0, Some(AT + 400 * DAY_MS)), AT + 400 * DAY_MS);
    store.record(&[started(&newer, 1, AT + 400 * DAY_MS)]).await.unwrap();
    assert_eq!(ledger.history(&filter).await.unwrap(), before);
}

#[tokio::test]
async fn each_filter_finds_the_matching_jobs() {
    let (_, mut store, ledger) = Database::opened().await;
    fill(&mut store, 120).await;
    let everything = HistoryFilter { limit: 1000, ..HistoryFilter::default() };
    let count = async |filter: HistoryFilter| ledger.history(&filter).await.unwrap().jobs.len();
    let label = |value: &str| vec![("run".to_owned(), value.to_owned())];
    assert_eq!(count(HistoryFilter { states: vec![JobState::Failed], ..everything.clone() }).await, 24);
    let two = vec![JobState::Queued, JobState::Running];
    assert_eq!(count(HistoryFilter { states: two, ..everything.clone() }).await, 48);
    assert_eq!(count(HistoryFilter { kernel: Some("sobel".into()), ..everything.clone() }).await, 40);
    assert_eq!(count(HistoryFilter { pool: Some("team-a".into()), ..everything.clone() }).await, 60);
    let ever = Some(histories::time(0));
    assert_eq!(count(HistoryFilter { labels: label("7"), since: ever, ..everything.clone() }).await, 3);
    let contradiction = [label("7"), label("8")].concat();
    assert_eq!(count(HistoryFilter { labels: contradiction, ..everything.clone() }).await, 0);
    let since = Some(histories::time(AT + 20 * DAY_MS / 8));
    assert_eq!(count(HistoryFilter { since, ..everything.clone() }).await, 40);
    assert_eq!(count(HistoryFilter { until: since, ..everything.clone() }).await, 80);
    assert_eq!(count(HistoryFilter { until: since, since, ..everything.clone() }).await, 0);
    assert_eq!(count(HistoryFilter { name: Some("nightly".into()), ..everything.clone() }).await, 120);
    assert_eq!(count(HistoryFilter { worker: Some("worker-1".into()), ..everything.clone() }).await, 72);
    assert_eq!(count(HistoryFilter { user_id: Some("ann".into()), ..everything.clone() }).await, 0);
    let all_at_once = HistoryFilter {
        states: vec![JobState::Succeeded],
        kernel: Some("saxpy".into()),
        pool: Some("team-a".into()),
        ..everything
    };
    let jobs = ledger.history(&all_at_once).await.unwrap().jobs;
    assert!(!jobs.is_empty());
    assert!(jobs.iter().all(|job| job.kernel.as_deref() == Some("saxpy") && job.total_us == Some(90)));
}

#[tokio::test]
async fn a_job_is_found_by_the_beginning_or_the_end_of_its_id() {
    let (_, mut store, ledger) = Database::opened().await;
    let ids = fill(&mut store, 9).await;
    let whole = ids[4].to_string();
    for prefix in [whole.clone(), whole.replace('-', "").to_uppercase()] {
        let JobMatch::One(found) = ledger.find_job(&prefix).await.unwrap() else { panic!("{prefix}") };
        assert_eq!(found.job.job_id, ids[4]);
    }
    let JobMatch::Many(several) = ledger.find_job(&whole[..4]).await.unwrap() else { panic!("{whole}") };
    assert_eq!(several.len(), JobMatch::SHOWN_MAX as usize);
    for end in [&whole[24..], &whole[28..].to_uppercase(), &whole[19..]] {
        let JobMatch::One(found) = ledger.find_job(end).await.unwrap() else { panic!("{end}") };
        assert_eq!(found.job.job_id, ids[4]);
    }
    // This id has no time, so the job has a key. No other id ends like it.
    let untimed = info(id(77, 8, None), AT);
    store.record(&[started(&untimed, 1, AT)]).await.unwrap();
    let whole = untimed.job_id.to_string();
    for part in [&whole[..13], &whole[24..]] {
        let JobMatch::One(found) = ledger.find_job(part).await.unwrap() else { panic!("{part}") };
        assert_eq!(found.job.job_id, untimed.job_id);
    }
    let same_end = [1, 2].map(|ms| info(id(7, 200, Some(AT + 70 * DAY_MS + ms)), AT));
    store.record(&same_end.each_ref().map(|job| started(job, 1, AT))).await.unwrap();
    let end = &same_end[0].job_id.to_string()[20..];
    assert_eq!(ledger.find_job(end).await.unwrap(), JobMatch::Many(vec![same_end[1].job_id, same_end[0].job_id]));
    for nothing in ["ffff", "no id", ""] {
        assert_eq!(ledger.find_job(nothing).await.unwrap(), JobMatch::None, "{nothing:?}");
    }
    assert_eq!(ledger.job(JobId::new()).await.unwrap(), None);
}

#[tokio::test]
async fn the_states_of_several_jobs_are_read_at_once() {
    let (_, mut store, ledger) = Database::opened().await;
    let untimed = info(id(77, 0, None), AT);
    let events = [started(&untimed, 1, AT), finished(id(78, 0, Some(AT)), 1, AttemptState::Dead, AT)];
    assert_eq!(store.record(&events).await.unwrap(), []);
    let [running, dead] = [untimed.job_id, id(78, 0, Some(AT))];
    let states = ledger.job_states(&[dead, JobId::new(), running]).await.unwrap();
    assert_eq!(states, [(running, JobState::Running), (dead, JobState::Dead)].into());
    assert!(ledger.job_states(&[]).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_database_that_cannot_be_used_is_refused_with_the_reason() {
    let database = Database::empty().await;
    let refusal = async |url: DatabaseUrl| Ledger::connect(url).await.expect_err("it can't be used");
    let error = refusal(database.url()).await;
    assert!(matches!(error, LedgerError::Schema(_)), "{error}");
    assert!(error.to_string().contains("gpufleet-ledger migrate"), "{error}");
    gpufleet_ledger::migrate::migrate(&database.url()).await.unwrap();
    Ledger::connect(database.url()).await.unwrap();

    database.execute("insert into _sqlx_migrations values (9999, 'later', now(), true, '', 0)").await;
    let error = refusal(database.url()).await;
    assert!(error.to_string().contains("upgrade this program"), "{error}");
    database.execute("delete from _sqlx_migrations where version > 2").await;
    let error = refusal(database.url()).await;
    assert!(error.to_string().contains("have version 2"), "{error}");
    database.execute("update _sqlx_migrations set checksum = 'x' where version = 1").await;
    let error = refusal(database.url()).await;
    assert!(error.to_string().contains("was changed"), "{error}");

    let error = refusal(database.absent()).await;
    assert!(matches!(error, LedgerError::NoDatabase { .. }), "{error}");
    let error = refusal(database.locked()).await;
    assert!(matches!(error, LedgerError::Refused { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
    let nobody: DatabaseUrl = "postgres://ann:canary@127.0.0.1:1/fleet".parse().unwrap();
    let error = refusal(nobody).await;
    assert!(matches!(error, LedgerError::Unreachable { .. }), "{error}");
    assert!(!format!("{error} {error:?}").contains("canary"));
}

//! Label keys with an index: declared while others write, complete after an interruption, and safe for any text of the
//! key.

use gpufleet_ledger::{
    HistoryFilter, JobRow, Ledger,
    labels::{self, DECLARED_MAX, DeclaredLabel, LabelError},
};
use gpufleet_schema::{AttemptState, JobInfo};
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{
    database::Database,
    histories::{id, info, ran},
    poll::poll,
};

const AT: i64 = 1_763_164_800_000;
const KEY: &str = "a'b \"%";

fn labelled(number: u32) -> JobInfo {
    JobInfo { labels: [(KEY.to_owned(), "x'".to_owned())].into(), ..info(id(90, number, Some(AT)), AT) }
}

async fn with_label(ledger: &Ledger) -> Vec<JobRow> {
    let labels = vec![(KEY.to_owned(), "x'".to_owned())];
    ledger.history(&HistoryFilter { labels, ..HistoryFilter::default() }).await.unwrap().jobs
}

fn declared(key: &str, is_ready: bool) -> DeclaredLabel {
    DeclaredLabel { key: key.to_owned(), is_ready }
}

#[tokio::test]
async fn jobs_of_any_age_are_found_by_a_declared_label() {
    let (database, mut store, ledger) = Database::opened().await;
    let mut record = async |number| {
        let events = [ran(&labelled(number), 1, AttemptState::Succeeded, AT, AT + 9)];
        assert_eq!(store.record(&events).await.unwrap(), []);
    };
    record(1).await;
    assert_eq!(with_label(&ledger).await.len(), 0, "it is older than the window of a label without an index");
    // An open transaction that has written to another table neither blocks the index build nor waits for it.
    let mut writer = PgConnection::connect(&database.text_url()).await.unwrap();
    let mut writing = writer.begin().await.unwrap();
    writing.execute("insert into job_keys values (gen_random_uuid(), now())").await.unwrap();
    labels::add(&database.url(), KEY).await.unwrap();
    writing.rollback().await.unwrap();
    record(2).await;
    assert_eq!(with_label(&ledger).await.len(), 2);
    // The partition of another month gets its part with the others.
    database.execute("select ensure_jobs_partition(now() + interval '9 months')").await;
    labels::add(&database.url(), KEY).await.unwrap();
    assert_eq!(labels::list(&database.url()).await.unwrap(), [declared(KEY, true)]);
    labels::remove(&database.url(), KEY).await.unwrap();
    assert_eq!(labels::list(&database.url()).await.unwrap(), []);
    assert_eq!(with_label(&ledger).await.len(), 0);
}

#[tokio::test]
async fn keys_are_listed_while_an_index_is_built() {
    let (database, mut store, _) = Database::opened().await;
    store.record(&[ran(&labelled(1), 1, AttemptState::Succeeded, AT, AT + 9)]).await.unwrap();
    // A build waits for the end of every statement that began before it.
    let mut reader = PgConnection::connect(&database.text_url()).await.unwrap();
    let mut reading = reader.begin().await.unwrap();
    reading.execute("insert into jobs_default select * from jobs limit 0").await.unwrap();
    let adding = tokio::spawn({
        let url = database.url();
        async move { labels::add(&url, KEY).await }
    });
    poll("the key is listed", async || labels::list(&database.url()).await.unwrap() == [declared(KEY, false)]).await;
    let removing = tokio::spawn({
        let url = database.url();
        async move { labels::remove(&url, KEY).await }
    });
    assert_eq!(labels::list(&database.url()).await.unwrap(), [declared(KEY, false)]);
    reading.rollback().await.unwrap();
    adding.await.unwrap().unwrap();
    removing.await.unwrap().unwrap();
    assert_eq!(labels::list(&database.url()).await.unwrap(), []);
}

#[tokio::test]
async fn an_interrupted_index_is_not_used_and_is_completed_by_the_next_call() {
    let database = Database::fresh().await;
    database.execute("select ensure_jobs_partition(now())").await;
    database.execute("insert into label_keys values (1, 'run')").await;
    let index = "((labels ->> 'run'), id_at, job_id)";
    database.execute(&format!("create index jobs_label_1 on only jobs {index}")).await;
    database.execute(&format!("create index jobs_default_label_1 on jobs_default {index}")).await;
    assert_eq!(labels::list(&database.url()).await.unwrap(), [declared("run", false)]);
    let (_, ledger) = database.open().await;
    let labels = vec![("run".to_owned(), "7".to_owned())];
    let filter = HistoryFilter { labels, ..HistoryFilter::default() };
    assert!(ledger.history(&filter).await.unwrap().searched_since.is_some());
    labels::add(&database.url(), "run").await.unwrap();
    assert_eq!(labels::list(&database.url()).await.unwrap(), [declared("run", true)]);
    assert!(ledger.history(&filter).await.unwrap().searched_since.is_none());
}

#[tokio::test]
async fn a_ninth_key_and_an_unknown_one_are_refused() {
    let database = Database::fresh().await;
    for number in 0..DECLARED_MAX {
        labels::add(&database.url(), &format!("key-{number}")).await.unwrap();
    }
    let refused = labels::add(&database.url(), "one more").await.unwrap_err();
    assert!(matches!(&refused, LabelError::TooMany { keys } if keys.len() == DECLARED_MAX), "{refused}");
    labels::add(&database.url(), "key-3").await.unwrap();
    labels::remove(&database.url(), "key-3").await.unwrap();
    labels::add(&database.url(), "one more").await.unwrap();
    let refused = labels::remove(&database.url(), "key-3").await.unwrap_err();
    assert!(matches!(refused, LabelError::Unknown { .. }), "{refused}");
    assert!(matches!(labels::add(&database.url(), "").await, Err(LabelError::Length)));
}

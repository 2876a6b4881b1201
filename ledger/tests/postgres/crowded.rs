//! A server without a free connection: the queries of one program share a connection, and a new client waits for a free one.

use std::time::{Duration, Instant};

use futures::future::join_all;
use gpufleet_ledger::{DatabaseUrl, HistoryFilter, JobMatch, Ledger, LedgerError, WorkerFilter};
use tokio::time::timeout;

use crate::{
    database::Database,
    histories,
    poll::{WAIT, poll},
};

/// The minimum time that a new client waits: the ledger's limit, with a margin of more than one pause between two attempts.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn concurrent_queries_share_the_one_connection_that_the_server_grants() {
    let (database, mut store, _) = Database::opened().await;
    let job = histories::info(histories::id(3, 0, None), 5);
    store.record(&[histories::started(&job, 1, 9), histories::heartbeat(1, 1, false)]).await.unwrap();
    let ledger = Ledger::connect(database.as_reader("sharing", 1).await).await.unwrap();
    let prefix = job.job_id.to_string();
    let answers = join_all((0..64).map(async |_| {
        assert_eq!(ledger.history(&HistoryFilter::default()).await.unwrap().jobs.len(), 1);
        assert!(matches!(ledger.find_job(&prefix).await.unwrap(), JobMatch::One(_)));
        ledger.workers(&WorkerFilter::default()).await.unwrap().len()
    }));
    assert_eq!(answers.await, [1; 64]);
    ledger.close().await;
}

#[tokio::test]
async fn a_newcomer_to_a_full_server_waits_for_a_free_connection() {
    let database = Database::fresh().await;
    let url = database.as_reader("waiting", 1).await;
    let holder = Ledger::connect(url.clone()).await.unwrap();
    holder.workers(&WorkerFilter::default()).await.unwrap();
    let refusals = || database.log().matches("too many connections for role \"waiting\"").count();
    let before = refusals();
    let newcomer = tokio::spawn(connect_in_the_end(url));
    poll("the newcomer is refused", async || refusals() > before).await;
    holder.close().await;
    timeout(WAIT, newcomer).await.expect("the newcomer is let in in time").unwrap();
}

/// Connects, and tries again if the client gave up. On a slow machine, the connection may become free too late; then the client must at
/// least have waited long enough.
async fn connect_in_the_end(url: DatabaseUrl) -> Ledger {
    loop {
        let begun = Instant::now();
        match Ledger::connect(url.clone()).await {
            Ok(ledger) => return ledger,
            Err(LedgerError::Full { .. } | LedgerError::Unreachable { .. } | LedgerError::TimedOut { .. }) => {
                assert!(begun.elapsed() >= PATIENCE_MIN, "it gave up after {:?}", begun.elapsed());
            }
            Err(error) => panic!("it is not let in: {error}"),
        }
    }
}

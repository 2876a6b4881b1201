//! A full server: a query waits for a connection, and never for one that its own pool holds.

use std::time::{Duration, Instant};

use futures::future::join_all;
use gpufleet_ledger::{DatabaseUrl, HistoryFilter, Ledger, LedgerError, PrefixMatch, WorkerFilter};
use tokio::time::timeout;

use crate::{
    database::Database,
    histories,
    poll::{WAIT, poll},
};

/// As many as a [`Ledger`] opens at most, so that the server itself would refuse one more.
const CONNECTIONS_MAX: u32 = 4;
/// Every query waits at least this long. It is less than the ledger's own limit by more than the pause between two of its tries.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

#[tokio::test]
async fn many_questions_at_once_share_a_few_connections_and_all_are_answered() {
    let database = Database::fresh().await;
    let (mut store, _) = database.open().await;
    let job = histories::info(histories::id(3, 0, None), 5);
    store.record(&[histories::started(&job, 1, 9), histories::heartbeat(1, 1, false)]).await.unwrap();
    let ledger = Ledger::connect(database.as_reader("sharing", CONNECTIONS_MAX).await).await.unwrap();
    let prefix = job.job_id.to_string();
    let answers = join_all((0..64).map(async |_| {
        assert_eq!(ledger.history(&HistoryFilter::default()).await.unwrap().jobs.len(), 1);
        assert!(matches!(ledger.job_by_prefix(&prefix).await.unwrap(), PrefixMatch::One(_)));
        ledger.workers(&WorkerFilter::default()).await.unwrap().len()
    }));
    assert_eq!(answers.await, [1; 64]);
    ledger.close().await;
}

#[tokio::test]
async fn who_finds_every_connection_taken_waits_until_one_is_free() {
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

/// On a machine that stalls, the place may come free only after a newcomer's patience has run out. Then it has had patience.
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

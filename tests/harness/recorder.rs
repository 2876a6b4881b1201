//! A recorder in the test's own process. It starts faster than a recorder process, which only scenarios about the recorder need.

use gpufleet_ledger::{
    DatabaseUrl,
    recorder::{self, Store, count_dropped_replies},
};
use gpufleet_local::Endpoints;
use gpufleet_transport::{Broker, Options};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{WAIT, background};

/// Records the events of a scenario until it is dropped.
#[derive(Debug)]
pub(crate) struct Recorder {
    _stop: DropGuard,
}

impl Recorder {
    /// Starts to record, and returns when the exchanges and the queue are declared. The tables must exist.
    pub(crate) async fn start(endpoints: &Endpoints) -> Self {
        let stop = CancellationToken::new();
        let database: DatabaseUrl = endpoints.database_url.parse().expect("the fleet's URL is valid");
        let broker = endpoints.amqp_url.parse().expect("the fleet's URL is valid");
        let options = Options { connect_deadline: WAIT, ..Options::new(broker, "a scenario's recorder") };
        let stopped = stop.clone();
        let started = background::spawn(async move {
            let store = Store::connect(database).await.expect("the database is there");
            let broker = Broker::connect(options).await.expect("the broker is there");
            broker.declare_ledger().await.expect("the queues can be declared");
            tokio::spawn(record(broker, store, stopped));
        });
        started.await.expect("a recorder starts");
        Self { _stop: stop.drop_guard() }
    }
}

async fn record(broker: Broker, store: Store, stop: CancellationToken) {
    let counting = tokio::spawn(count_dropped_replies(broker.clone()));
    let recorded = recorder::Recorder::new(broker.clone(), store, stop.clone()).run().await;
    counting.abort();
    // When the scenario has ended, its database may be deleted first.
    assert!(recorded.is_ok() || stop.is_cancelled(), "a scenario's recorder failed: {recorded:?}");
    broker.close().await;
}

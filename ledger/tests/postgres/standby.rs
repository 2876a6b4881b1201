//! The read API on a streaming standby: it gives the primary's answers, and says how far it is behind.

use std::time::Duration;

use gpufleet_ledger::{Ledger, Replication, api::Tokens, migrate::migrate, recorder::Store};
use gpufleet_local::{Postgres, StateDir};

use crate::{http::Served, poll::poll, queries::fill};

const NAME: &str = "fleet";
/// The maximum lag in this test: far more than that of an idle standby, and soon exceeded by a standby that does not
/// replay.
const LAG_MAX: Duration = Duration::from_secs(2);

#[tokio::test]
async fn a_standby_answers_with_its_lag_and_is_not_ready_when_it_is_far_behind() {
    let (state, other_state) = (StateDir::ephemeral().unwrap(), StateDir::ephemeral().unwrap());
    let primary = Postgres::start(&state).await.unwrap();
    primary.create_database(NAME).await.unwrap();
    migrate(&primary.url(NAME).parse().unwrap()).await.unwrap();
    let mut store = Store::connect(primary.url(NAME).parse().unwrap()).await.unwrap();
    let standby = primary.start_standby(&other_state).await.unwrap();
    let served = Served::with(standby.url(NAME).parse().unwrap(), Tokens::default(), LAG_MAX).await;
    let ledger = Ledger::connect(primary.url(NAME).parse().unwrap()).await.unwrap();
    assert_eq!(ledger.replication().await.unwrap(), Replication::Primary);

    fill(&mut store, 9).await;
    let jobs = async |response: crate::http::Response| response.json()["jobs"].as_array().map_or(0, Vec::len);
    poll("the jobs are on the standby", async || jobs(served.get("/v1/jobs").await).await == 9).await;
    poll("the standby is ready", async || served.get("/readyz").await.status == 200).await;
    let ready = served.get("/readyz").await.json();
    assert_eq!(
        (&ready["is_standby"], ready["lag_seconds"].as_f64().unwrap() < LAG_MAX.as_secs_f64()),
        (&true.into(), true)
    );

    standby.psql(NAME, "select pg_wal_replay_pause()").await.unwrap();
    fill(&mut store, 12).await;
    poll("the standby is not ready", async || {
        let response = served.get("/readyz").await;
        response.status == 503 && response.problem() == "standby-behind"
    })
    .await;
    // The standby still serves its old data, and reports its lag.
    let old = served.get("/v1/jobs").await;
    assert!(old.header("gpufleet-lag-seconds").unwrap().parse::<f64>().unwrap() > LAG_MAX.as_secs_f64());
    assert_eq!(jobs(old).await, 9);
    standby.psql(NAME, "select pg_wal_replay_resume()").await.unwrap();
    poll("the standby has caught up", async || served.get("/readyz").await.status == 200).await;
    assert_eq!(jobs(served.get("/v1/jobs").await).await, 12);

    // Without its primary, the standby can't know how far it is behind, so it counts from the last replayed
    // transaction.
    primary.kill9().await.unwrap();
    poll("the standby is not ready without its primary", async || served.get("/readyz").await.status == 503).await;
    assert_eq!(jobs(served.get("/v1/jobs").await).await, 12);
    standby.stop().await.unwrap();
    for state in [other_state, state] {
        state.close().await.unwrap();
    }
}

//! Lists pools with their shares of the devices.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    answer::{Answered, Refused},
    parameters::{Query, Time},
    state::Shared,
};
use crate::{Dimension, Ledger, LedgerError, Pool, StatisticsFilter, WorkerFilter, WorkerRow, why::SHARE_WINDOW};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Since {
    /// Count the device time since then. It is rounded down to the hour. By default an hour ago.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    since: Option<Time>,
}

#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Pools {
    pools: Vec<Pool>,
}

/// List the pools that workers serve or that jobs used
///
/// Each pool is as `gpufleet pools -o json` prints it. `messages` and `consumers` are null, because the server does not ask the broker.
#[utoipa::path(get, path = "/v1/pools", operation_id = "listPools", tag = "workers", params(Since), security(("token" = [])),
    responses((status = 200, body = Pools), Refused))]
pub(super) async fn list(State(api): Shared, Query(since): Query<Since>) -> Answered<Json<Pools>> {
    let since = since.since.map_or_else(|| Utc::now() - SHARE_WINDOW, |since| since.0);
    let workers = api.ledger.workers(&WorkerFilter::default()).await?;
    Ok(Json(Pools { pools: among(&api.ledger, &workers, since).await? }))
}

/// Returns the pools that these workers serve, and the pools that have used device time since then.
pub(super) async fn among(
    ledger: &Ledger,
    workers: &[WorkerRow],
    since: DateTime<Utc>,
) -> Result<Vec<Pool>, LedgerError> {
    let filter = StatisticsFilter { by: Some(Dimension::Pool), since, pool: None };
    Ok(Pool::all(workers, &ledger.statistics(&filter).await?))
}

//! The audit log: what people did through the console and other programs that act for them.

use axum::{Json, extract::State};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    answer::{Answered, Refused},
    parameters::{self, Query, Text},
    state::Shared,
};
use crate::{ActionKey, ActionPage};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Bounds {
    /// Most actions on a page.
    #[serde(default = "default_limit")]
    #[param(minimum = 1, maximum = 1000, default = 50)]
    limit: u32,
    /// Continue an earlier list after this key, which was its `next`.
    #[param(value_type = Option<String>)]
    before: Option<Text>,
}

fn default_limit() -> u32 {
    50
}

/// List what people did to jobs, such as cancel or replay, newest first
///
/// Only programs that act for others report it, such as the console.
#[utoipa::path(get, path = "/v1/actions", operation_id = "listActions", tag = "actions", params(Bounds), security(("token" = [])),
    responses((status = 200, body = ActionPage), Refused))]
pub(super) async fn list(State(api): Shared, Query(bounds): Query<Bounds>) -> Answered<Json<ActionPage>> {
    if !(1..=ActionPage::LIMIT_MAX).contains(&bounds.limit) {
        let why = format!("{} is not between 1 and {}", bounds.limit, ActionPage::LIMIT_MAX);
        return Err(parameters::refused("limit", &why));
    }
    let before = bounds.before.map(|key| key.0.parse::<ActionKey>()).transpose();
    let before = before.map_err(|invalid| parameters::refused("before", &invalid.to_string()))?;
    Ok(Json(api.ledger.actions(bounds.limit, before).await?))
}

//! Shows the use, memory, temperature and power of a device over time.

use axum::{Json, extract::State};
use chrono::{TimeDelta, Utc};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    answer::{Answered, Refused},
    parameters::{self, Query, Text, Time},
    state::Shared,
};
use crate::{DeviceSamples, SampleFilter};

/// The default time span: the last two days.
const SPAN_DEFAULT: TimeDelta = TimeDelta::hours(48);

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filters {
    /// The worker's name.
    #[param(value_type = String)]
    worker: Text,
    /// The number of the device.
    #[param(minimum = 0, maximum = 2_147_483_647)]
    device: u32,
    /// The beginning; by default 48 hours before the end.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    since: Option<Time>,
    /// The end; by default now.
    #[param(value_type = Option<chrono::DateTime<chrono::Utc>>)]
    until: Option<Time>,
    /// Most points. Each gathers the samples of the same time.
    #[serde(default = "default_points")]
    #[param(minimum = 1, maximum = 500, default = 480)]
    points: u32,
}

fn default_points() -> u32 {
    480
}

/// Show use, memory, temperature and power of a device over time
#[utoipa::path(get, path = "/v1/samples", operation_id = "listSamples", tag = "workers", params(Filters), security(("token" = [])),
    responses((status = 200, body = DeviceSamples), Refused))]
pub(super) async fn list(State(api): Shared, Query(filters): Query<Filters>) -> Answered<Json<DeviceSamples>> {
    if !(1..=SampleFilter::POINTS_MAX).contains(&filters.points) {
        let why = format!("{} is not between 1 and {}", filters.points, SampleFilter::POINTS_MAX);
        return Err(parameters::refused("points", &why));
    }
    if i32::try_from(filters.device).is_err() {
        return Err(parameters::refused("device", &format!("{} is more than {}", filters.device, i32::MAX)));
    }
    let until = filters.until.map_or_else(Utc::now, |until| until.0);
    let since = match filters.since {
        Some(since) => since.0,
        None => {
            until.checked_sub_signed(SPAN_DEFAULT).ok_or_else(|| parameters::refused("until", "it is too early"))?
        }
    };
    if since >= until {
        return Err(parameters::refused("since", "it is not before `until`"));
    }
    let filter =
        SampleFilter { worker: filters.worker.0, device: filters.device, since, until, points: filters.points };
    Ok(Json(api.ledger.device_samples(&filter).await?))
}

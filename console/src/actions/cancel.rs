//! Cancels jobs.

use axum::{Extension, Json, extract::State};
use gpufleet::{
    CancelScope,
    schema::{JobId, Selection},
};
use gpufleet_service::{chain, problem::Problem, server::Peer};
use gpufleet_transport::PublishError;
use serde::{Deserialize, Serialize};

use super::{audit::Actor, targets::check_count};
use crate::{access::Viewer, broker::away, state::Shared};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Jobs {
    jobs: Vec<JobId>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Cancelled {
    /// The broker's user is no operator: only its own jobs are cancelled.
    only_own: bool,
}

pub(crate) async fn cancel(
    State(console): Shared,
    Extension(viewer): Extension<Viewer>,
    Extension(Peer(peer)): Extension<Peer>,
    Json(Jobs { jobs }): Json<Jobs>,
) -> Result<Json<Cancelled>, Problem> {
    check_count("jobs", jobs.len())?;
    let actor = Actor { viewer, peer };
    let at_work = console.clone();
    let work = async move {
        let fleet = console.feed.broker().fleet()?;
        let named: Vec<String> = jobs.iter().map(ToString::to_string).collect();
        let selection = Selection { jobs, ..Selection::default() };
        let ordered = fleet.cancel(selection, Some(format!("console: {}", actor.viewer.name))).await;
        let recorded = match &ordered {
            Ok(CancelScope::All) => Some("cancel"),
            Ok(CancelScope::Own) => Some("cancel-own"),
            // The order may have been given.
            Err(PublishError::Unknown { .. }) => Some("cancel-unconfirmed"),
            Err(_) => None,
        };
        let ordered = ordered.map_err(|error| away(&chain(&error)));
        actor.log(recorded.unwrap_or("cancel"), &named, ordered.as_ref().err());
        if let Some(action) = recorded {
            actor.report(&console.feed, action, &named).await;
        }
        Ok(Json(Cancelled { only_own: ordered? == CancelScope::Own }))
    };
    at_work.to_its_end(work).await
}

//! The read API: the ledger over HTTP, as JSON.
//!
//! It serves the data of the `gpufleet` command (jobs, one job, its output, workers, pools, statistics) in the command's JSON format, so
//! that people and the console need no database password. It only reads: it refuses every method other than GET and HEAD, and its database
//! sessions are read-only. It neither submits nor cancels jobs, and does not terminate TLS.
//!
//! [`pages`] puts the parts together, `gpufleet_service::server` bounds connections, [`limits`] bounds requests, and [`access`] controls access. Each
//! of the other modules answers the requests about one subject.

use std::{sync::Arc, time::Duration};

use axum::{Router, middleware, response::IntoResponse};
use serde_json::value::RawValue;
use utoipa::{
    Modify, OpenApi,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::Ledger;

mod access;
mod actions;
mod answer;
mod cached;
mod explain;
mod health;
mod jobs;
mod limits;
mod neighbours;
mod outputs;
mod overview;
mod parameters;
mod pools;
mod samples;
mod state;
mod statistics;
mod workers;

pub(crate) use answer::cause;
use cached::Cached;
use gpufleet_service::server::Pages;
pub use gpufleet_service::{
    server,
    tokens::{InvalidTokens, Tokens},
};
use state::Api;

/// The default maximum lag of a standby that is ready. Replication takes milliseconds, but a long query on a healthy standby can hold up
/// the replay for up to `max_standby_streaming_delay`, by default 30 s.
pub const LAG_MAX_DEFAULT: Duration = Duration::from_secs(60);

#[derive(OpenApi)]
#[openapi(
    info(
        title = "gpufleet read API",
        description = "Jobs, workers and statistics of a gpufleet ledger. Names are stable: later releases add fields, and neither rename nor remove any.",
    ),
    modifiers(&BearerToken),
    tags(
        (name = "jobs", description = "Jobs, newest first, and one job with its attempts"),
        (name = "workers", description = "Workers, their devices, and pools"),
        (name = "statistics", description = "What ended when, how long it took, and what it used"),
        (name = "actions", description = "What people did through programs that act for them"),
        (name = "health", description = "For load balancers and supervisors; needs no token"),
    )
)]
struct Document;

struct BearerToken;

impl Modify for BearerToken {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
        document.components.get_or_insert_default().add_security_scheme("token", scheme);
    }
}

/// Returns the pages of the API over this ledger. If there are `tokens`, each request needs one of them.
pub fn pages(ledger: Ledger, tokens: Tokens, lag_max: Duration) -> Pages {
    let (open, _) = open_routes().split_for_parts();
    let (guarded, _) = guarded_routes().split_for_parts();
    let document = RawValue::from_string(document()).expect("the document was just written as JSON");
    let api = Arc::new(Api {
        ledger,
        lag_max,
        replication: Cached::new(health::CHECKED_FOR),
        overview: Cached::new(overview::SHOWN_FOR),
    });
    let tokens = Arc::new(tokens);
    let guarded = guarded
        .route_layer(middleware::from_fn_with_state(Arc::clone(&api), health::with_lag))
        .route_layer(middleware::from_fn_with_state(limits::places(), limits::admit))
        .route_layer(middleware::from_fn_with_state(Arc::clone(&tokens), access::require_token))
        .route("/openapi.json", axum::routing::get(async move || axum::Json(document).into_response()));
    let bounded = |pages: Router<Arc<Api>>| {
        pages
            .layer(middleware::from_fn_with_state(Arc::clone(&tokens), access::require_own_host))
            .layer(middleware::from_fn(limits::check_request))
            .with_state(Arc::clone(&api))
    };
    Pages { health: bounded(open.clone()), all: bounded(guarded.merge(open).fallback(answer::no_such_page)) }
}

/// Returns the OpenAPI document as JSON.
pub fn document() -> String {
    text_of(open_routes().into_openapi().merge_from(guarded_routes().into_openapi()))
}

fn text_of(document: utoipa::openapi::OpenApi) -> String {
    document.to_pretty_json().expect("the document has only texts as keys") + "\n"
}

fn open_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::with_openapi(Document::openapi()).routes(routes!(health::alive)).routes(routes!(health::ready))
}

fn guarded_routes() -> OpenApiRouter<Arc<Api>> {
    OpenApiRouter::new()
        .routes(routes!(jobs::list))
        .routes(routes!(jobs::job))
        .routes(routes!(jobs::logs))
        .routes(routes!(outputs::bytes))
        .routes(routes!(explain::why))
        .routes(routes!(explain::report))
        .routes(routes!(neighbours::list))
        .routes(routes!(workers::list))
        .routes(routes!(samples::list))
        .routes(routes!(pools::list))
        .routes(routes!(actions::list))
        .routes(routes!(overview::show))
        .routes(routes!(statistics::show))
        .routes(routes!(statistics::series))
        .routes(routes!(statistics::labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_lists_every_path_and_no_other() {
        let document: serde_json::Value = serde_json::from_str(&document()).unwrap();
        let paths = document["paths"].as_object().unwrap().keys();
        let mut served: Vec<&str> = paths.map(String::as_str).filter(|path| path.starts_with("/v1/")).collect();
        let guide = include_str!("../../../docs/src/operate/api.md");
        let mut listed: Vec<&str> = guide
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
            .filter(|path| path.starts_with("/v1/"))
            .collect();
        served.sort_unstable();
        listed.sort_unstable();
        assert_eq!(listed, served);
    }
}

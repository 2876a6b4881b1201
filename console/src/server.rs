//! Routes of the console.

use std::sync::Arc;

use anyhow::Context as _;
use axum::{
    Extension, Json, Router,
    body::Body,
    extract::{DefaultBodyLimit, RawQuery, State},
    http::{HeaderMap, Uri, header},
    middleware::{from_fn, from_fn_with_state},
    response::{IntoResponse, Response, Sse},
    routing::{get, post},
};
use gpufleet_blobs::BlobStore;
use gpufleet_service::problem::{Problem, ProblemKind};
use serde::Serialize;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    access::{self, Access, Viewer},
    actions, assets,
    broker::Broker,
    config::Config,
    feed::{Feed, Topic},
    live, outputs,
    state::{Console, Shared},
};

/// A list of a thousand ids.
const BODY_BYTES_MAX: usize = 128 << 10;

/// Starts what works in the background. Returns the pages, and the actions that run.
pub(crate) async fn start(config: Config, stop: CancellationToken) -> anyhow::Result<(Router, TaskTracker)> {
    let blobs = match config.blobs {
        Some(location) => Some(BlobStore::open(location).await.context("open the blob store")?),
        None => None,
    };
    let broker = match config.amqp_url {
        Some(url) => Broker::connect(url, stop.clone()),
        None => Broker::absent(),
    };
    let feed = Feed::new(config.upstream, broker);
    tokio::spawn(Arc::clone(&feed).run(stop.clone()));
    let console = Console { blobs, ..Console::new(feed, config.access, config.actions, stop) };
    let actions_running = console.actions_running.clone();
    Ok((router(console), actions_running))
}

/// The pages of a console.
pub fn router(console: Console) -> Router {
    let access = || Arc::clone(&console.access);
    Router::new()
        .route("/api/me", get(me))
        .route("/api/dead", get(actions::list))
        .route("/api/v1/{*path}", get(page))
        .route("/live", get(events))
        .route("/outputs/{job}/{name}", get(outputs::download))
        .route("/session", get(session))
        .route("/session/end", get(end_session))
        .route("/actions/cancel", post(actions::cancel))
        .route("/actions/dead/replay", post(actions::replay))
        .route("/actions/dead/discard", post(actions::discard))
        .route("/api/{*path}", get(no_such_page))
        .fallback(get(assets::serve))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(from_fn_with_state(access(), access::require_viewer))
        .layer(from_fn(access::require_same_origin))
        .layer(from_fn_with_state(console.actions, access::require_allowed_method))
        .layer(from_fn_with_state(access(), access::require_known_host))
        .layer(from_fn(access::protect))
        .with_state(Arc::new(console))
}

#[derive(Serialize)]
struct Me {
    viewer: String,
    version: &'static str,
    /// How viewers are known: `none`, `token` or `proxy`.
    identity: &'static str,
    /// Whether viewers may act.
    actions: bool,
    has_broker: bool,
    has_blobs: bool,
}

async fn me(State(console): Shared, Extension(viewer): Extension<Viewer>) -> Json<Me> {
    Json(Me {
        viewer: viewer.name,
        version: env!("CARGO_PKG_VERSION"),
        identity: console.access.described(),
        actions: console.actions,
        has_broker: !console.feed.broker().is_absent(),
        has_blobs: console.blobs.is_some(),
    })
}

/// A page of the read API, at most as old as its interval.
async fn page(State(console): Shared, uri: Uri) -> Result<Response, Problem> {
    let path = uri.path_and_query().map(|path| path.as_str()).unwrap_or_default();
    let topic = Topic::named(path.strip_prefix("/api").unwrap_or_default())?;
    let snapshot = console.feed.get(topic).await?;
    match (&snapshot.problem, &snapshot.body) {
        (None, Some(body)) => {
            Ok(([(header::CONTENT_TYPE, "application/json")], Body::from(body.clone())).into_response())
        }
        (Some(problem), _) => Err(problem.clone()),
        (None, None) => Err(no_such_page().await),
    }
}

async fn events(State(console): Shared, RawQuery(query): RawQuery) -> Result<Response, Problem> {
    let topics = topics(query.as_deref().unwrap_or_default());
    let events = live::events(&console.feed, &topics, console.stop.clone())?;
    // nginx would collect the events otherwise.
    Ok(([("x-accel-buffering", "no")], Sse::new(events)).into_response())
}

fn topics(query: &str) -> Vec<String> {
    let url = reqwest::Url::parse(&format!("http://console/?{query}"));
    let pairs = url.iter().flat_map(reqwest::Url::query_pairs);
    pairs.filter(|(name, _)| name == "topic").map(|(_, value)| value.into_owned()).collect()
}

async fn session(State(console): Shared, headers: HeaderMap) -> Result<Response, Problem> {
    let cookie = console.access.session(&headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Json(true)).into_response())
}

async fn end_session() -> Response {
    ([Access::end_of_session()], Json(true)).into_response()
}

async fn no_such_page() -> Problem {
    Problem::new(
        ProblemKind::NotFound,
        "There is no such page",
        "the console has no page at this path",
        "open its start page, /",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_the_topics_of_its_query() {
        let query = "topic=%2Fv1%2Fjobs%3Flabel%3Da%253Db&other=1&topic=broker";
        assert_eq!(topics(query), ["/v1/jobs?label=a%3Db", "broker"]);
        assert_eq!(topics(""), [""; 0]);
    }
}

//! Bounds requests: their method, the length of the URL, their duration, and how many run at once.

use std::{sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio::{sync::Semaphore, time::timeout};

use crate::problem::{Problem, ProblemKind};

/// The maximum number of requests in progress. Each holds at most one page in memory, and the database works on few of
/// them at a time.
const REQUESTS_MAX: usize = 64;
/// How long a refused caller should wait, in seconds. An immediate retry would only add to the load.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("1");
/// The maximum length of a URL's path and query; enough for a hundred labels.
const URL_BYTES_MAX: usize = 8 << 10;
/// The deadline of a request. A request has up to four queries, and the database cancels each of them after ten
/// seconds; most take milliseconds.
const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// The places of requests in progress.
pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(REQUESTS_MAX))
}

/// Lets a request in if there are not too many, and ends it at its deadline.
pub(super) async fn admit(State(places): State<Arc<Semaphore>>, request: Request, next: Next) -> Response {
    let Ok(_place) = places.try_acquire() else {
        let problem = Problem::new(
            ProblemKind::Overloaded,
            "The server is busy",
            format!("it is working on {REQUESTS_MAX} requests already"),
            "try again in a second",
        );
        return ([(header::RETRY_AFTER, RETRY_AFTER)], problem).into_response();
    };
    timeout(REQUEST_DEADLINE, next.run(request)).await.unwrap_or_else(|_| too_slow().into_response())
}

pub(super) fn too_slow() -> Problem {
    Problem::new(
        ProblemKind::TooSlow,
        "The ledger did not answer in time",
        "the database took too long for this request",
        "ask for less, such as the jobs of one pool since yesterday; if every request is slow, check the load of the database",
    )
}

/// Refuses requests that no page serves: methods that could write, and long URLs.
pub(super) async fn check_request(request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let problem = Problem::new(
            ProblemKind::MethodNotAllowed,
            "The API only reads",
            "the method of the request is neither GET nor HEAD",
            "use GET; jobs are submitted and cancelled over the broker, with `gpufleet submit` and `gpufleet cancel`",
        );
        return ([(header::ALLOW, "GET, HEAD")], problem).into_response();
    }
    if request.uri().path_and_query().is_some_and(|text| text.as_str().len() > URL_BYTES_MAX) {
        return Problem::new(
            ProblemKind::UrlTooLong,
            "The URL is too long",
            format!("its path and query have more than {URL_BYTES_MAX} bytes"),
            "use fewer filters",
        )
        .into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

//! Waits for the whole body of a request before its page handles it, because a caller that sends slowly would keep its
//! place.

use std::time::Duration;

use axum::{
    body::{self, Body, HttpBody as _},
    extract::Request,
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use tokio::time::timeout;

use crate::problem::{Problem, ProblemKind};

/// Maximum size of a body. Orders name some hundred jobs.
const BYTES_MAX: usize = 1 << 20;
const WITHIN: Duration = Duration::from_secs(10);

pub(super) async fn await_whole(request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (head, body) = request.into_parts();
    match timeout(WITHIN, body::to_bytes(body, BYTES_MAX)).await {
        Ok(Ok(bytes)) => next.run(Request::from_parts(head, Body::from(bytes))).await,
        Ok(Err(error)) => refused(format!("it could not be read: {error}; the maximum is {BYTES_MAX} bytes")),
        Err(_) => refused(format!("it did not arrive within {} s", WITHIN.as_secs())),
    }
}

/// Refuses a body. The connection ends with the answer, because the rest of the body is not read.
fn refused(why: String) -> Response {
    Problem::new(ProblemKind::BadRequest, "The body of the request was refused", why, "send it at once").into_response()
}

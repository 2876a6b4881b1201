//! Access control: every caller needs a token. If the server has no tokens, it admits callers on this machine only.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::header,
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use gpufleet_service::{
    host::is_loopback,
    tokens::{Tokens, bearer_token},
};

use crate::problem::{Problem, ProblemKind};

pub(super) async fn require_token(State(tokens): State<Arc<Tokens>>, request: Request, next: Next) -> Response {
    if tokens.is_empty() || bearer_token(request.headers()).is_some_and(|token| tokens.accept(token)) {
        return next.run(request).await;
    }
    let problem = Problem::new(
        ProblemKind::Unauthorized,
        "The request needs a token",
        "the header Authorization has no token that this server accepts",
        "send `Authorization: Bearer TOKEN` with a token of the server's --token-file; ask its operator for one",
    );
    ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response()
}

/// Refuses requests that name another host, if the server has no tokens. Without tokens it listens on loopback only,
/// which does not stop a foreign web page that uses DNS rebinding.
pub(super) async fn require_own_host(State(tokens): State<Arc<Tokens>>, request: Request, next: Next) -> Response {
    if !tokens.is_empty() || is_loopback(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    Problem::new(
        ProblemKind::Misdirected,
        "The request is for another host",
        "this server has no tokens, so it answers only requests whose header Host is localhost, 127.0.0.1 or [::1]",
        "use one of these names in the URL, or start the server with --token-file",
    )
    .into_response()
}

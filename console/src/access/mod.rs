//! Who may ask, and for what.
//!
//! Each rule is a layer of its own, and the order matters: the host, then the method, then where the request came from, then the viewer.
//! The web application itself is public, because it has no data; whatever shows or changes data needs a viewer.

mod hosts;
mod identity;
mod origin;
mod session;

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{HeaderValue, Method, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use gpufleet_service::problem::{Problem, ProblemKind};

pub use hosts::Hosts;
pub use identity::{Access, Identity, Viewer};

/// Where actions are. Only these take a method other than GET and HEAD.
pub const ACTIONS: &str = "/actions/";
/// What needs a viewer.
const GUARDED: [&str; 4] = [ACTIONS, "/api/", "/live", "/outputs/"];

/// Nothing from elsewhere: no script, style, font, image or connection. There is no inline script or style either.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'",
);

pub fn is_guarded(path: &str) -> bool {
    GUARDED.iter().any(|guarded| path.starts_with(guarded))
}

/// Headers that keep a browser from treating data as a page, and pages of other sites from using the console.
pub async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, POLICY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert("cross-origin-opener-policy", HeaderValue::from_static("same-origin"));
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Refuses requests for names that are not the console's. A page of a foreign site whose name resolves to the console (DNS rebinding)
/// sends requests that name the foreign host.
pub async fn require_known_host(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    if access.hosts.knows(request.uri(), request.headers()) {
        return next.run(request).await;
    }
    Problem::new(
        ProblemKind::Misdirected,
        "The request is for another host",
        "the header Host names neither this machine, nor an address, nor a host that the console knows",
        "start the console with --host NAME for each name that browsers use",
    )
    .into_response()
}

/// Refuses every method that is not listed here.
pub async fn require_allowed_method(State(actions): State<bool>, request: Request, next: Next) -> Response {
    let is_action = request.uri().path().starts_with(ACTIONS);
    let allowed = match (is_action, actions) {
        (true, true) => "POST",
        (true, false) => "",
        (false, _) => "GET, HEAD",
    };
    let is_allowed = match *request.method() {
        Method::GET | Method::HEAD => !is_action,
        Method::POST => is_action && actions,
        _ => false,
    };
    if is_allowed {
        return next.run(request).await;
    }
    let (detail, next) = match (is_action, actions) {
        (true, false) => {
            ("the console was started without --actions", "start it with --actions, or use the command `gpufleet`")
        }
        _ => ("the method of the request is not allowed here", "see the header Allow"),
    };
    let problem = Problem::new(ProblemKind::MethodNotAllowed, "The console only reads", detail, next);
    ([(header::ALLOW, allowed)], problem).into_response()
}

/// Refuses requests for data that a page of another site made.
pub async fn require_same_origin(request: Request, next: Next) -> Response {
    let is_foreign = match request.method() {
        &Method::POST => !origin::is_own_action(request.uri(), request.headers()),
        _ => is_guarded(request.uri().path()) && origin::is_of_another_site(request.headers()),
    };
    if !is_foreign {
        return next.run(request).await;
    }
    Problem::new(
        ProblemKind::Forbidden,
        "The request comes from another site",
        "its headers Origin and Sec-Fetch-Site do not show that a page of this console made it",
        "use the pages of the console, or the command `gpufleet`",
    )
    .into_response()
}

/// Finds out who the viewer is. What shows or changes data needs one; the handlers find a [`Viewer`] among the request's extensions.
pub async fn require_viewer(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    match access.viewer(&request) {
        Ok(viewer) => {
            request.extensions_mut().insert(viewer);
        }
        Err(problem) if is_guarded(request.uri().path()) => return access.challenge(problem),
        Err(_) => {}
    }
    next.run(request).await
}

//! The host that a request names.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri, header, uri::Authority};

/// The host and port that the request is for, from its header Host or its URL.
pub fn requested(uri: &Uri, headers: &HeaderMap) -> Option<Authority> {
    let named =
        headers.get(header::HOST).and_then(|host| host.to_str().ok()).or_else(|| uri.authority().map(|a| a.as_str()));
    named?.parse().ok()
}

/// Whether the request names this machine by a name that only itself uses. A page of a foreign site whose name resolves to this machine
/// (DNS rebinding) sends requests that name the foreign host.
pub fn is_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let Some(authority) = requested(uri, headers) else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let asked = |host: &str| {
            is_loopback(&Uri::from_static("/v1/jobs"), &[(header::HOST, host.parse().unwrap())].into_iter().collect())
        };
        for own in ["localhost", "LOCALHOST:9470", "127.0.0.1:9470", "127.1.2.3", "[::1]:9470"] {
            assert!(asked(own), "{own}");
        }
        for other in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example:9470"] {
            assert!(!asked(other), "{other}");
        }
        assert!(!is_loopback(&Uri::from_static("/v1/jobs"), &HeaderMap::new()));
    }
}

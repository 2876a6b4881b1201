//! The names of the console.

use std::net::IpAddr;

use axum::http::{HeaderMap, Uri};
use gpufleet_service::host;

/// Names beside those of this machine and addresses. An address can't be rebound to another server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    pub fn named(names: &[String]) -> Self {
        Self(names.iter().map(|name| name.to_ascii_lowercase()).collect())
    }

    pub(super) fn knows(&self, uri: &Uri, headers: &HeaderMap) -> bool {
        let Some(authority) = host::requested(uri, headers) else { return false };
        let named = authority.host().trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
        host::is_loopback(uri, headers) || named.parse::<IpAddr>().is_ok() || self.0.contains(&named)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::header;

    use super::*;

    #[test]
    fn a_name_must_be_given_and_an_address_need_not() {
        let hosts = Hosts::named(&["Console.example".to_owned()]);
        let knows = |host: &str| {
            hosts.knows(&Uri::from_static("/"), &[(header::HOST, host.parse().unwrap())].into_iter().collect())
        };
        for own in
            ["localhost:9480", "127.0.0.1", "10.1.2.3:9480", "[fe80::1]:9480", "console.example", "CONSOLE.example:443"]
        {
            assert!(knows(own), "{own}");
        }
        for other in ["evil.example", "console.example.evil.example", ""] {
            assert!(!knows(other), "{other}");
        }
        assert!(!hosts.knows(&Uri::from_static("/"), &HeaderMap::new()));
    }
}

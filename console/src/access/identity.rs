//! Who the viewer is: anyone on this machine, the owner of a token, or whom a trusted proxy names.

use axum::{
    extract::Request,
    http::{HeaderMap, HeaderName, HeaderValue, header},
    response::{IntoResponse as _, Response},
};
use gpufleet_service::{
    problem::{Problem, ProblemKind},
    server::Peer,
    tokens::{Tokens, bearer_token},
};
use ipnet::IpNet;

use super::{hosts::Hosts, session};
use crate::snapshot::now_ms;

/// A longer name is a mistake of the proxy, and would fill the audit log.
const NAME_BYTES_MAX: usize = 256;

/// How viewers are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// Viewers are not known, so the console listens on loopback only.
    Anonymous,
    /// Viewers give a token, which is exchanged for a cookie.
    Tokens(Tokens),
    /// A header of a proxy in one of these networks names the viewer.
    Proxy { header: HeaderName, networks: Vec<IpNet> },
}

/// The person who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Viewer {
    /// For the audit log.
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct Access {
    identity: Identity,
    pub(super) hosts: Hosts,
}

impl Access {
    pub fn new(identity: Identity, hosts: Hosts) -> Self {
        Self { identity, hosts }
    }

    /// A word for the log.
    pub fn described(&self) -> &'static str {
        match self.identity {
            Identity::Anonymous => "none",
            Identity::Tokens(_) => "token",
            Identity::Proxy { .. } => "proxy",
        }
    }

    /// The viewer who sent the request.
    pub fn viewer(&self, request: &Request) -> Result<Viewer, Problem> {
        match &self.identity {
            Identity::Anonymous => Ok(Viewer { name: "local".to_owned() }),
            Identity::Tokens(tokens) => {
                let owner = session::owner(request.headers(), tokens.hashes(), now_ms() / 1000);
                let owner = owner
                    .ok_or_else(|| unauthorized("no valid session", "give a token of the console's --token-file"))?;
                Ok(Viewer { name: format!("token {}", owner + 1) })
            }
            Identity::Proxy { header, networks } => {
                let peer = request.extensions().get::<Peer>();
                let is_trusted =
                    peer.is_some_and(|Peer(address)| networks.iter().any(|network| network.contains(&address.ip())));
                if !is_trusted {
                    return Err(unauthorized("it came around the proxy", "use the URL of the proxy"));
                }
                named(request.headers(), header)
                    .ok_or_else(|| unauthorized("the proxy named no user", "sign in at the proxy"))
            }
        }
    }

    /// The cookie for a request that has a token in its header Authorization.
    pub(crate) fn session(&self, headers: &HeaderMap) -> Result<HeaderValue, Problem> {
        let Identity::Tokens(tokens) = &self.identity else {
            return Err(Problem::new(
                ProblemKind::NotFound,
                "There is no such page",
                "this console has no tokens",
                "open its start page",
            ));
        };
        let given = bearer_token(headers).filter(|token| tokens.accept(token));
        let token =
            given.ok_or_else(|| unauthorized("the token is wrong", "ask the console's operator for a token"))?;
        // Browsers send this header over TLS and to this machine: the connections over which they take and return secure cookies.
        let is_secure = headers.contains_key("sec-fetch-site");
        Ok(session::cookie(&blake3::hash(token.as_bytes()), now_ms() / 1000, is_secure))
    }

    /// The answer to someone unknown. Its header tells the sign-in page whether a token would help.
    pub(super) fn challenge(&self, problem: Problem) -> Response {
        match self.identity {
            Identity::Tokens(_) => ([(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response(),
            _ => problem.into_response(),
        }
    }

    pub(crate) fn end_of_session() -> (HeaderName, HeaderValue) {
        (header::SET_COOKIE, session::removal())
    }
}

/// The only value of the header. With several, a proxy passed on what the browser had sent.
fn named(headers: &HeaderMap, name: &HeaderName) -> Option<Viewer> {
    let mut values = headers.get_all(name).iter();
    let (Some(only), None) = (values.next(), values.next()) else { return None };
    let name = only.to_str().ok()?.trim();
    (!name.is_empty() && name.len() <= NAME_BYTES_MAX).then(|| Viewer { name: name.to_owned() })
}

fn unauthorized(why: &'static str, next: &'static str) -> Problem {
    Problem::new(ProblemKind::Unauthorized, "The request has no known viewer", why, next)
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[test]
    fn a_header_counts_from_a_trusted_proxy_only_and_once_only() {
        let identity = Identity::Proxy {
            header: HeaderName::from_static("x-user"),
            networks: vec!["10.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap()],
        };
        let access = Access::new(identity, Hosts::default());
        let asked = |peer: &str, users: &[&str]| {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(Peer(peer.parse().unwrap()));
            for user in users {
                request.headers_mut().append("x-user", user.parse().unwrap());
            }
            access.viewer(&request).map(|viewer| viewer.name).map_err(|problem| problem.status)
        };
        assert_eq!(asked("10.1.2.3:1", &["ann"]), Ok("ann".to_owned()));
        assert_eq!(asked("[::1]:1", &[" bob "]), Ok("bob".to_owned()));
        assert_eq!(asked("127.0.0.1:1", &["ann"]), Err(401));
        assert_eq!(asked("10.1.2.3:1", &[]), Err(401));
        assert_eq!(asked("10.1.2.3:1", &[""]), Err(401));
        assert_eq!(asked("10.1.2.3:1", &["ann", "bob"]), Err(401));
        assert_eq!(asked("10.1.2.3:1", &[&"a".repeat(NAME_BYTES_MAX + 1)]), Err(401));
        assert_eq!(access.viewer(&Request::new(Body::empty())).unwrap_err().status, 401);
    }
}

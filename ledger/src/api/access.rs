//! Who may ask: callers with a token, or without any tokens callers on this machine.

use std::{net::IpAddr, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Uri, header},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use super::Api;
use crate::problem::{Problem, ProblemKind};

/// A shorter token could be guessed. `openssl rand -hex 32` gives 64 characters.
const TOKEN_CHARS_MIN: usize = 16;
/// Every request is compared with every token.
const TOKENS_MAX: usize = 100;

/// The accepted tokens; none if everyone may ask. Only hashes are kept, whose comparison takes the same time wherever they differ.
#[derive(Clone, Default)]
pub struct Tokens(Vec<blake3::Hash>);

/// Tokens that can't be used. The message names none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTokens {
    #[error("there is no token in it; write one on each line, such as the output of `openssl rand -hex 32`")]
    None,
    #[error(
        "the token on line {line} has fewer than {TOKEN_CHARS_MIN} characters and could be guessed; use `openssl rand -hex 32`"
    )]
    Short { line: usize },
    #[error(
        "the token on line {line} has characters that can't be in a header; use letters and digits, as of `openssl rand -hex 32`"
    )]
    Unprintable { line: usize },
    #[error("there are more than {TOKENS_MAX} tokens; remove the ones that are no longer used")]
    Many,
}

impl Tokens {
    /// One token on each line. Empty lines and lines that begin with `#` are ignored.
    pub fn of(text: &str) -> Result<Self, InvalidTokens> {
        let mut tokens = Vec::new();
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.trim()));
        for (line, token) in lines.filter(|(_, token)| !token.is_empty() && !token.starts_with('#')) {
            match token {
                _ if !token.bytes().all(|byte| byte.is_ascii_graphic()) => {
                    return Err(InvalidTokens::Unprintable { line });
                }
                _ if token.len() < TOKEN_CHARS_MIN => return Err(InvalidTokens::Short { line }),
                _ => tokens.push(blake3::hash(token.as_bytes())),
            }
        }
        match tokens.len() {
            0 => Err(InvalidTokens::None),
            1..=TOKENS_MAX => Ok(Self(tokens)),
            _ => Err(InvalidTokens::Many),
        }
    }

    /// Callers need no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares with all tokens, so that the time does not tell which one is right.
    fn accept(&self, token: &str) -> bool {
        let given = blake3::hash(token.as_bytes());
        self.0.iter().fold(false, |accepted, token| accepted | (*token == given))
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

pub(super) async fn require_token(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    if api.tokens.is_empty() || bearer_token(request.headers()).is_some_and(|token| api.tokens.accept(token)) {
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

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

/// Without tokens the server listens on loopback only. A page of a foreign site whose name resolves to this machine could still reach it
/// with a browser (DNS rebinding), but its requests name the foreign host.
pub(super) async fn require_own_host(State(api): State<Arc<Api>>, request: Request, next: Next) -> Response {
    if !api.tokens.is_empty() || is_loopback(request.uri(), request.headers()) {
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

fn is_loopback(uri: &Uri, headers: &HeaderMap) -> bool {
    let named =
        headers.get(header::HOST).and_then(|host| host.to_str().ok()).or_else(|| uri.authority().map(|a| a.as_str()));
    let Some(Ok(authority)) = named.map(str::parse::<axum::http::uri::Authority>) else { return false };
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn headers(name: header::HeaderName, value: &str) -> HeaderMap {
        [(name, value.parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_file_has_a_token_on_each_line() {
        let tokens = Tokens::of(&format!("# ann\n{TOKEN}\n\n  {TOKEN}bob  \n")).unwrap();
        assert!(tokens.accept(TOKEN) && tokens.accept(&format!("{TOKEN}bob")));
        for wrong in ["", "# ann", "0123456789abcdee", "0123456789abcdefb", " 0123456789abcdef"] {
            assert!(!tokens.accept(wrong), "{wrong:?}");
        }
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
        assert_eq!(Tokens::of("# none\n").unwrap_err(), InvalidTokens::None);
        assert_eq!(Tokens::of(&format!("{TOKEN}\ncanary")).unwrap_err(), InvalidTokens::Short { line: 2 });
        assert_eq!(Tokens::of("two words make a token").unwrap_err(), InvalidTokens::Unprintable { line: 1 });
        assert_eq!(Tokens::of(&format!("{TOKEN}\n").repeat(101)).unwrap_err(), InvalidTokens::Many);
    }

    #[test]
    fn a_token_comes_in_the_header_of_the_scheme_bearer() {
        let token = |value: &str| bearer_token(&headers(header::AUTHORIZATION, value)).map(str::to_owned);
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer abc").as_deref(), Some("abc"));
        for other in ["abc", "Basic abc", "Bearer", ""] {
            assert_eq!(token(other), None, "{other:?}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        let asked = |host: &str| is_loopback(&Uri::from_static("/v1/jobs"), &headers(header::HOST, host));
        for own in ["localhost", "LOCALHOST:9470", "127.0.0.1:9470", "127.1.2.3", "[::1]:9470"] {
            assert!(asked(own), "{own}");
        }
        for other in ["evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example:9470"] {
            assert!(!asked(other), "{other}");
        }
        assert!(!is_loopback(&Uri::from_static("/v1/jobs"), &HeaderMap::new()));
    }
}

//! Tokens: the secrets of callers, each in a header of the scheme `Bearer`.

use axum::http::{HeaderMap, header};

/// Minimum length of a token, because a shorter one could be guessed. `openssl rand -hex 32` gives 64 characters.
const TOKEN_CHARS_MIN: usize = 16;
/// Maximum number of tokens, because every request is compared with every token.
const TOKENS_MAX: usize = 100;

/// The accepted tokens; empty if callers need no token. Only hashes are kept, whose comparison takes the same time wherever they differ.
#[derive(Clone, Default, PartialEq, Eq)]
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
    /// Reads one token from each line. Empty lines and lines that begin with `#` are ignored.
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

    /// Returns whether callers need no token.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the hashes of the tokens, in the order of the file.
    pub fn hashes(&self) -> &[blake3::Hash] {
        &self.0
    }

    /// Returns whether this is one of the tokens. Compares it with all of them, so that the time does not show which one matches.
    pub fn accept(&self, token: &str) -> bool {
        let given = blake3::hash(token.as_bytes());
        self.0.iter().fold(false, |accepted, token| accepted | (*token == given))
    }
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// Returns the token in the header Authorization.
pub fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

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
        let token = |value: &str| {
            bearer_token(&[(header::AUTHORIZATION, value.parse().unwrap())].into_iter().collect()).map(str::to_owned)
        };
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("bearer abc").as_deref(), Some("abc"));
        for other in ["abc", "Basic abc", "Bearer", ""] {
            assert_eq!(token(other), None, "{other:?}");
        }
    }
}

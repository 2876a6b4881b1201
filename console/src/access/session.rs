//! The cookie of a viewer who gave a token. `EventSource` sends no headers, so a token alone would not do.
//!
//! The cookie holds when it ends and a hash that only the owner of a token can have, so the console keeps no sessions: they outlive its
//! restarts, and end when the token leaves the file.

use axum::http::{HeaderMap, HeaderValue, header};

/// A working day. After that the browser asks for the token again.
const VALID_SECONDS: u64 = 12 * 3600;
const NAME: &str = "gpufleet-console";
/// Separates these hashes from all other uses of the tokens.
const CONTEXT: &str = "gpufleet-console session cookie v1";

/// The value of the header Set-Cookie. `Secure` is for browsers that talk to the console over TLS, or on this machine.
pub(super) fn cookie(token: &blake3::Hash, now: u64, is_secure: bool) -> HeaderValue {
    let ends = now + VALID_SECONDS;
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!(
        "{NAME}={ends}.{}; Path=/; Max-Age={VALID_SECONDS}; HttpOnly; SameSite=Strict{secure}",
        signature(token, ends).to_hex()
    );
    text.parse().expect("digits, letters and separators may be in a header")
}

/// The value of Set-Cookie that ends a session in this browser.
pub(super) fn removal() -> HeaderValue {
    format!("{NAME}=; Path=/; Max-Age=0; HttpOnly; SameSite=Strict").parse().expect("letters may be in a header")
}

/// The index of the token for which the request has a valid cookie.
pub(super) fn owner(headers: &HeaderMap, tokens: &[blake3::Hash], now: u64) -> Option<usize> {
    let cookies = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|value| value.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    let (ends, given) = cookies.find(|(name, _)| *name == NAME)?.1.split_once('.')?;
    let (ends, given) = (ends.parse::<u64>().ok()?, blake3::Hash::from_hex(given).ok()?);
    if ends <= now || ends > now + VALID_SECONDS {
        return None;
    }
    // Hashes compare in constant time.
    tokens.iter().position(|token| signature(token, ends) == given)
}

fn signature(token: &blake3::Hash, ends: u64) -> blake3::Hash {
    let key = blake3::derive_key(CONTEXT, token.as_bytes());
    blake3::keyed_hash(&key, &ends.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(set_cookie: &HeaderValue) -> HeaderMap {
        let pair = set_cookie.to_str().unwrap().split(';').next().unwrap();
        [(header::COOKIE, format!("other=1; {pair}").parse().unwrap())].into_iter().collect()
    }

    #[test]
    fn a_cookie_is_valid_for_its_token_and_its_time() {
        let tokens = [blake3::hash(b"first"), blake3::hash(b"second")];
        let cookie = cookie(&tokens[1], 1000, true);
        let text = cookie.to_str().unwrap();
        assert!(text.contains("HttpOnly") && text.contains("SameSite=Strict") && text.contains("Secure"), "{text}");
        assert!(!text.contains(&tokens[1].to_hex().to_string()), "the cookie does not show the token's hash");
        let headers = sent(&cookie);
        assert_eq!(owner(&headers, &tokens, 1000), Some(1));
        assert_eq!(owner(&headers, &tokens, 1000 + VALID_SECONDS - 1), Some(1));
        assert_eq!(owner(&headers, &tokens, 1000 + VALID_SECONDS), None);
        assert_eq!(owner(&headers, &tokens[..1], 1000), None, "the token has left the file");
        assert_eq!(owner(&HeaderMap::new(), &tokens, 1000), None);
    }

    #[test]
    fn a_changed_cookie_is_worthless() {
        let tokens = [blake3::hash(b"first")];
        let text = cookie(&tokens[0], 1000, false).to_str().unwrap().to_owned();
        let later = text.replacen("44200", "44201", 1);
        assert_ne!(text, later);
        assert_eq!(owner(&sent(&later.parse().unwrap()), &tokens, 1001), None);
        for wrong in ["gpufleet-console=", "gpufleet-console=1.2", "gpufleet-console=x.y"] {
            assert_eq!(owner(&sent(&wrong.parse().unwrap()), &tokens, 1000), None, "{wrong}");
        }
    }
}

//! Claim checks: an array that is too large for a message is stored in a blob store, and the message names it by its
//! digest.
//!
//! A digest is written as `sha256:` and 64 hexadecimal digits. A reader checks the content against the digest, so a
//! damaged or modified blob is detected. A client that knows a digest may read the blob.

use std::{fmt, str::FromStr};

use ring::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

const PREFIX: &str = "sha256:";

/// The SHA-256 digest of a blob's contents, in 32 bytes. Prints as `sha256:…`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest([u8; SHA256_OUTPUT_LEN]);

/// Computes a digest piece by piece.
#[derive(Clone)]
pub struct BlobHasher(Context);

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a blob name is {PREFIX} followed by 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl BlobDigest {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = BlobHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    pub(crate) fn bytes(&self) -> &[u8; SHA256_OUTPUT_LEN] {
        &self.0
    }

    /// The digits alone.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut digits = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            write!(digits, "{byte:02x}").expect("a string takes every text");
        }
        digits
    }
}

impl BlobHasher {
    pub fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub fn finish(self) -> BlobDigest {
        let digest = self.0.finish();
        BlobDigest(digest.as_ref().try_into().expect("SHA-256 gives 32 bytes"))
    }
}

impl fmt::Debug for BlobHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlobHasher").finish_non_exhaustive()
    }
}

impl Default for BlobHasher {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Accepts one spelling for each digest, so that it can be a file name.
impl FromStr for BlobDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        let digits = text.strip_prefix(PREFIX).ok_or(InvalidDigest)?.as_bytes();
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if digits.len() != 2 * bytes.len() {
            return Err(InvalidDigest);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

fn nibble(digit: u8) -> Result<u8, InvalidDigest> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(InvalidDigest),
    }
}

impl Serialize for BlobDigest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobDigest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// FIPS 180-2, appendix B.1.
    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn a_digest_is_sha_256_and_comes_back_from_its_text() {
        let digest = BlobDigest::of(b"abc");
        assert_eq!(digest.to_string(), ABC);
        assert_eq!(ABC.parse(), Ok(digest));
        let mut pieces = BlobHasher::new();
        pieces.update(b"a");
        pieces.update(b"bc");
        assert_eq!(pieces.finish(), digest);
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let upper = ABC.to_uppercase().replace("SHA256", "sha256");
        let path = format!("sha256:../{}", "a".repeat(61));
        for text in ["", "sha256:", &ABC[7..], &ABC[..70], &format!("{ABC}0"), &upper, &path, "sha512:00"] {
            assert_eq!(text.parse::<BlobDigest>(), Err(InvalidDigest), "{text}");
        }
    }
}

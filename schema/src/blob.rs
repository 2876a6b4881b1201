//! Claim checks: an array that is too large for a message is stored in a blob store, and the message names it by its
//! digest.
//!
//! A digest is written as `blake3:` or `sha256:` and 64 hexadecimal digits. gpufleet computes BLAKE3, which is several
//! times faster, and reads both, because every language has SHA-256. A reader checks the content against the digest,
//! so a damaged or modified blob is detected. A client that knows a digest may read the blob.

use std::{fmt, str::FromStr};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A hash function, as its name in a digest says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Algorithm {
    Blake3,
    Sha256,
}

/// The size of a digest of either algorithm.
const DIGEST_BYTES: usize = 32;

/// The digest of a blob's contents. Prints as `blake3:…` or `sha256:…`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlobDigest {
    algorithm: Algorithm,
    bytes: [u8; DIGEST_BYTES],
}

/// Computes a digest piece by piece.
#[derive(Clone)]
pub struct BlobHasher(Hasher);

#[derive(Clone)]
enum Hasher {
    Blake3(Box<blake3::Hasher>),
    Sha256(Box<Context>),
}

/// A text that is not a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a blob name is blake3: or sha256: followed by 64 lower-case hexadecimal digits")]
pub struct InvalidDigest;

impl Algorithm {
    const ALL: [Self; 2] = [Self::Blake3, Self::Sha256];

    fn name(self) -> &'static str {
        match self {
            Self::Blake3 => "blake3",
            Self::Sha256 => "sha256",
        }
    }
}

impl BlobDigest {
    /// Returns the digest for a new blob.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = BlobHasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    pub(crate) fn bytes(&self) -> &[u8; DIGEST_BYTES] {
        &self.bytes
    }

    /// Returns a hasher that computes this digest from the same contents.
    pub fn hasher(&self) -> BlobHasher {
        BlobHasher(match self.algorithm {
            Algorithm::Blake3 => Hasher::Blake3(Box::default()),
            Algorithm::Sha256 => Hasher::Sha256(Box::new(Context::new(&SHA256))),
        })
    }

    /// The digits alone.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut digits = String::with_capacity(2 * self.bytes.len());
        for byte in self.bytes {
            write!(digits, "{byte:02x}").expect("a string takes every text");
        }
        digits
    }

    /// The name of the blob in a store, such as `blake3-…`.
    pub fn file_name(&self) -> String {
        format!("{}-{}", self.algorithm.name(), self.hex())
    }

    /// Returns the digest of the blob with this name in a store, if it is a blob's name.
    pub fn of_file_name(name: &str) -> Option<Self> {
        let (algorithm, digits) = name.split_once('-')?;
        parse(algorithm, digits)
    }

    /// Returns whether a file with this name in a store belongs to gpufleet, even if it is not a blob's name.
    pub fn may_be_file_name(name: &str) -> bool {
        name.split_once('-').is_some_and(|(algorithm, _)| algorithm_of(algorithm).is_some())
    }
}

fn algorithm_of(name: &str) -> Option<Algorithm> {
    Algorithm::ALL.into_iter().find(|algorithm| algorithm.name() == name)
}

/// Accepts one spelling for each digest, so that it can be a file name.
fn parse(algorithm: &str, digits: &str) -> Option<BlobDigest> {
    let (algorithm, digits) = (algorithm_of(algorithm)?, digits.as_bytes());
    let mut bytes = [0; DIGEST_BYTES];
    if digits.len() != 2 * bytes.len() {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(BlobDigest { algorithm, bytes })
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl BlobHasher {
    /// Returns a hasher for a new blob.
    pub fn new() -> Self {
        Self(Hasher::Blake3(Box::default()))
    }

    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Hasher::Blake3(hasher) => _ = hasher.update(bytes),
            Hasher::Sha256(context) => context.update(bytes),
        }
    }

    pub fn finish(self) -> BlobDigest {
        match self.0 {
            Hasher::Blake3(hasher) => BlobDigest { algorithm: Algorithm::Blake3, bytes: *hasher.finalize().as_bytes() },
            Hasher::Sha256(context) => {
                let bytes = context.finish().as_ref().try_into().expect("SHA-256 gives 32 bytes");
                BlobDigest { algorithm: Algorithm::Sha256, bytes }
            }
        }
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
        write!(f, "{}:{}", self.algorithm.name(), self.hex())
    }
}

impl fmt::Debug for BlobDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for BlobDigest {
    type Err = InvalidDigest;

    fn from_str(text: &str) -> Result<Self, InvalidDigest> {
        text.split_once(':').and_then(|(algorithm, digits)| parse(algorithm, digits)).ok_or(InvalidDigest)
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
    const SHA256_OF_ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const BLAKE3_OF_ABC: &str = "blake3:6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85";

    #[test]
    fn a_new_digest_is_blake3_and_comes_back_from_its_text() {
        let digest = BlobDigest::of(b"abc");
        assert_eq!(digest.to_string(), BLAKE3_OF_ABC);
        assert_eq!(BLAKE3_OF_ABC.parse(), Ok(digest));
    }

    #[test]
    fn contents_can_be_checked_against_either_digest_piece_by_piece() {
        for text in [BLAKE3_OF_ABC, SHA256_OF_ABC] {
            let digest: BlobDigest = text.parse().unwrap();
            let mut pieces = digest.hasher();
            pieces.update(b"a");
            pieces.update(b"bc");
            assert_eq!(pieces.finish(), digest);
            assert_eq!(digest.file_name(), text.replace(':', "-"));
            assert_eq!(BlobDigest::of_file_name(&digest.file_name()), Some(digest));
        }
    }

    #[test]
    fn a_digest_has_one_spelling() {
        let abc = SHA256_OF_ABC;
        let upper = abc.to_uppercase().replace("SHA256", "sha256");
        let path = format!("sha256:../{}", "a".repeat(61));
        let dash = abc.replace(':', "-");
        for text in ["", "sha256:", &abc[7..], &abc[..70], &format!("{abc}0"), &upper, &path, &dash, "sha512:00"] {
            assert_eq!(text.parse::<BlobDigest>(), Err(InvalidDigest), "{text}");
        }
    }

    #[test]
    fn a_file_is_ours_if_its_name_begins_with_an_algorithm() {
        for (name, is_ours) in [("sha256-short", true), ("blake3-", true), ("blake3", false), ("md5-00", false)] {
            assert_eq!(BlobDigest::may_be_file_name(name), is_ours, "{name}");
            assert_eq!(BlobDigest::of_file_name(name), None);
        }
    }
}

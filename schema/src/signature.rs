//! Signatures of a task's program.
//!
//! A signature covers only the program, not the data or the launches. The digest is SHA-256 over these parts: the text
//! `gpufleet.v1.program`, the kind, the code, and each compile option. Each part follows its length as eight bytes
//! (little endian). The signature is ed25519 over that digest, as in RFC 8032. Keys have the form that `openssl genpkey
//! -algorithm ed25519` and `openssl pkey -pubout` write.

use std::{fmt, str::FromStr, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use ring::{
    digest,
    rand::{SecureRandom, SystemRandom},
    signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey},
};
use serde::{Deserialize, Serialize};

use crate::{Inline, Program};

/// The first part of the hashed data, so that a signature of other data is never valid for a program.
const DOMAIN: &[u8] = b"gpufleet.v1.program";
const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 64;
/// The bytes before an ed25519 key in DER (RFC 8410): before a public key, and before a private key without its public
/// half.
const PUBLIC_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
const PRIVATE_PREFIX: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
const PUBLIC_LABEL: &str = "PUBLIC KEY";
const PRIVATE_LABEL: &str = "PRIVATE KEY";

/// A signature in a task. Both parts are base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Signature {
    /// The public key.
    pub key: String,
    pub value: String,
}

/// A public key. Prints as base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

/// A private key. `Debug` does not show it.
#[derive(Clone)]
pub struct SigningKey {
    seed: [u8; KEY_BYTES],
    pair: Arc<Ed25519KeyPair>,
}

/// Why a text has no key. The error does not repeat the text, which may be secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidKey {
    #[error("no ed25519 public key found; expected PEM or one line of base64")]
    Public,
    #[error(
        "no ed25519 private key found; expected PEM, as `gpufleet keygen` and `openssl genpkey -algorithm ed25519` write it"
    )]
    Private,
    #[error("the operating system provides no random numbers")]
    Random,
}

/// Why a signature is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    #[error("is signed by the untrusted key {0}")]
    Key(String),
    #[error("has a signature that does not match the program")]
    Program,
}

impl Program<'_> {
    /// The signed digest. `None` for a cubin in the form of numbers, because workers refuse it, and for a session.
    pub fn digest(&self) -> Option<[u8; 32]> {
        let mut context = digest::Context::new(&digest::SHA256);
        let mut part = |bytes: &[u8]| {
            context.update(&(bytes.len() as u64).to_le_bytes());
            context.update(bytes);
        };
        part(DOMAIN);
        part(self.kind().as_bytes());
        match self {
            Self::Catalog(name) => part(name.as_bytes()),
            Self::Source { code, options } => {
                part(code.as_bytes());
                options.iter().for_each(|option| part(option.as_bytes()));
            }
            Self::Ptx(text) => part(text.as_bytes()),
            Self::Cubin(Inline::Bytes(bytes)) => part(bytes),
            // The code of a session is not in its task.
            Self::Cubin(Inline::Numbers(_)) | Self::Session { .. } | Self::Host(_) => return None,
        }
        context.finish().as_ref().try_into().ok()
    }
}

impl Signature {
    /// Checks that one of the trusted keys has signed the program.
    pub fn verify(&self, program: &Program<'_>, trusted: &[PublicKey]) -> Result<(), Untrusted> {
        let key = trusted.iter().find(|key| key.to_string() == self.key);
        let key = key.ok_or_else(|| Untrusted::Key(self.key.clone()))?;
        let value = BASE64_STANDARD.decode(&self.value).map_err(|_| Untrusted::Program)?;
        let digest = program.digest().ok_or(Untrusted::Program)?;
        UnparsedPublicKey::new(&ED25519, key.0).verify(&digest, &value).map_err(|_| Untrusted::Program)
    }

    /// Whether both parts are base64 of the right length.
    pub fn is_well_formed(&self) -> bool {
        let has = |text: &str, bytes: usize| {
            text.len() <= 2 * bytes && BASE64_STANDARD.decode(text).is_ok_and(|decoded| decoded.len() == bytes)
        };
        has(&self.key, KEY_BYTES) && has(&self.value, SIGNATURE_BYTES)
    }
}

impl SigningKey {
    /// A new key from the operating system's random numbers.
    pub fn generate() -> Result<Self, InvalidKey> {
        let mut seed = [0; KEY_BYTES];
        SystemRandom::new().fill(&mut seed).map_err(|_| InvalidKey::Random)?;
        Self::from_seed(seed)
    }

    pub fn from_seed(seed: [u8; KEY_BYTES]) -> Result<Self, InvalidKey> {
        let pair = Ed25519KeyPair::from_seed_unchecked(&seed).map_err(|_| InvalidKey::Private)?;
        Ok(Self { seed, pair: Arc::new(pair) })
    }

    pub fn from_pem(text: &str) -> Result<Self, InvalidKey> {
        let seed =
            blocks(text, PRIVATE_LABEL).find_map(|der| der.strip_prefix(PRIVATE_PREFIX.as_slice())?.try_into().ok());
        Self::from_seed(seed.ok_or(InvalidKey::Private)?)
    }

    /// The private key, for a file that only its owner can read.
    pub fn to_pem(&self) -> String {
        pem(PRIVATE_LABEL, &[PRIVATE_PREFIX.as_slice(), &self.seed].concat())
    }

    pub fn public(&self) -> PublicKey {
        PublicKey(self.pair.public_key().as_ref().try_into().expect("an ed25519 key has 32 bytes"))
    }

    /// Signs a program. `None` for a cubin in the form of numbers, because workers refuse it.
    pub fn sign(&self, program: &Program<'_>) -> Option<Signature> {
        let value = self.pair.sign(&program.digest()?);
        Some(Signature { key: self.public().to_string(), value: BASE64_STANDARD.encode(value) })
    }
}

impl PublicKey {
    /// Reads all keys of a text: PEM blocks, or lines of base64 with comments after `#`.
    pub fn read_all(text: &str) -> Result<Vec<Self>, InvalidKey> {
        let keys: Vec<Self> = if text.contains("-----BEGIN") {
            blocks(text, PUBLIC_LABEL)
                .map(|der| der.strip_prefix(PUBLIC_PREFIX.as_slice())?.try_into().ok().map(Self))
                .collect::<Option<_>>()
                .ok_or(InvalidKey::Public)?
        } else {
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
            lines.filter(|line| !line.is_empty()).map(str::parse).collect::<Result<_, _>>()?
        };
        if keys.is_empty() { Err(InvalidKey::Public) } else { Ok(keys) }
    }

    pub fn to_pem(self) -> String {
        pem(PUBLIC_LABEL, &[PUBLIC_PREFIX.as_slice(), &self.0].concat())
    }
}

impl FromStr for PublicKey {
    type Err = InvalidKey;

    fn from_str(text: &str) -> Result<Self, InvalidKey> {
        let bytes = BASE64_STANDARD.decode(text).map_err(|_| InvalidKey::Public)?;
        bytes.try_into().map(Self).map_err(|_| InvalidKey::Public)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&BASE64_STANDARD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey(of {})", self.public())
    }
}

/// An ed25519 key is one line of base64.
fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", BASE64_STANDARD.encode(der))
}

/// The contents of the blocks with this label. A block that is not base64 is empty.
fn blocks(text: &str, label: &str) -> impl Iterator<Item = Vec<u8>> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let blocks: Vec<Vec<u8>> = text
        .split(&begin)
        .skip(1)
        .filter_map(|rest| Some(rest.split_once(&end)?.0.split_whitespace().collect::<String>()))
        .map(|base64| BASE64_STANDARD.decode(base64).unwrap_or_default())
        .collect();
    blocks.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_seed([7; 32]).unwrap()
    }

    fn source(code: &str, options: &[&str]) -> Program<'static> {
        Program::Source {
            code: code.to_owned().into(),
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        }
    }

    #[test]
    fn a_signature_is_valid_for_one_program_and_one_key() {
        let program = source("a", &["-DX"]);
        let signature = key().sign(&program).unwrap();
        assert!(signature.is_well_formed());
        assert_eq!(signature.verify(&program, &[key().public()]), Ok(()));
        for other in [source("a", &[]), source("b", &["-DX"]), source("a-DX", &[]), Program::Ptx("a".into())] {
            assert_eq!(signature.verify(&other, &[key().public()]), Err(Untrusted::Program));
        }
        let stranger = SigningKey::generate().unwrap().public();
        assert!(matches!(signature.verify(&program, &[stranger]), Err(Untrusted::Key(_))));
        let renamed = Signature { key: stranger.to_string(), ..signature };
        assert_eq!(renamed.verify(&program, &[stranger]), Err(Untrusted::Program));
    }

    #[test]
    fn keys_are_read_as_they_are_written() {
        let read = SigningKey::from_pem(&key().to_pem()).unwrap();
        assert_eq!(read.public(), key().public());
        let other = SigningKey::from_seed([8; 32]).unwrap().public();
        let both = format!("{}{}", key().public().to_pem(), other.to_pem());
        assert_eq!(PublicKey::read_all(&both).unwrap(), [key().public(), other]);
        let lines = format!("# team a\n{}\n\n{other} # team b\n", key().public());
        assert_eq!(PublicKey::read_all(&lines).unwrap(), [key().public(), other]);
    }

    #[test]
    fn keys_of_openssl_are_read() {
        let pem = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIGh0VhUtX3RoAtPugKkFwj04Aa9q+h9A0m7PlupUx5k/\n-----END PRIVATE KEY-----\n";
        let public = "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEAkGb2R00lijt7s1WZHbctUVSc8FxrFy7hgJrZ+GEic68=\n-----END PUBLIC KEY-----\n";
        assert_eq!(PublicKey::read_all(public).unwrap(), [SigningKey::from_pem(pem).unwrap().public()]);
    }

    #[test]
    fn a_text_without_a_key_is_refused_and_not_repeated() {
        for text in ["", "# nothing", "hunter2", "-----BEGIN PUBLIC KEY-----\nhunter2\n-----END PUBLIC KEY-----"] {
            let error = PublicKey::read_all(text).unwrap_err();
            assert!(!error.to_string().contains("hunter2"));
            assert!(SigningKey::from_pem(text).is_err());
        }
        assert!(SigningKey::from_pem(&key().public().to_pem()).is_err());
        assert!(!format!("{:?}", key()).contains(&BASE64_STANDARD.encode([7; 32])));
    }
}

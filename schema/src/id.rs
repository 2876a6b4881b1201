//! Identifiers. Each has its own type, so that they can't be confused.

use std::{fmt, ops::Range, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use uuid::Uuid;

use crate::bounds::NAME_BYTES_MAX;

/// Why a text is not a valid identifier of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {text:?} {problem}")]
pub struct InvalidId {
    what: &'static str,
    text: String,
    problem: String,
}

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id. It is a UUIDv7, so ids sort by the time of their creation.
            #[expect(clippy::new_without_default, reason = "an id that appears by default would hide a mistake")]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            pub const fn from_uuid(uuid: Uuid) -> Self {
                Self(uuid)
            }

            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.hyphenated(), f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.hyphenated(), f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Uuid::try_parse(text).map(Self).map_err(|source| InvalidId {
                    what: $what,
                    text: text.chars().take(64).collect(),
                    problem: format!("is not a UUID: {source}"),
                })
            }
        }

        // Ids are text in both encodings, so that a person can grep for an id in any message. Readers of MessagePack
        // also accept the 16 bytes as `bin`, because most libraries write a UUID so.
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(&self.0.hyphenated())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct TextOrBytes;
                impl de::Visitor<'_> for TextOrBytes {
                    type Value = $name;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str(concat!("a ", $what, " (a UUID as text, or as 16 bytes in MessagePack)"))
                    }

                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        text.parse().map_err(E::custom)
                    }

                    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<$name, E> {
                        Uuid::from_slice(bytes).map($name).map_err(|_| E::invalid_length(bytes.len(), &self))
                    }
                }
                deserializer.deserialize_str(TextOrBytes)
            }
        }
    };
}

uuid_id! {
    /// Names one job permanently. Chosen by the producer, so that sending a task again can't make a second job.
    JobId, "job id"
}

/// An id with a time outside these years (2020 to 2099) counts as having no time. The bounds never change, because the
/// ledger's keys are derived from the id alone.
const YEARS_MS: Range<i64> = 1_577_836_800_000..4_102_444_800_000;

impl JobId {
    /// The time in the id, in milliseconds since 1970. Only a UUIDv7 has one.
    pub fn made_ms(&self) -> Option<i64> {
        if self.0.get_version_num() != 7 {
            return None;
        }
        let (seconds, nanoseconds) = self.0.get_timestamp()?.to_unix();
        let milliseconds = i64::try_from(seconds).ok()?.checked_mul(1000)? + i64::from(nanoseconds / 1_000_000);
        Some(milliseconds).filter(|milliseconds| YEARS_MS.contains(milliseconds))
    }
}

uuid_id! {
    /// Names one action of a person.
    ActionId, "action id"
}

uuid_id! {
    /// Names one message on the broker, which carries one task or a list of them.
    MessageId, "message id"
}

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                match name_problem(text) {
                    None => Ok(Self(text.to_owned())),
                    Some(problem) => {
                        Err(InvalidId { what: $what, text: text.chars().take(64).collect(), problem })
                    }
                }
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
            }
        }
    };
}

name_id! {
    /// A pool: task queues, a share, a budget and an isolation domain under one name.
    PoolName, "pool name"
}

name_id! {
    /// A producer's name on the replies exchange.
    ClientName, "client name"
}

name_id! {
    /// A worker's name in logs, replies and the ledger.
    WorkerName, "worker name"
}

/// Replaces a user's name that is not valid in a client name.
const ANY_USER: &str = "cli";

impl ClientName {
    /// A new unique name: the user's name, a dash, and sixteen hexadecimal digits. The part after the last dash has no
    /// dash, so that RabbitMQ's permissions can confine a user to names of their own. If the user's name is not valid
    /// in a client name, it is replaced by `cli`.
    pub fn fresh(user: &str) -> Self {
        let id = JobId::new().as_uuid().simple().to_string();
        let named = |prefix: &str| format!("{prefix}-{}", &id[16..]).parse();
        named(user).unwrap_or_else(|_| named(ANY_USER).expect("letters, digits and a dash are a valid name"))
    }

    /// Whether the user may receive replies under this name: a dash and a word without dashes follow the user's name, or `cli`
    /// if no client name can contain the user's name.
    pub fn belongs_to(&self, user: &str) -> bool {
        let owns = |prefix: &str| {
            let word = self.0.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
            word.is_some_and(|word| !word.is_empty() && !word.contains('-'))
        };
        owns(user) || (owns(ANY_USER) && !Self::fresh(user).as_str().starts_with(&format!("{user}-")))
    }
}

impl Default for PoolName {
    fn default() -> Self {
        Self("default".to_owned())
    }
}

/// Names are parts of queue names and routing keys, so they may not contain a dot, which separates words in a routing
/// key.
fn name_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return Some("is empty".to_owned());
    }
    if text.len() > NAME_BYTES_MAX {
        return Some(format!("is longer than {NAME_BYTES_MAX} bytes"));
    }
    text.chars()
        .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_')))
        .map(|c| format!("contains {c:?}; use letters, digits, '-' and '_'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_the_time_of_their_creation() {
        let ids: Vec<JobId> = (0..1000).map(|_| JobId::new()).collect();
        assert!(ids.is_sorted());
    }

    #[test]
    fn a_fresh_client_name_belongs_to_its_user() {
        let (first, second) = (ClientName::fresh("team-a"), ClientName::fresh("team-a"));
        assert_ne!(first, second);
        let (user, rest) = first.as_str().rsplit_once('-').unwrap();
        assert_eq!((user, rest.len()), ("team-a", 16));
        for unfit in ["anna@example.org", &"x".repeat(NAME_BYTES_MAX)] {
            assert!(ClientName::fresh(unfit).as_str().starts_with("cli-"), "{unfit}");
            assert!(ClientName::fresh(unfit).belongs_to(unfit), "{unfit}");
        }
    }

    #[test]
    fn a_client_belongs_to_one_user() {
        for (client, user, belongs) in [
            ("team-a-nightly", "team-a", true),
            ("team-a-nightly", "team", false),
            ("team-a", "team-a", false),
            ("team-a-", "team-a", false),
            ("nightly", "team-a", false),
            ("cli-nightly", "team-a", false),
            ("cli-nightly", "anna@example.org", true),
            ("cli-nightly", "cli", true),
        ] {
            assert_eq!(client.parse::<ClientName>().unwrap().belongs_to(user), belongs, "{client} of {user}");
        }
    }

    #[test]
    fn messagepack_may_have_an_id_as_its_sixteen_bytes() {
        let id = JobId::new();
        let as_bin = |bytes: &[u8]| [&[0xc4, u8::try_from(bytes.len()).unwrap()], bytes].concat();
        assert_eq!(rmp_serde::from_slice::<JobId>(&as_bin(id.as_uuid().as_bytes())).unwrap(), id);
        let message = MessageId::from_uuid(id.as_uuid());
        assert_eq!(rmp_serde::from_slice::<MessageId>(&as_bin(id.as_uuid().as_bytes())).unwrap(), message);
        for bytes in [&[][..], &[0; 15], &[0; 17], id.to_string().as_bytes()] {
            let problem = rmp_serde::from_slice::<JobId>(&as_bin(bytes)).unwrap_err().to_string();
            assert!(problem.contains(&format!("invalid length {}", bytes.len())), "{problem}");
            assert!(problem.contains("16 bytes in MessagePack"), "{problem}");
        }
    }

    #[test]
    fn json_has_an_id_as_text_alone() {
        let id = JobId::new();
        assert_eq!(serde_json::from_str::<JobId>(&format!("\"{id}\"")).unwrap(), id);
        assert!(serde_json::from_str::<JobId>(&format!("{:?}", id.as_uuid().as_bytes())).is_err());
    }

    #[test]
    fn only_a_uuid_of_version_7_has_a_time() {
        let made_ms = |text: &str| text.parse::<JobId>().unwrap().made_ms();
        assert_eq!(made_ms("0190a5b8-7c00-7000-8000-000000000001"), Some(0x0190_a5b8_7c00));
        for text in [
            "4f6d1b8e-9c0a-4c53-8a57-0d9a3bb1f2aa",
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-7fff-bfff-ffffffffffff",
        ] {
            assert_eq!(made_ms(text), None, "{text}");
        }
    }

    #[test]
    fn a_name_that_would_change_a_routing_key_is_refused() {
        for text in ["", "a.b", "a b", "a#", "*", "ü", &"x".repeat(200)] {
            assert!(text.parse::<PoolName>().is_err(), "{text:?}");
        }
        assert_eq!("team-a_1".parse::<PoolName>().unwrap().as_str(), "team-a_1");
    }
}

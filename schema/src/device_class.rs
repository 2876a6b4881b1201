//! Device classes: devices that are alike in everything that decides whether a job can run on them.
//!
//! Workers announce their classes, and consume a queue for each ([`crate::topology::forwarded_queue`]). A key names the
//! class, so that queue names are short and every worker with such a device uses the same queue.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{PoolName, Requires};

/// Names a class in queue names: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassKey(u64);

/// The properties of the devices of a class, and of their worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct DeviceClass {
    /// The announcing worker writes the key. Readers do not derive it from the other fields, because a later version
    /// may have more fields.
    pub key: ClassKey,
    pub name: String,
    pub compute_capability: [u32; 2],
    pub memory_bytes: u64,
    /// Whether the worker has a blob store.
    #[serde(default)]
    pub blob_store: bool,
}

/// A worker of these pools has devices of these classes. A repeated announcement changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Announcement {
    pub pools: Vec<PoolName>,
    pub classes: Vec<DeviceClass>,
}

/// A text that is not a class key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a device class key; expected 16 lower-case hexadecimal digits")]
pub struct InvalidClassKey(String);

const KEY_DIGITS: usize = 16;

impl DeviceClass {
    pub fn new(name: &str, compute_capability: [u32; 2], memory_bytes: u64, blob_store: bool) -> Self {
        let [major, minor] = compute_capability;
        // The name comes last: it may contain anything.
        let identity = format!("{major}.{minor} {memory_bytes} {blob_store} {name}");
        let digest = blake3::hash(identity.as_bytes());
        let (first, _) = digest.as_bytes().split_first_chunk().expect("a digest has 32 bytes");
        let key = ClassKey(u64::from_be_bytes(*first));
        Self { key, name: name.to_owned(), compute_capability, memory_bytes, blob_store }
    }

    /// Whether the devices meet a job's requirements.
    pub fn meets(&self, requires: &Requires) -> bool {
        requires.compute_capability_min.is_none_or(|least| self.compute_capability >= least)
            && requires.memory_bytes_min.is_none_or(|least| self.memory_bytes >= least)
            && requires.device.as_ref().is_none_or(|part| self.name.to_lowercase().contains(&part.to_lowercase()))
    }
}

impl fmt::Display for DeviceClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor] = self.compute_capability;
        let store = if self.blob_store { ", blob store" } else { "" };
        write!(f, "{} (compute capability {major}.{minor}, {} bytes{store})", self.name, self.memory_bytes)
    }
}

impl fmt::Display for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for ClassKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClassKey {
    type Err = InvalidClassKey;

    fn from_str(text: &str) -> Result<Self, InvalidClassKey> {
        let is_key = text.len() == KEY_DIGITS && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        let key = if is_key { u64::from_str_radix(text, 16).ok() } else { None };
        key.map(Self).ok_or_else(|| InvalidClassKey(text.chars().take(2 * KEY_DIGITS).collect()))
    }
}

impl Serialize for ClassKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ClassKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn h200() -> DeviceClass {
        DeviceClass::new("NVIDIA H200", [9, 0], 141 << 30, false)
    }

    #[test]
    fn a_key_is_stable_and_differs_with_each_property_that_a_job_may_require() {
        assert_eq!(h200().key.to_string(), "611a0730ed78397f", "queue names depend on it");
        let others = [
            DeviceClass::new("NVIDIA H100", [9, 0], 141 << 30, false),
            DeviceClass::new("NVIDIA H200", [8, 0], 141 << 30, false),
            DeviceClass::new("NVIDIA H200", [9, 0], 80 << 30, false),
            DeviceClass::new("NVIDIA H200", [9, 0], 141 << 30, true),
        ];
        assert!(others.iter().all(|other| other.key != h200().key));
    }

    #[test]
    fn a_key_parses_back_and_other_texts_are_refused() {
        assert_eq!(h200().key.to_string().parse(), Ok(h200().key));
        for text in ["", "0123", "0123456789ABCDEF", "+123456789abcdef", "0123456789abcdef0"] {
            assert!(text.parse::<ClassKey>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_class_meets_requirements_up_to_its_own_properties() {
        let requires = |compute_capability_min, memory_bytes_min, device: Option<&str>| Requires {
            compute_capability_min,
            memory_bytes_min,
            device: device.map(str::to_owned),
        };
        assert!(h200().meets(&Requires::default()));
        assert!(h200().meets(&requires(Some([9, 0]), Some(141 << 30), Some("h200"))));
        assert!(!h200().meets(&requires(Some([9, 1]), None, None)));
        assert!(!h200().meets(&requires(None, Some((141 << 30) + 1), None)));
        assert!(!h200().meets(&requires(None, None, Some("H100"))));
    }
}

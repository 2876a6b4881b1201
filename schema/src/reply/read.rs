//! Reads a failure, which may have fields that this release does not know.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{
        MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use super::{Failure, FailureCode, Verdict};
use crate::{Excerpt, encoding::AnyValue, text::recordable};

/// The fields of this release.
#[derive(Deserialize)]
struct Known {
    verdict: Verdict,
    code: FailureCode,
    message: String,
    #[serde(default)]
    detail: Option<String>,
    #[serde(default)]
    line: Option<u32>,
    #[serde(default)]
    source: Option<Excerpt>,
}

#[derive(Deserialize)]
struct WithLater {
    #[serde(flatten)]
    known: Known,
    #[serde(flatten)]
    later: BTreeMap<String, AnyValue>,
}

impl<'de> Deserialize<'de> for Failure {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const FIELDS: &[&str] = &["verdict", "code", "message", "detail", "line", "source"];
        deserializer.deserialize_struct("Failure", FIELDS, FailureVisitor)
    }
}

struct FailureVisitor;

impl<'de> Visitor<'de> for FailureVisitor {
    type Value = Failure;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a failure")
    }

    /// Fields without names, as a worker's processes send them to each other.
    fn visit_seq<A: SeqAccess<'de>>(self, fields: A) -> Result<Failure, A::Error> {
        Known::deserialize(SeqAccessDeserializer::new(fields)).map(Failure::from)
    }

    fn visit_map<A: MapAccess<'de>>(self, fields: A) -> Result<Failure, A::Error> {
        let WithLater { known, later } = WithLater::deserialize(MapAccessDeserializer::new(fields))?;
        Ok(Failure::from(known).with_later_fields(&later))
    }
}

impl From<Known> for Failure {
    fn from(Known { verdict, code, message, detail, line, source }: Known) -> Self {
        Self { verdict, code, message, detail, line, source }
    }
}

impl Failure {
    /// Adds the fields to the detail, where a person sees them.
    fn with_later_fields(self, later: &BTreeMap<String, AnyValue>) -> Self {
        if later.is_empty() {
            return self;
        }
        let later = later.iter().map(|(field, value)| format!("{}: {value}", recordable(field)));
        let texts: Vec<String> = self.detail.clone().into_iter().chain(later).collect();
        self.with_detail(texts.join("\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_without_field_names_is_read() {
        let failure = Failure::new(Verdict::User, FailureCode::KernelFault, "m").with_detail("d").at_line(Some(3));
        let encoded = rmp_serde::to_vec(&failure).unwrap();
        assert_eq!(rmp_serde::from_slice::<Failure>(&encoded).unwrap(), failure);
    }
}

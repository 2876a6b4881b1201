//! The parameters of a request. An error names the invalid parameter.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, Path},
    http::request::Parts,
};
use chrono::{DateTime, Utc};
use gpufleet_schema::JobState;
use serde::{Deserialize, Deserializer, de::DeserializeOwned};
use serde_html_form::Deserializer as FormDeserializer;

use crate::problem::{Problem, ProblemKind};

/// The maximum length of a text. Names, kernels and label values are shorter, because a task with a longer one is
/// refused.
const TEXT_BYTES_MAX: usize = 1 << 10;

/// The parameters in the query of the URL.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = parts.uri.query().unwrap_or_default();
        serde_path_to_error::deserialize(FormDeserializer::from_bytes(query.as_bytes()))
            .map(Self)
            .map_err(|error| refused(&error.path().to_string(), &error.inner().to_string()))
    }
}

/// Reads a number. The deserializer of forms treats an empty value as absent; this function refuses it.
pub(super) fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| serde::de::Error::custom(format!("expected a number, found `{text}`")))
}

/// The text in the path of the URL.
pub(super) struct Id(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Id {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        match Path::<String>::from_request_parts(parts, state).await {
            Ok(Path(id)) => Ok(Self(id)),
            Err(_) => Err(refused("id", "it is not UTF-8")),
        }
    }
}

/// Returns the problem for an invalid parameter.
pub(super) fn refused(name: &str, why: &str) -> Problem {
    let detail = match name {
        "" | "." => why.to_owned(),
        name => format!("{name}: {why}"),
    };
    Problem::new(
        ProblemKind::BadRequest,
        "The request has an invalid parameter",
        detail,
        "correct the parameter; /openapi.json describes all of them",
    )
}

/// A text that the database can hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(pub(super) String);

/// A label that a job must have, as `KEY=VALUE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Label(pub(super) (String, String));

/// A time, as RFC 3339.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Time(pub(super) DateTime<Utc>);

impl FromStr for Text {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(format!("the text has more than {TEXT_BYTES_MAX} bytes"));
        }
        if text.contains('\0') {
            return Err("the text contains the character U+0000".to_owned());
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromStr for Label {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Text(text) = text.parse()?;
        let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
        Ok(Self((key.to_owned(), value.to_owned())))
    }
}

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let time = DateTime::parse_from_rfc3339(text).map_err(|_| "expected a time such as 2026-11-20T08:30:00Z")?;
        Ok(Self(time.to_utc()))
    }
}

/// Reads job states. A state that this release does not know is refused, because it is most likely misspelt.
pub(super) fn states<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<JobState>, D::Error> {
    let states = Vec::<String>::deserialize(deserializer)?;
    states.iter().map(|state| state.parse().map_err(serde::de::Error::custom)).collect()
}

macro_rules! deserialized_from_text {
    ($($name:ident),*) => {
        $(impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        })*
    };
}

deserialized_from_text!(Text, Label, Time);

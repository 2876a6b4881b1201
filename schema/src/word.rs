//! The words of the contract, such as states and failure codes, to which later releases may add.
//!
//! A reader keeps a word that it does not know as text. So it can read, show and record a message of a later release.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// Maximum length of a word that is kept whole. Words of the contract are far shorter.
const BYTES_MAX: usize = 48;
/// Maximum number of different words that a process keeps. Programs of a later release add few words; more come from a client that invents
/// them.
const WORDS_MAX: usize = 1000;
/// Replaces a new word once [`WORDS_MAX`] words are kept.
const OTHER: &str = "(another word)";

/// The unknown words that this process has read. They are kept for ever, so that a word is as small as an index.
static MET: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// A word of a later release, as its message has it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaterWord(u16);

impl LaterWord {
    /// Cuts the text at the bound, and replaces control characters, because a terminal would obey them.
    pub(crate) fn of(text: &str) -> Self {
        let mut word: String =
            text.chars().take(BYTES_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
        word.truncate(word.floor_char_boundary(BYTES_MAX));
        let mut met = MET.lock().unwrap_or_else(PoisonError::into_inner);
        let index = met.iter().position(|known| *known == word).unwrap_or_else(|| {
            if met.len() < WORDS_MAX {
                met.push(word.leak());
                met.len() - 1
            } else {
                WORDS_MAX
            }
        });
        Self(u16::try_from(index).expect("there are at most a thousand words"))
    }

    pub(crate) fn as_str(&self) -> &'static str {
        let met = MET.lock().unwrap_or_else(PoisonError::into_inner);
        met.get(usize::from(self.0)).copied().unwrap_or(OTHER)
    }
}

impl fmt::Debug for LaterWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Declares the words of one kind: an enum, their texts, and the reading of any other text as a word of a later release.
macro_rules! words {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[$word_doc:meta])* $word:ident = $text:literal,)* }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$word_doc])* $word,)*
            /// A word of a later release, kept as text.
            Later($crate::LaterWord),
        }

        impl $name {
            /// Every word of this release.
            pub const ALL: &'static [Self] = &[$(Self::$word),*];

            /// The word with this text, which may be of a later release.
            pub fn of(text: &str) -> Self {
                match text {
                    $($text => Self::$word,)*
                    _ => Self::Later($crate::LaterWord::of(text)),
                }
            }

            pub fn name(&self) -> &str {
                match self {
                    $(Self::$word => $text,)*
                    Self::Later(word) => word.as_str(),
                }
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.name())
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::word::read(deserializer, Self::of)
            }
        }

        #[cfg(feature = "json-schema")]
        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_generator: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                let known = serde_json::json!([$($text),*]);
                schemars::json_schema!({
                    "description": concat!($($doc,)+ " Later releases may add words.").trim_start(),
                    "anyOf": [{ "enum": known }, { "type": "string" }],
                })
            }
        }

        #[cfg(feature = "openapi")]
        impl ::utoipa::PartialSchema for $name {
            fn schema() -> ::utoipa::openapi::RefOr<::utoipa::openapi::schema::Schema> {
                $crate::word::openapi(Self::ALL.iter().map(Self::name))
            }
        }

        #[cfg(feature = "openapi")]
        impl ::utoipa::ToSchema for $name {}
    };
}

pub(crate) use words;

/// Reads a text and finds its word.
pub(crate) fn read<'de, D: serde::Deserializer<'de>, T>(deserializer: D, of: fn(&str) -> T) -> Result<T, D::Error> {
    struct Text<T>(fn(&str) -> T);
    impl<T> serde::de::Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a word")
        }

        fn visit_str<E>(self, text: &str) -> Result<T, E> {
            Ok((self.0)(text))
        }
    }
    deserializer.deserialize_str(Text(of))
}

/// The words of this release, or any other text.
#[cfg(feature = "openapi")]
pub(crate) fn openapi<'a>(
    words: impl Iterator<Item = &'a str>,
) -> utoipa::openapi::RefOr<utoipa::openapi::schema::Schema> {
    use utoipa::openapi::schema::{AnyOfBuilder, ObjectBuilder, Schema, Type};
    let known = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words));
    let later =
        ObjectBuilder::new().schema_type(Type::String).description(Some("A word that a later release has added."));
    Schema::AnyOf(AnyOfBuilder::new().item(known).item(later).build()).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AttemptState, FailureCode, JobState, UtilizationBy, Verdict};

    /// Each word is written as its name and read back, and so is any other text.
    macro_rules! check_words {
        ($($name:ident),*) => {$(
            for word in $name::ALL.iter().copied().chain([$name::of("of_a_later_release")]) {
                let text = serde_json::to_string(&word).unwrap();
                assert_eq!(text, format!("\"{word}\""));
                assert_eq!(serde_json::from_str::<$name>(&text).unwrap(), word);
                let packed = rmp_serde::to_vec_named(&word).unwrap();
                assert_eq!(rmp_serde::from_slice::<$name>(&packed).unwrap(), word);
            }
        )*};
    }

    #[test]
    fn words_of_this_and_of_later_releases_are_read_back() {
        check_words!(JobState, AttemptState, Verdict, FailureCode, UtilizationBy);
    }

    #[test]
    fn a_word_of_a_later_release_is_bounded_and_has_no_control_characters() {
        assert_eq!(FailureCode::of("\x1b[2Jred").name(), "\u{fffd}[2Jred");
        for text in ["x".repeat(1000), "ä".repeat(1000), String::new()] {
            let code = FailureCode::of(&text);
            assert!(code.name().len() <= BYTES_MAX && text.starts_with(code.name()), "{code}");
        }
        assert!(size_of::<FailureCode>() <= 4, "errors stay small");
    }
}

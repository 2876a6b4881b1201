//! The place of a job in a trace, as W3C Trace Context writes it: `00-TRACE-SPAN-FLAGS` in hexadecimal digits.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A trace, the span that is the parent of what comes next, and whether the trace is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    pub trace_id: u128,
    pub span_id: u64,
    pub flags: u8,
}

/// A text that is no trace context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 00-TRACE-SPAN-FLAGS in 32, 16 and 2 lower-case hexadecimal digits, neither TRACE nor SPAN all zeros")]
pub struct InvalidTraceContext;

/// The only version so far. Contexts of later versions begin in the same form.
const VERSION: &str = "00";
const SAMPLED: u8 = 1;
const TRACE_DIGITS: usize = 32;
const SPAN_DIGITS: usize = 16;
const BYTE_DIGITS: usize = 2;

impl TraceContext {
    /// A context whose trace is recorded if `sampled`.
    pub fn new(trace_id: u128, span_id: u64, sampled: bool) -> Self {
        Self { trace_id, span_id, flags: if sampled { SAMPLED } else { 0 } }
    }

    /// Whether the trace is recorded.
    pub fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// Reads an optional field. The W3C asks readers to ignore a context that they can't read, so that tracing fails no job.
    pub(crate) fn lenient<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Self>, D::Error> {
        Option::<Lenient>::deserialize(deserializer).map(|read| read.and_then(|Lenient(context)| context))
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, self.flags)
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceContext;

    fn from_str(text: &str) -> Result<Self, InvalidTraceContext> {
        let mut parts = text.split('-');
        let mut part = |digits: usize| {
            let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            parts.next().filter(|part| part.len() == digits && part.bytes().all(is_digit)).ok_or(InvalidTraceContext)
        };
        let (version, trace, span, flags) =
            (part(BYTE_DIGITS)?, part(TRACE_DIGITS)?, part(SPAN_DIGITS)?, part(BYTE_DIGITS)?);
        let more = parts.next().is_some();
        // A later version may have further parts.
        if version == "ff" || (version == VERSION && more) {
            return Err(InvalidTraceContext);
        }
        let trace_id = u128::from_str_radix(trace, 16).map_err(|_| InvalidTraceContext)?;
        let span_id = u64::from_str_radix(span, 16).map_err(|_| InvalidTraceContext)?;
        let flags = u8::from_str_radix(flags, 16).map_err(|_| InvalidTraceContext)?;
        let is_valid = trace_id != 0 && span_id != 0;
        is_valid.then_some(Self { trace_id, span_id, flags }).ok_or(InvalidTraceContext)
    }
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A context, or none if the text is not one.
struct Lenient(Option<TraceContext>);

impl<'de> Deserialize<'de> for Lenient {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl de::Visitor<'_> for Text {
            type Value = Lenient;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a trace context as text")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Lenient, E> {
                Ok(Lenient(text.parse().ok()))
            }
        }

        deserializer.deserialize_str(Text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_context_is_written_as_it_was_read() {
        let context: TraceContext = EXAMPLE.parse().unwrap();
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), EXAMPLE);
        assert_eq!(context.trace_id, 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(!TraceContext::new(1, 2, false).is_sampled());
    }

    #[test]
    fn a_later_version_is_read_like_the_first_and_its_further_parts_are_ignored() {
        let later = format!("01{}-of-a-later-version", &EXAMPLE[2..]);
        assert_eq!(later.parse::<TraceContext>().unwrap().to_string(), EXAMPLE);
    }

    #[test]
    fn texts_that_are_no_context_are_refused() {
        let zeros = "0".repeat(32);
        for text in [
            "",
            "00",
            &EXAMPLE[..54],
            &EXAMPLE.to_uppercase(),
            &format!("{EXAMPLE}-00"),
            &format!("ff{}", &EXAMPLE[2..]),
            &format!("00-{zeros}-00f067aa0ba902b7-01"),
            &format!("00-4bf92f3577b34da6a3ce929d0e0e4736-{}-01", &zeros[..16]),
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            assert_eq!(text.parse::<TraceContext>(), Err(InvalidTraceContext), "{text}");
        }
    }
}

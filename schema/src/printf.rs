//! The `printf` output of an attempt's kernels, or the output of a host program.
//!
//! The text is untrusted. So it is bounded, it is UTF-8, and it has no control characters that could change a terminal.

use serde::{Deserialize, Serialize};

use crate::bounds::PRINTF_OUTPUT_BYTES_MAX;

/// The beginning of what kernels printed, or the end of what a host program wrote, and how much is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PrintfOutput {
    /// At most [`PRINTF_OUTPUT_BYTES_MAX`] bytes.
    pub text: String,
    /// The number of bytes that were printed after the text, or by a host program before it, and dropped.
    #[serde(default)]
    pub dropped_bytes: u64,
    /// Whether the text is the end of the output, as that of a host program is, and not its beginning. Old workers leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_tail: bool,
}

impl PrintfOutput {
    /// Makes the output from printed bytes, after which `dropped` more bytes were printed. `None` if nothing was
    /// printed.
    ///
    /// Bytes that are not UTF-8, and control characters other than newlines and tabs, become U+FFFD.
    pub fn of(bytes: &[u8], dropped: u64) -> Option<Self> {
        if bytes.is_empty() && dropped == 0 {
            return None;
        }
        let mut text = String::with_capacity(bytes.len().min(PRINTF_OUTPUT_BYTES_MAX));
        let taken = take(bytes, &mut text, PRINTF_OUTPUT_BYTES_MAX);
        let dropped_bytes = dropped.saturating_add((bytes.len() - taken) as u64);
        Some(Self { text, dropped_bytes, is_tail: false })
    }

    /// Makes the output from the last bytes of a text, before which `dropped` more bytes were printed. `None` if nothing was printed.
    pub fn tail_of(bytes: &[u8], dropped: u64) -> Option<Self> {
        let mut start = 0;
        // Replaced bytes may take more room than they had, so some more of the beginning may have to go.
        while let Some(found) = Self::of(&bytes[start..], 0) {
            match usize::try_from(found.dropped_bytes).unwrap_or(usize::MAX) {
                0 => {
                    let dropped_bytes = dropped.saturating_add(start as u64);
                    return Some(Self { dropped_bytes, is_tail: true, ..found });
                }
                beyond => start = (start + beyond).min(bytes.len()),
            }
        }
        (dropped > 0).then(|| Self { text: String::new(), dropped_bytes: dropped, is_tail: true })
    }

    /// The output within its bounds, for output from an untrusted event or reply.
    pub fn recordable(&self) -> Option<Self> {
        match self.is_tail {
            true => Self::tail_of(self.text.as_bytes(), self.dropped_bytes),
            false => Self::of(self.text.as_bytes(), self.dropped_bytes),
        }
    }
}

/// Appends what fits into the bound, and returns how many bytes that was.
pub(crate) fn take(bytes: &[u8], text: &mut String, bytes_max: usize) -> usize {
    let mut taken = 0;
    for chunk in bytes.utf8_chunks() {
        let valid = chunk.valid().chars().map(|c| (printable(c), c.len_utf8()));
        let invalid = Some((char::REPLACEMENT_CHARACTER, chunk.invalid().len())).filter(|(_, length)| *length > 0);
        for (c, length) in valid.chain(invalid) {
            if text.len() + c.len_utf8() > bytes_max {
                return taken;
            }
            text.push(c);
            taken += length;
        }
    }
    taken
}

fn printable(c: char) -> char {
    if c.is_control() && !matches!(c, '\n' | '\t') { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_its_bounds_does_not_change() {
        let text = "thread 0:\tx=1.5 µm\n".repeat(100);
        let printed = PrintfOutput::of(text.as_bytes(), 0).unwrap();
        assert_eq!(printed, PrintfOutput { text, dropped_bytes: 0, is_tail: false });
        assert_eq!(printed.recordable(), Some(printed));
        assert_eq!(PrintfOutput::of(b"", 0), None);
    }

    #[test]
    fn control_characters_are_replaced_and_the_text_is_utf_8() {
        let printed = PrintfOutput::of(b"a\x1b[2J\0b\r\xff\xc3\n", 0).unwrap();
        assert_eq!(printed.text, "a\u{fffd}[2J\u{fffd}b\u{fffd}\u{fffd}\u{fffd}\n");
        assert_eq!(printed.dropped_bytes, 0);
    }

    #[test]
    fn the_beginning_is_kept_and_every_other_byte_is_counted() {
        let printed = PrintfOutput::of(&[b'x'; PRINTF_OUTPUT_BYTES_MAX + 7], 5).unwrap();
        assert_eq!((printed.text.len(), printed.dropped_bytes), (PRINTF_OUTPUT_BYTES_MAX, 12));
        // Each byte becomes three.
        let printed = PrintfOutput::of(&[0; PRINTF_OUTPUT_BYTES_MAX], 0).unwrap();
        let kept = PRINTF_OUTPUT_BYTES_MAX / 3;
        assert_eq!(printed.text.len(), 3 * kept);
        assert_eq!(printed.dropped_bytes, (PRINTF_OUTPUT_BYTES_MAX - kept) as u64);
        assert_eq!(
            PrintfOutput::of(b"", 9).unwrap(),
            PrintfOutput { text: String::new(), dropped_bytes: 9, is_tail: false }
        );
        assert_eq!(PrintfOutput::of(b"x", u64::MAX).unwrap().dropped_bytes, u64::MAX);
    }

    #[test]
    fn of_the_end_of_an_output_the_last_bytes_are_kept() {
        let end = PrintfOutput::tail_of(b"last\n", 7).unwrap();
        assert_eq!(end, PrintfOutput { text: "last\n".to_owned(), dropped_bytes: 7, is_tail: true });
        assert_eq!(end.recordable(), Some(end));
        // Each byte becomes three.
        let bytes = [vec![0; PRINTF_OUTPUT_BYTES_MAX], b"end".to_vec()].concat();
        let end = PrintfOutput::tail_of(&bytes, 1).unwrap();
        assert!(end.text.ends_with("\u{fffd}end") && end.text.len() <= PRINTF_OUTPUT_BYTES_MAX, "{}", end.text.len());
        assert!(end.text.len() > PRINTF_OUTPUT_BYTES_MAX / 4);
        assert_eq!(PrintfOutput::tail_of(b"", 0), None);
    }
}

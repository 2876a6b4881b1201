//! Cuts texts of untrusted tasks for the ledger.
//!
//! A task whose texts exceed their bounds is refused and recorded. Its texts are cut, so that an event stays small
//! beside the others of its message and fits an index. Control characters are replaced, because a terminal would obey
//! them.

use std::collections::BTreeMap;

use crate::bounds::{LABELS_MAX, TEXT_BYTES_MAX};

/// The text, cut to the bound of a task's texts.
pub fn recordable(text: &str) -> String {
    recordable_within(text, TEXT_BYTES_MAX)
}

/// The text, cut to this many bytes.
pub fn recordable_within(text: &str, bytes_max: usize) -> String {
    let mut kept = String::with_capacity(text.len().min(bytes_max));
    for c in text.chars().map(visible) {
        if kept.len() + c.len_utf8() > bytes_max {
            break;
        }
        kept.push(c);
    }
    kept
}

/// The labels, cut to their number and bounds. If two keys are equal once cut, one is kept.
pub fn recordable_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.iter().take(LABELS_MAX).map(|(key, value)| (recordable(key), recordable(value))).collect()
}

/// Whether a person does not see the character although it changes how a text looks or compares: it turns the direction
/// of writing around, or has no width.
pub const fn is_invisible(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

fn visible(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_within_its_bounds_does_not_change() {
        for text in ["", "saxpy", "Größe in µm 🦀", &"x".repeat(TEXT_BYTES_MAX)] {
            assert_eq!(recordable(text), text);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_has_no_control_characters() {
        assert_eq!(recordable("a\x1b[2J\r\n\0b\u{9b}"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b\u{fffd}");
        for text in ["ä".repeat(9 << 20), format!("x{}", "🦀".repeat(100)), "\x07".repeat(1000)] {
            let kept = recordable(&text);
            assert!((TEXT_BYTES_MAX - 3..=TEXT_BYTES_MAX).contains(&kept.len()), "{} bytes", kept.len());
        }
    }

    #[test]
    fn labels_are_cut_to_the_bounds_of_a_task() {
        let many: BTreeMap<_, _> =
            (0..1000).map(|i| (format!("{i:03}{}", "k".repeat(500)), "v".repeat(5000))).collect();
        let kept = recordable_labels(&many);
        assert_eq!(kept.len(), LABELS_MAX);
        assert!(kept.iter().all(|(key, value)| key.len() == TEXT_BYTES_MAX && value.len() == TEXT_BYTES_MAX));
    }
}

//! What a stranger wrote, as history keeps it.
//!
//! A task whose texts are out of bounds is refused, and is recorded with those very texts: cut, so that an event stays small beside the
//! others of its message and an index takes it, and without what would steer the terminal that shows it.

use std::collections::BTreeMap;

use crate::bounds::{LABELS_MAX, TEXT_BYTES_MAX};

/// A text in the bounds of a task's texts. One that is in them stays as it is.
pub fn recordable(text: &str) -> String {
    let mut kept = String::with_capacity(text.len().min(TEXT_BYTES_MAX));
    for c in text.chars().map(visible) {
        if kept.len() + c.len_utf8() > TEXT_BYTES_MAX {
            break;
        }
        kept.push(c);
    }
    kept
}

/// As many labels as a task may have, each in its bounds. Of two keys that are the same once they are cut, one stays.
pub fn recordable_labels(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.iter().take(LABELS_MAX).map(|(key, value)| (recordable(key), recordable(value))).collect()
}

fn visible(c: char) -> char {
    if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_in_its_bounds_stays_as_it_is() {
        for text in ["", "saxpy", "Größe in µm 🦀", &"x".repeat(TEXT_BYTES_MAX)] {
            assert_eq!(recordable(text), text);
        }
    }

    #[test]
    fn a_text_is_cut_between_characters_and_steers_no_terminal() {
        assert_eq!(recordable("a\x1b[2J\r\n\0b\u{9b}"), "a\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}b\u{fffd}");
        for text in ["ä".repeat(9 << 20), format!("x{}", "🦀".repeat(100)), "\x07".repeat(1000)] {
            let kept = recordable(&text);
            assert!((TEXT_BYTES_MAX - 3..=TEXT_BYTES_MAX).contains(&kept.len()), "{} bytes", kept.len());
        }
    }

    #[test]
    fn labels_are_no_more_and_no_larger_than_a_task_may_have() {
        let many: BTreeMap<_, _> =
            (0..1000).map(|i| (format!("{i:03}{}", "k".repeat(500)), "v".repeat(5000))).collect();
        let kept = recordable_labels(&many);
        assert_eq!(kept.len(), LABELS_MAX);
        assert!(kept.iter().all(|(key, value)| key.len() == TEXT_BYTES_MAX && value.len() == TEXT_BYTES_MAX));
    }
}

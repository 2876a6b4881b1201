//! The text that a job's kernels print, put together from pieces. Some may be lost; the outcome has the whole text.

use gpufleet::schema::Printed;

/// What was received of the text that one run of a job prints.
#[derive(Debug, Default)]
pub struct ReceivedText {
    /// Where the text after the last gap begins.
    start: u64,
    /// The text since then.
    text: String,
    has_gap: bool,
}

impl ReceivedText {
    /// Adds the next piece. Returns the number of bytes that are missing before it.
    pub fn add(&mut self, piece: &Printed) -> u64 {
        let missing = piece.offset.saturating_sub(self.start + self.text.len() as u64);
        if missing > 0 {
            *self = Self { start: piece.offset, text: String::new(), has_gap: true };
        }
        self.text.push_str(&piece.text);
        missing
    }

    pub fn has_gap(&self) -> bool {
        self.has_gap
    }

    /// The part of the whole text after what was received. `None` if what was received is not in it.
    pub fn rest<'a>(&self, whole: &'a str) -> Option<&'a str> {
        let whole = usize::try_from(self.start).ok().and_then(|start| whole.get(start..))?;
        match whole.strip_prefix(self.text.as_str()) {
            // More may be received than the outcome keeps.
            None if self.text.starts_with(whole) => Some(""),
            rest => rest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(pieces: &[(u64, &str)]) -> (ReceivedText, Vec<u64>) {
        let mut text = ReceivedText::default();
        let missing =
            pieces.iter().map(|(offset, piece)| text.add(&Printed { offset: *offset, text: (*piece).to_owned() }));
        let missing = missing.collect();
        (text, missing)
    }

    #[test]
    fn pieces_make_the_whole_with_the_rest_of_it() {
        let (text, missing) = received(&[(0, "epoch 1\nepo"), (11, "ch 2\n")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 0], false));
        assert_eq!(text.rest("epoch 1\nepoch 2\nepoch 3\n"), Some("epoch 3\n"));
        assert_eq!(text.rest("epoch 1\nepoch 2\n"), Some(""));
        assert_eq!(text.rest("epoch 1\n"), Some(""), "the outcome keeps less");
        assert_eq!(text.rest("another text"), None);
        assert_eq!(ReceivedText::default().rest("all of it"), Some("all of it"));
    }

    #[test]
    fn after_a_gap_the_rest_is_what_follows_the_last_piece() {
        let whole = "0123456789";
        let (text, missing) = received(&[(0, "01"), (5, "5"), (6, "6")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 3, 0], true));
        assert_eq!(text.rest(whole), Some("789"));
        let (joined_late, missing) = received(&[(7, "7")]);
        assert_eq!((missing, joined_late.rest(whole)), (vec![7], Some("89")));
        assert_eq!(joined_late.rest("01"), None);
    }

    #[test]
    fn an_offset_that_counts_replaced_bytes_singly_is_no_gap() {
        let (text, missing) = received(&[(0, "\u{fffd}[2J"), (4, "done\n")]);
        assert_eq!((missing, text.has_gap()), (vec![0, 0], false));
        assert_eq!(text.rest("\u{fffd}[2Jdone\n.\n"), Some(".\n"));
    }
}

//! What was printed of a program's output while it ran, and what is missing. Messages about it may be lost; this is plain data.

use gpufleet::schema::{Printed, PrintfOutput};

use crate::progress::text::{after, bytes_least};

/// Gaps that are known one by one. A program that writes faster than messages carry has a gap every tenth of a second.
const GAPS_MAX: usize = 256;

/// The output of one attempt.
#[derive(Debug)]
pub struct Transcript {
    /// After a gap nothing more is printed before the end, so that the printed text is the output and nothing else.
    keeps_order: bool,
    last: Option<Piece>,
    gaps: Vec<Gap>,
    is_stuck: bool,
}

/// A piece that was printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub text: String,
}

/// A part that was not received, between what was printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The piece before it; none if it is at the start.
    pub after: Option<Piece>,
    /// Where it ends.
    pub until: u64,
}

/// What to do with a piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Added {
    Print,
    /// Print it, after a note about so many bytes before it.
    PrintAfterGap(u64),
    Keep,
}

/// The end of the output, after the last printed piece.
#[derive(Debug, PartialEq, Eq)]
pub enum Rest<'a> {
    /// It follows at once.
    Follows(&'a str),
    /// It follows a gap.
    AfterGap(Gap, &'a str),
}

impl Transcript {
    pub fn new(keeps_order: bool) -> Self {
        Self { keeps_order, last: None, gaps: Vec::new(), is_stuck: false }
    }

    pub fn add(&mut self, piece: &Printed) -> Added {
        if self.is_stuck || piece.offset < self.last.as_ref().map_or(0, Piece::end_least) {
            return Added::Keep;
        }
        let missing = piece.offset.saturating_sub(self.last.as_ref().map_or(0, Piece::end_most));
        if missing > 0 && self.keeps_order {
            self.is_stuck = true;
            return Added::Keep;
        }
        let before = self.last.replace(Piece { offset: piece.offset, text: piece.text.clone() });
        match missing {
            0 => Added::Print,
            _ => {
                self.add_gap(Gap { after: before, until: piece.offset });
                Added::PrintAfterGap(missing)
            }
        }
    }

    /// The end of the output in the outcome.
    pub fn rest<'a>(&self, tail: Option<&'a PrintfOutput>) -> Rest<'a> {
        let Some(tail) = tail else { return Rest::Follows("") };
        let rest = match &self.last {
            Some(last) => after(last.offset, &last.text, tail),
            None => (tail.dropped_bytes == 0).then_some(tail.text.as_str()),
        };
        match rest {
            Some(rest) => Rest::Follows(rest),
            None => Rest::AfterGap(Gap { after: self.last.clone(), until: tail.dropped_bytes }, &tail.text),
        }
    }

    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    fn add_gap(&mut self, gap: Gap) {
        let is_full = self.gaps.len() == GAPS_MAX;
        match self.gaps.last_mut().filter(|_| is_full) {
            // What was printed between the two is printed again.
            Some(last) => last.until = gap.until,
            None => self.gaps.push(gap),
        }
    }
}

impl Piece {
    /// Where the piece ends at the least, and at the most: a replaced character stands for one to three bytes.
    fn end_least(&self) -> u64 {
        self.offset + bytes_least(&self.text)
    }

    fn end_most(&self) -> u64 {
        self.offset + self.text.len() as u64
    }
}

impl Gap {
    /// About how many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.until.saturating_sub(self.after.as_ref().map_or(0, Piece::end_least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(offset: u64, text: &str) -> Printed {
        Printed { offset, text: text.to_owned() }
    }

    fn tail(dropped_bytes: u64, text: &str) -> PrintfOutput {
        PrintfOutput { text: text.to_owned(), dropped_bytes, is_tail: true }
    }

    fn piece(offset: u64, text: &str) -> Piece {
        Piece { offset, text: text.to_owned() }
    }

    #[test]
    fn an_output_without_gaps_needs_the_rest_alone() {
        let mut transcript = Transcript::new(true);
        assert_eq!(transcript.rest(Some(&tail(0, "all"))), Rest::Follows("all"), "nothing was received");
        assert_eq!(transcript.rest(None), Rest::Follows(""), "nothing was written");
        assert_eq!(transcript.add(&printed(0, "epoch 1\n")), Added::Print);
        assert_eq!(transcript.add(&printed(8, "epoch 2\n")), Added::Print);
        assert_eq!(transcript.add(&printed(8, "epoch 2\n")), Added::Keep, "a message may come twice");
        let whole = tail(0, "epoch 1\nepoch 2\nepoch 3\n");
        assert_eq!(transcript.rest(Some(&whole)), Rest::Follows("epoch 3\n"));
        assert_eq!(transcript.rest(Some(&tail(8, "epoch 2\n"))), Rest::Follows(""));
        assert!(transcript.gaps().is_empty());
    }

    #[test]
    fn replaced_characters_make_no_gap() {
        let mut transcript = Transcript::new(true);
        assert_eq!(transcript.add(&printed(0, "\u{fffd}[1mx")), Added::Print);
        assert_eq!(transcript.add(&printed(5, "y")), Added::Print);
        assert_eq!(transcript.rest(Some(&tail(0, "\u{fffd}[1mxyz"))), Rest::Follows("z"));
    }

    #[test]
    fn in_a_file_nothing_follows_a_gap_before_the_end() {
        let mut transcript = Transcript::new(true);
        assert_eq!(transcript.add(&printed(0, "01")), Added::Print);
        assert_eq!(transcript.add(&printed(5, "56")), Added::Keep);
        assert_eq!(transcript.add(&printed(7, "78")), Added::Keep);
        assert_eq!(transcript.rest(Some(&tail(0, "0123456789"))), Rest::Follows("23456789"));
        let gap = Gap { after: Some(piece(0, "01")), until: 6 };
        assert_eq!(gap.bytes(), 4);
        assert_eq!(transcript.rest(Some(&tail(6, "6789"))), Rest::AfterGap(gap, "6789"));
    }

    #[test]
    fn on_a_terminal_the_output_goes_on_after_a_gap() {
        let mut transcript = Transcript::new(false);
        assert_eq!(transcript.add(&printed(3, "3")), Added::PrintAfterGap(3), "the command came late");
        assert_eq!(transcript.add(&printed(7, "7")), Added::PrintAfterGap(3));
        assert_eq!(transcript.gaps(), [Gap { after: None, until: 3 }, Gap { after: Some(piece(3, "3")), until: 7 }]);
        assert_eq!(transcript.rest(Some(&tail(6, "6789"))), Rest::Follows("89"));
    }

    #[test]
    fn many_gaps_become_one() {
        let mut transcript = Transcript::new(false);
        for number in 1..=1000 {
            transcript.add(&printed(number * 10, "x"));
        }
        assert_eq!(transcript.gaps().len(), GAPS_MAX);
        assert_eq!(transcript.gaps().last().unwrap().until, 10_000);
    }
}

//! The whole output of a program, from which the parts are printed that were not received.

use std::{
    fs::File,
    io::{self, Write as _},
    os::unix::fs::FileExt as _,
};

use gpufleet::{
    Fleet, UnreadOutput,
    schema::{Printed, bounds::PROGRESS_TEXT_BYTES_MAX},
};

use super::{
    super::lines::Lines,
    transcript::{Gap, Piece, Rest, Transcript},
};
use crate::{
    complaint::{Complaint, chain},
    output, quantity,
};

/// The whole output in a file without a name.
#[derive(Debug)]
pub struct WholeOutput {
    file: File,
    bytes: u64,
}

impl WholeOutput {
    /// Reads the output of the job that has it.
    pub async fn read(fleet: &Fleet, output: &UnreadOutput) -> Result<Self, String> {
        let file = in_file(fleet, output).await?;
        let bytes = file.metadata().map_err(|error| error.to_string())?.len();
        Ok(Self { file, bytes })
    }

    /// Passes the text of a gap on in pieces. Returns how many bytes of it are not here.
    fn print(&self, gap: &Gap, mut emit: impl FnMut(&str) -> Result<(), Complaint>) -> Result<u64, Complaint> {
        let mut at = gap.after.as_ref().map_or(0, |piece| self.end_of(piece));
        let until = gap.until.min(self.bytes);
        while at < until {
            let length = usize::try_from(until - at).unwrap_or(usize::MAX).min(PROGRESS_TEXT_BYTES_MAX);
            let bytes = self.at(at, length).map_err(|error| {
                Complaint::new(crate::exit::Exit::Internal, format!("failed to read the output again: {error}"))
            })?;
            let (Printed { text, .. }, taken) = Printed::take(at, &bytes);
            // Only a character that is cut at the end is not taken.
            emit(if taken == 0 { "\u{fffd}" } else { &text })?;
            at += if taken == 0 { bytes.len() as u64 } else { taken as u64 };
        }
        Ok(gap.until.saturating_sub(at.max(until)))
    }

    /// Where a piece ends: so many bytes make its text.
    fn end_of(&self, piece: &Piece) -> u64 {
        let Ok(bytes) = self.at(piece.offset, piece.text.len()) else { return piece.offset };
        let text = |length: usize| Printed::take(0, &bytes[..length]).0.text;
        let least = usize::try_from(crate::progress::text::bytes_least(&piece.text)).unwrap_or(usize::MAX);
        let ends = (least.min(bytes.len())..=bytes.len()).find(|length| text(*length).len() >= piece.text.len());
        piece.offset + ends.unwrap_or(bytes.len()) as u64
    }

    /// Up to so many bytes, as the worker passed them on: with line ends for carriage returns.
    fn at(&self, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let left = usize::try_from(self.bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        self.file.read_exact_at(&mut bytes, offset)?;
        bytes.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        Ok(bytes)
    }
}

/// The bytes of an output, in a file without a name.
pub async fn in_file(fleet: &Fleet, output: &UnreadOutput) -> Result<File, String> {
    let mut file = tempfile::tempfile().map_err(|error| format!("failed to make a temporary file: {error}"))?;
    match output {
        UnreadOutput::Array(array) => {
            file.write_all(array.bytes()).map_err(|error| format!("failed to write a temporary file: {error}"))?;
            Ok(file)
        }
        UnreadOutput::Stored(stored) => fleet.copy_stored(stored, file).await.map_err(|error| chain(&error)),
    }
}

/// Prints what was not printed while the program ran. Returns the number of bytes that are missing.
///
/// `whole` is asked only if the outcome's end is not enough; it has none if the job has no more, or an error as text.
pub async fn complete(
    transcript: &Transcript,
    rest: Rest<'_>,
    whole: impl AsyncFnOnce() -> Result<Option<WholeOutput>, String>,
    lines: Lines,
    mut emit: impl FnMut(&str) -> Result<(), Complaint>,
) -> Result<u64, Complaint> {
    let needs_whole = !transcript.gaps().is_empty() || matches!(rest, Rest::AfterGap(..));
    let whole = match needs_whole {
        true => whole().await.unwrap_or_else(|problem| {
            lines.warn(&format!("failed to read the whole output: {problem}"));
            None
        }),
        false => None,
    };
    let mut missing = 0;
    let mut fill = |gap: &Gap, emit: &mut dyn FnMut(&str) -> Result<(), Complaint>| {
        missing += match &whole {
            Some(whole) => whole.print(gap, emit)?,
            None => gap.bytes(),
        };
        Ok::<_, Complaint>(())
    };
    match rest {
        Rest::Follows(text) => emit(text)?,
        Rest::AfterGap(gap, text) => {
            fill(&gap, &mut emit)?;
            emit(text)?;
        }
    }
    if !transcript.gaps().is_empty() && whole.is_some() {
        let bytes: u64 = transcript.gaps().iter().map(Gap::bytes).sum();
        lines.warn(&format!(
            "these parts of the output ({}) were not received while the program ran:",
            quantity::bytes(bytes)
        ));
    }
    for gap in transcript.gaps() {
        fill(gap, &mut emit)?;
        if whole.is_some() {
            emit("\n")?;
        }
    }
    Ok(missing)
}

/// Prints text, except the empty one.
pub fn emit(text: &str) -> Result<(), Complaint> {
    if text.is_empty() { Ok(()) } else { output::emit(text) }
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::PrintfOutput;

    use super::*;

    fn whole(bytes: &[u8]) -> WholeOutput {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        WholeOutput { file, bytes: bytes.len() as u64 }
    }

    fn tail(dropped_bytes: u64, text: &str) -> PrintfOutput {
        PrintfOutput { text: text.to_owned(), dropped_bytes, is_tail: true }
    }

    async fn completed(
        pieces: &[(u64, &str)],
        keeps_order: bool,
        tail: &PrintfOutput,
        whole: Option<WholeOutput>,
    ) -> (String, u64) {
        let mut transcript = Transcript::new(keeps_order);
        for (offset, text) in pieces {
            transcript.add(&Printed { offset: *offset, text: (*text).to_owned() });
        }
        let mut text = String::new();
        let emit = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        let lines = Lines { is_quiet: true };
        let rest = transcript.rest(Some(tail));
        let missing = complete(&transcript, rest, async || Ok(whole), lines, emit).await.unwrap();
        (text, missing)
    }

    #[tokio::test]
    async fn a_gap_before_the_end_comes_from_the_whole_output() {
        let log = whole(b"0123456789\r\x1b[0mend\n");
        let end = tail(11, "\u{fffd}[0mend\n");
        let (text, missing) = completed(&[(0, "01"), (6, "6")], true, &end, Some(log)).await;
        assert_eq!((text.as_str(), missing), ("23456789\n\u{fffd}[0mend\n", 0));
        let (text, missing) = completed(&[(0, "01"), (6, "6")], true, &end, None).await;
        assert_eq!((text.as_str(), missing), ("\u{fffd}[0mend\n", 9), "without it the bytes are counted");
        let (text, missing) = completed(&[], true, &end, Some(whole(b"0123456789"))).await;
        assert_eq!((text.as_str(), missing), ("0123456789\u{fffd}[0mend\n", 1), "it may be cut too");
    }

    #[tokio::test]
    async fn gaps_between_what_was_printed_come_at_the_end() {
        let log = whole("0µ\u{7}45678".as_bytes());
        let (text, missing) = completed(&[(0, "0"), (4, "4"), (7, "7")], false, &tail(7, "78"), Some(log)).await;
        assert_eq!((text.as_str(), missing), ("8µ\u{fffd}\n56\n", 0));
    }

    #[tokio::test]
    async fn the_whole_output_is_not_read_without_need() {
        let mut transcript = Transcript::new(true);
        transcript.add(&Printed { offset: 0, text: "01".to_owned() });
        let end = tail(0, "0123");
        let lines = Lines { is_quiet: true };
        let mut text = String::new();
        let emit = |piece: &str| {
            text.push_str(piece);
            Ok(())
        };
        let rest = transcript.rest(Some(&end));
        let missing = complete(&transcript, rest, async || unreachable!("it is not needed"), lines, emit).await;
        assert_eq!((text.as_str(), missing.unwrap()), ("23", 0));
    }

    #[test]
    fn the_end_of_a_piece_is_found_beside_replaced_bytes() {
        let log = whole(b"a\xff\xe2\x82b\xc3\xbcc");
        let piece = |offset, text: &str| Piece { offset, text: text.to_owned() };
        assert_eq!(log.end_of(&piece(0, "a\u{fffd}")), 2);
        assert_eq!(log.end_of(&piece(0, "a\u{fffd}\u{fffd}b")), 5, "two bytes of a character became one");
        assert_eq!(log.end_of(&piece(4, "bü")), 7);
    }
}

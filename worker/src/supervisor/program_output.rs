//! The output of a host program: published while it runs, and its end kept for the outcome.

use std::{collections::VecDeque, time::Duration};

use gpufleet_schema::{
    Printed, PrintfOutput, Progress, RanOn, Stage, VERSION,
    bounds::{PRINTF_OUTPUT_BYTES_MAX, PROGRESS_TEXT_BYTES_MAX},
    topology::progress_key,
};
use tokio::time::Instant;

use super::{clock::unix_ms, prepared::Ready, progress::ProgressChannel};

/// The time for which output is gathered into a message.
const GATHERED_FOR: Duration = Duration::from_millis(100);
/// Maximum number of messages in that time.
const MESSAGES_MAX: u32 = 5;
/// Maximum bytes that wait to be published. If the program writes faster than messages leave, the oldest are left out: the log has them.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// What a program has written so far.
#[derive(Debug)]
pub(super) struct ProgramOutput {
    started_ms: i64,
    /// The end of the output.
    tail: VecDeque<u8>,
    /// Bytes written in all.
    written: u64,
    /// The bytes at the end of the output that are not published yet.
    waiting: VecDeque<u8>,
    due: Option<Instant>,
    sequence: u64,
    /// Where the program runs, until a message has said it.
    ran_on: Option<Box<RanOn>>,
}

impl ProgramOutput {
    pub(super) fn new(started_ms: i64) -> Self {
        let (tail, waiting) = Default::default();
        Self { started_ms, tail, written: 0, waiting, due: None, sequence: 0, ran_on: None }
    }

    /// Has the first message say at once where the program runs.
    pub(super) fn begins(&mut self, ran_on: RanOn) {
        self.ran_on = Some(Box::new(ran_on));
        self.due = Some(Instant::now());
    }

    /// Takes a piece of output. A carriage return, with which programs draw progress bars, becomes a line end.
    pub(super) fn push(&mut self, mut piece: Vec<u8>) {
        if piece.contains(&b'\r') {
            piece.iter_mut().filter(|byte| **byte == b'\r').for_each(|byte| *byte = b'\n');
        }
        self.written += piece.len() as u64;
        append(&mut self.tail, &piece, PRINTF_OUTPUT_BYTES_MAX);
        append(&mut self.waiting, &piece, WAITING_BYTES_MAX);
        self.due.get_or_insert_with(|| Instant::now() + GATHERED_FOR);
    }

    /// Waits until output is to be published. Cancelling loses nothing.
    pub(super) async fn due(&self) {
        match self.due {
            Some(due) => tokio::time::sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Publishes what there is to publish, in a few messages. What finds no room is tried again.
    pub(super) fn publish(&mut self, channel: &ProgressChannel, job: &Ready) {
        self.due = None;
        for _ in 0..MESSAGES_MAX {
            if !self.publish_piece(channel, job) {
                break;
            }
        }
        if !self.waiting.is_empty() || self.ran_on.is_some() {
            self.due = Some(Instant::now() + GATHERED_FOR);
        }
    }

    /// Publishes a message, if there is something to publish. Returns whether it is on its way.
    fn publish_piece(&mut self, channel: &ProgressChannel, job: &Ready) -> bool {
        let (task, envelope) = (job.task(), job.envelope());
        let offset = self.written - self.waiting.len() as u64;
        let piece: Vec<u8> = self.waiting.iter().copied().take(PROGRESS_TEXT_BYTES_MAX).collect();
        let (printed, taken) = Printed::take(offset, &piece);
        if taken == 0 && self.ran_on.is_none() {
            return false;
        }
        let progress = Progress {
            version: VERSION,
            job_id: task.job_id,
            attempt: envelope.attempt,
            sequence: self.sequence,
            at_ms: unix_ms(),
            started_ms: self.started_ms,
            stage: Stage::Running,
            launches: None,
            counter: None,
            bytes: None,
            printed: (taken > 0).then_some(printed),
            ran_on: self.ran_on.clone(),
        };
        let reply_to = envelope.reply_to().ok().flatten();
        let client = envelope.recipient(task.reply.as_ref(), reply_to.as_ref());
        let is_sent = channel.offer(progress_key(&envelope.pool, client, task.job_id), &progress);
        if is_sent {
            self.waiting.drain(..taken);
            self.sequence += 1;
            self.ran_on = None;
        }
        is_sent
    }

    /// Returns the end of the output for the outcome.
    pub(super) fn end(mut self) -> Option<PrintfOutput> {
        let dropped = self.written - self.tail.len() as u64;
        PrintfOutput::tail_of(self.tail.make_contiguous(), dropped)
    }
}

/// Appends bytes to a buffer that keeps at most the last `bytes_max`.
fn append(buffer: &mut VecDeque<u8>, piece: &[u8], bytes_max: usize) {
    buffer.extend(piece);
    let surplus = buffer.len().saturating_sub(bytes_max);
    buffer.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_output_is_kept() {
        let mut output = ProgramOutput::new(0);
        output.push(b"first\r".to_vec());
        for _ in 0..20 {
            output.push(vec![b'x'; 8 << 10]);
        }
        output.push(b"last\n".to_vec());
        assert_eq!(output.waiting.len(), 20 * (8 << 10) + 11);
        let end = output.end().unwrap();
        assert!(end.text.ends_with("xlast\n"));
        assert_eq!(end.text.len(), PRINTF_OUTPUT_BYTES_MAX);
        assert_eq!(end.dropped_bytes, 20 * (8 << 10) + 11 - PRINTF_OUTPUT_BYTES_MAX as u64);
    }

    #[test]
    fn a_program_that_writes_nothing_has_no_output() {
        assert_eq!(ProgramOutput::new(0).end(), None);
    }
}

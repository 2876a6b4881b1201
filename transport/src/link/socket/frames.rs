//! Splits a broker's byte stream into AMQP frames and checks those with texts and tables. Bodies pass unchanged.

use std::io;

use tracing::warn;

use super::content::{self, Changes};

/// Type, channel and length of the payload.
const HEAD_BYTES: usize = 7;
/// One byte ends a frame.
const END_BYTES: usize = 1;
/// The longest frame that is held until complete; a longer one is an error. The usual limit is 128 KiB; an operator may have set more.
const WHOLE_BYTES_MAX: usize = 16 << 20;

const METHOD: u8 = 1;
const CONTENT_HEADER: u8 = 2;
/// The first byte of a protocol header. A broker of another version answers with one (`AMQP` and its version, 8 bytes) and disconnects.
const PROTOCOL_HEADER: u8 = b'A';

/// The position in a frame that passes unchanged.
#[derive(Debug, Default)]
pub(super) struct Frames {
    passing: usize,
}

/// The header of a frame.
struct Frame {
    kind: u8,
    bytes: usize,
}

impl Frames {
    /// Checks the next bytes of the stream. Returns how many of them, perhaps changed, are ready to be read; the others are the
    /// beginning of a frame, and must be passed again with the rest of it.
    pub(super) fn release(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        loop {
            let pass = self.passing.min(bytes.len() - at);
            self.passing -= pass;
            at += pass;
            let rest = &mut bytes[at..];
            match Frame::of(rest) {
                Some(frame) if !frame.has_to_be_whole() => self.passing = frame.bytes,
                Some(frame) if frame.bytes <= rest.len() => {
                    frame.check(&mut rest[..frame.bytes]);
                    at += frame.bytes;
                }
                Some(_) | None => return at,
            }
        }
    }

    /// The number of missing bytes of a frame that begins with these bytes, as far as known.
    pub(super) fn lacking(begun: &[u8]) -> io::Result<usize> {
        match Frame::of(begun) {
            None => Ok(HEAD_BYTES - begun.len()),
            Some(frame) if frame.bytes > WHOLE_BYTES_MAX => {
                Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {} bytes", frame.bytes)))
            }
            Some(frame) => Ok(frame.bytes - begun.len()),
        }
    }
}

impl Frame {
    fn of(bytes: &[u8]) -> Option<Self> {
        let (head, _) = bytes.split_first_chunk::<HEAD_BYTES>()?;
        let [kind, _, _, length @ ..] = *head;
        let payload = if kind == PROTOCOL_HEADER { 0 } else { u32::from_be_bytes(length) as usize };
        Some(Self { kind, bytes: HEAD_BYTES + payload + END_BYTES })
    }

    fn has_to_be_whole(&self) -> bool {
        matches!(self.kind, METHOD | CONTENT_HEADER)
    }

    fn check(&self, frame: &mut [u8]) {
        let payload = HEAD_BYTES..frame.len() - END_BYTES;
        let Changes { tables, texts } = match self.kind {
            CONTENT_HEADER => content::check_header(&mut frame[payload]),
            _ => content::check_method(&mut frame[payload]),
        };
        if tables > 0 || texts > 0 {
            warn!(
                tables,
                texts, "dropped header tables nested too deeply or strings that are not UTF-8 from a message"
            );
        }
    }
}

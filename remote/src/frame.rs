//! Frames: a header of 16 bytes, and a body.
//!
//! ```text
//! u32 length of the body | u16 kind | u16 flags | u64 sequence
//! ```
//!
//! Calls and their parts have a sequence number, from 1 and without gaps; other frames have 0.

use crate::codec::{Malformed, Put, Reader};

pub const HEADER_BYTES: usize = 16;
/// Maximum bytes of a body: two pieces of [`PIECE_BYTES`], and the arguments beside them.
pub const BODY_BYTES_MAX: usize = (8 << 20) + (64 << 10);
/// Maximum bytes that a piece of a long call, or one copy between program and device, has.
pub const PIECE_BYTES: usize = 4 << 20;
/// Maximum bytes of posts that were sent and not yet made.
pub const WINDOW_BYTES: u64 = 64 << 20;
/// Maximum bytes of a call, in all of its pieces. Only images of programs have more than one.
pub const CALL_BYTES_MAX: usize = 1 << 30;

macro_rules! frame_kinds {
    ($($(#[$meta:meta])* $name:ident = $number:literal;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum FrameKind {
            $($(#[$meta])* $name = $number,)+
        }

        impl FrameKind {
            fn from_number(number: u16) -> Option<Self> {
                match number {
                    $($number => Some(Self::$name),)+
                    _ => None,
                }
            }
        }
    };
}

frame_kinds! {
    /// From the program: token, process, and the calls that it knows.
    Hello = 1;
    /// From the session: the calls that it runs, and facts about the device.
    Welcome = 2;
    /// From the session: why it will not serve this program.
    Reject = 3;
    /// From either side: nothing follows.
    Bye = 4;
    /// From the program: a call, or its last piece.
    Call = 16;
    /// From the program: a piece of a call that is too long for one frame.
    Piece = 17;
    /// From the session: the result of a call.
    Answer = 18;
    /// From the session: how many bytes of posts it has made.
    Ack = 22;
    /// From the session: what kernels printed.
    Printed = 19;
    /// From the session: a function of the program is to be run.
    Callback = 20;
    /// From the program: that function has returned.
    Return = 21;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub length: usize,
    pub kind: FrameKind,
    pub flags: u16,
    pub sequence: u64,
}

impl Header {
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes);
        let (length, kind, flags, sequence) = (reader.u32()?, reader.u16()?, reader.u16()?, reader.u64()?);
        let length = length as usize;
        if length > BODY_BYTES_MAX {
            return Err(Malformed);
        }
        Ok(Self { length, kind: FrameKind::from_number(kind).ok_or(Malformed)?, flags, sequence })
    }
}

/// A frame that is being written: the header, whose length is set at the end, and the body.
pub fn start(kind: FrameKind) -> Vec<u8> {
    let mut frame = Vec::with_capacity(256);
    frame.u32(0);
    frame.u16(kind as u16);
    frame.u16(0);
    frame.u64(0);
    frame
}

/// Sets the length and the sequence number.
pub fn finish(frame: &mut [u8], sequence: u64) {
    let length = u32::try_from(frame.len() - HEADER_BYTES).expect("bodies are bounded");
    frame[..4].copy_from_slice(&length.to_le_bytes());
    frame[8..HEADER_BYTES].copy_from_slice(&sequence.to_le_bytes());
}

/// Returns a whole frame without a sequence number.
pub fn frame(kind: FrameKind, body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = start(kind);
    body(&mut frame);
    finish(&mut frame, 0);
    frame
}

#[cfg(test)]
mod tests {
    use super::{BODY_BYTES_MAX, FrameKind, HEADER_BYTES, Header, finish, start};
    use crate::codec::{Malformed, Put};

    #[test]
    fn a_frame_has_these_bytes() {
        let mut frame = start(FrameKind::Call);
        frame.u16(0x1234);
        finish(&mut frame, 5);
        assert_eq!(frame, [2, 0, 0, 0, 16, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0x34, 0x12]);
        let header = Header::parse(frame.first_chunk::<HEADER_BYTES>().unwrap()).unwrap();
        assert_eq!(header, Header { length: 2, kind: FrameKind::Call, flags: 0, sequence: 5 });
    }

    #[test]
    fn unknown_kinds_and_long_bodies_are_refused() {
        let mut frame = start(FrameKind::Call);
        finish(&mut frame, 0);
        let mut header = *frame.first_chunk::<HEADER_BYTES>().unwrap();
        header[4] = 99;
        assert_eq!(Header::parse(&header), Err(Malformed));
        header[4] = 16;
        header[..4].copy_from_slice(&(BODY_BYTES_MAX as u32 + 1).to_le_bytes());
        assert_eq!(Header::parse(&header), Err(Malformed));
    }
}

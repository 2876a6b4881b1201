//! Frames on a Unix stream socket: four bytes with the length, four with flags, then the body in MessagePack.
//!
//! The descriptor of a memory file is sent with the header of the frame that names it. The kernel delivers descriptors in their order, each
//! with the first of the bytes that it was sent with or earlier, so the oldest one belongs to the first frame that names one.

use std::{
    collections::VecDeque,
    io::{self, IoSlice, IoSliceMut, Write},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use rustix::{
    cmsg_space,
    io::retry_on_intr,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::{Serialize, de::DeserializeOwned};

/// Maximum size of a frame's body, in bytes: more than the largest program together with the longest list of launches in a message.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES: usize = 8;
const FLAG_DESCRIPTOR: u32 = 1;
/// The least and the most bytes that are received at a time. The least is more than the frame of a usual job.
const STEP_BYTES: (usize, usize) = (8 << 10, 256 << 10);
/// Size of the control data of a message with one descriptor, in bytes.
const CONTROL_BYTES: usize = cmsg_space!(ScmRights(1));

/// An encoded frame.
#[derive(Debug)]
pub struct Frame {
    pub bytes: Vec<u8>,
    pub descriptor: Option<OwnedFd>,
}

/// Why a message can't be sent, or received bytes are not a message.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("failed to use the executor's socket")]
    Io(#[from] io::Error),
    #[error("failed to encode a frame")]
    Encode(#[from] rmp_serde::encode::Error),
    #[error("failed to decode a frame")]
    Decode(#[from] rmp_serde::decode::Error),
    #[error("failed to accept a frame of {0} bytes; the maximum is {FRAME_BYTES_MAX}")]
    TooLarge(usize),
    #[error("failed to accept a frame: its file descriptor is missing")]
    Descriptor,
}

impl Frame {
    pub fn encode(message: &impl Serialize, descriptor: Option<OwnedFd>) -> Result<Self, FrameError> {
        let mut bytes = vec![0; HEADER_BYTES];
        rmp_serde::encode::write(&mut bytes, message)?;
        let body = bytes.len() - HEADER_BYTES;
        if body > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(body));
        }
        let flags = if descriptor.is_some() { FLAG_DESCRIPTOR } else { 0 };
        bytes[..4].copy_from_slice(&(body as u32).to_le_bytes());
        bytes[4..HEADER_BYTES].copy_from_slice(&flags.to_le_bytes());
        Ok(Self { bytes, descriptor })
    }
}

/// The header of a frame.
#[derive(Debug, Clone, Copy)]
pub struct FrameHeader {
    pub body_bytes: usize,
    pub has_descriptor: bool,
}

impl FrameHeader {
    pub const BYTES: usize = HEADER_BYTES;

    /// Parses a header, and checks the length before any allocation.
    pub fn parse(bytes: [u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let [a, b, c, d, e, f, g, h] = bytes;
        let body_bytes = u32::from_le_bytes([a, b, c, d]) as usize;
        if body_bytes > FRAME_BYTES_MAX {
            return Err(FrameError::TooLarge(body_bytes));
        }
        Ok(Self { body_bytes, has_descriptor: u32::from_le_bytes([e, f, g, h]) & FLAG_DESCRIPTOR != 0 })
    }
}

pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    Ok(rmp_serde::from_slice(body)?)
}

/// Writes a message without a descriptor. Blocks until the socket has accepted it.
pub fn write(mut socket: &UnixStream, message: &impl Serialize) -> Result<(), FrameError> {
    Ok(socket.write_all(&Frame::encode(message, None)?.bytes)?)
}

/// Reads frames through a buffer, so that a short frame takes one call of the kernel.
#[derive(Debug)]
pub struct FrameReader {
    socket: UnixStream,
    /// What was received. The bytes before `start` have been read.
    buffer: Vec<u8>,
    start: usize,
    /// The descriptors that were received and belong to no frame before `start`.
    descriptors: VecDeque<OwnedFd>,
}

impl FrameReader {
    pub fn over(socket: UnixStream) -> Self {
        Self { socket, buffer: Vec::new(), start: 0, descriptors: VecDeque::new() }
    }

    /// Reads the next message and its descriptor. Blocks; returns `None` when the other side has closed the socket.
    pub fn read<T: DeserializeOwned>(&mut self) -> Result<Option<(T, Option<OwnedFd>)>, FrameError> {
        if !self.receive(HEADER_BYTES)? {
            return if self.unread().is_empty() { Ok(None) } else { Err(cut_off()) };
        }
        let header = self.unread()[..HEADER_BYTES].try_into().expect("that many bytes were received");
        let FrameHeader { body_bytes, has_descriptor } = FrameHeader::parse(header)?;
        self.start += HEADER_BYTES;
        if !self.receive(body_bytes)? {
            return Err(cut_off());
        }
        let descriptor = if has_descriptor { self.descriptors.pop_front() } else { None };
        if has_descriptor && descriptor.is_none() {
            return Err(FrameError::Descriptor);
        }
        let message = decode(&self.unread()[..body_bytes])?;
        self.start += body_bytes;
        Ok(Some((message, descriptor)))
    }

    fn unread(&self) -> &[u8] {
        &self.buffer[self.start..]
    }

    /// Receives until this many bytes are unread. Returns false at the end of the socket.
    fn receive(&mut self, bytes: usize) -> io::Result<bool> {
        while self.unread().len() < bytes {
            self.buffer.drain(..self.start);
            self.start = 0;
            let have = self.buffer.len();
            let (least, most) = STEP_BYTES;
            self.buffer.resize(have + (bytes - have).clamp(least, most), 0);
            let received = receive(&self.socket, &mut self.buffer[have..]);
            self.buffer.truncate(have + received.as_ref().map_or(0, |(received, _)| *received));
            let (received, descriptor) = received?;
            self.descriptors.extend(descriptor);
            if received == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn cut_off() -> FrameError {
    FrameError::Io(io::ErrorKind::UnexpectedEof.into())
}

/// Sends some of `bytes`, and the descriptor with the first of them. Returns how many bytes were sent.
pub fn send(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptor.is_some() {
        let has_room = control.push(SendAncillaryMessage::ScmRights(descriptor.as_slice()));
        assert!(has_room, "the buffer is large enough for one descriptor");
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

fn receive(socket: &UnixStream, into: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); CONTROL_BYTES];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received =
        retry_on_intr(|| recvmsg(socket, &mut [IoSliceMut::new(into)], &mut control, RecvFlags::CMSG_CLOEXEC))?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::ipc::{
        ToExecutor,
        message::{FromExecutor, Image},
    };

    #[test]
    fn a_frame_and_its_descriptor_arrive_together_and_in_order() {
        let (here, there) = UnixStream::pair().unwrap();
        let descriptor = File::open("/dev/null").unwrap().as_fd().try_clone_to_owned().unwrap();
        let image = Image::Ptx("x".repeat(300_000));
        let writer = std::thread::spawn(move || {
            write(&here, &ToExecutor::Program { program: 1, image }).unwrap();
            let frame = Frame::encode(&ToExecutor::Segment { segment: 7, bytes: 64 }, Some(descriptor)).unwrap();
            let sent = send(&here, &frame.bytes, frame.descriptor.as_ref().map(AsFd::as_fd)).unwrap();
            assert_eq!(sent, frame.bytes.len());
            write(&here, &ToExecutor::Stop).unwrap();
        });
        let mut reader = FrameReader::over(there);
        let mut read = || reader.read::<ToExecutor>().unwrap();
        let (first, none) = read().unwrap();
        assert!(matches!(first, ToExecutor::Program { program: 1, image: Image::Ptx(text) } if text.len() == 300_000));
        assert!(none.is_none());
        let (second, descriptor) = read().unwrap();
        assert!(matches!(second, ToExecutor::Segment { segment: 7, bytes: 64 }));
        assert!(descriptor.is_some());
        assert!(matches!(read().unwrap().0, ToExecutor::Stop));
        assert!(read().is_none());
        writer.join().unwrap();
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_it_is_allocated() {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(&[0xff; HEADER_BYTES]).unwrap();
        assert!(matches!(FrameReader::over(there).read::<FromExecutor>(), Err(FrameError::TooLarge(_))));
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(&[3, 0, 0, 0, 0, 0, 0, 0, 0xc1, 0xc1, 0xc1]).unwrap();
        assert!(matches!(FrameReader::over(there).read::<FromExecutor>(), Err(FrameError::Decode(_))));
    }

    #[test]
    fn frames_that_arrive_together_or_in_pieces_are_read_one_by_one_with_their_descriptors() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut reader = FrameReader::over(there);
        let segment = |segment| ToExecutor::Segment { segment, bytes: 64 };
        for number in 0..3 {
            write(&here, &ToExecutor::Measure).unwrap();
            let descriptor = File::open("/dev/null").unwrap().into();
            let frame = Frame::encode(&segment(number), Some(descriptor)).unwrap();
            let (first, rest) = frame.bytes.split_at(5);
            send(&here, first, frame.descriptor.as_ref().map(AsFd::as_fd)).unwrap();
            (&here).write_all(rest).unwrap();
        }
        (&here).write_all(&[9]).unwrap();
        drop(here);
        for number in 0..3 {
            assert!(matches!(reader.read().unwrap(), Some((ToExecutor::Measure, None))));
            let (message, descriptor) = reader.read::<ToExecutor>().unwrap().unwrap();
            assert!(matches!(message, ToExecutor::Segment { segment, .. } if segment == number));
            assert!(descriptor.is_some());
        }
        assert!(matches!(reader.read::<ToExecutor>(), Err(FrameError::Io(_))), "the last frame is cut off");
    }
}

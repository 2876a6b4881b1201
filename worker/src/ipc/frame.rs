//! Frames on a Unix stream socket: four bytes with the length, four with flags, then the body in MessagePack.
//!
//! The descriptor of a memory file is sent with the header of the frame that names it. The kernel attaches descriptors to the bytes that
//! they were sent with, so a reader that reads exactly one header at a time always gets the matching descriptor.

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
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
    #[error("failed to accept a frame: its file descriptor is missing or unexpected")]
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

/// Reads the next message and its descriptor. Blocks; returns `None` when the other side has closed the socket.
pub fn read<T: DeserializeOwned>(socket: &UnixStream) -> Result<Option<(T, Option<OwnedFd>)>, FrameError> {
    let mut header = [0; HEADER_BYTES];
    let (taken, descriptor) = receive(socket, &mut header)?;
    match taken {
        0 => return Ok(None),
        HEADER_BYTES => {}
        _ => (&*socket).read_exact(&mut header[taken..])?,
    }
    let header = FrameHeader::parse(header)?;
    if header.has_descriptor != descriptor.is_some() {
        return Err(FrameError::Descriptor);
    }
    let mut body = vec![0; header.body_bytes];
    (&*socket).read_exact(&mut body)?;
    Ok(Some((decode(&body)?, descriptor)))
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
        let (first, none) = read::<ToExecutor>(&there).unwrap().unwrap();
        assert!(matches!(first, ToExecutor::Program { program: 1, image: Image::Ptx(text) } if text.len() == 300_000));
        assert!(none.is_none());
        let (second, descriptor) = read::<ToExecutor>(&there).unwrap().unwrap();
        assert!(matches!(second, ToExecutor::Segment { segment: 7, bytes: 64 }));
        assert!(descriptor.is_some());
        assert!(matches!(read::<ToExecutor>(&there).unwrap().unwrap().0, ToExecutor::Stop));
        assert!(read::<ToExecutor>(&there).unwrap().is_none());
        writer.join().unwrap();
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_it_is_allocated() {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(&[0xff; HEADER_BYTES]).unwrap();
        assert!(matches!(read::<FromExecutor>(&there), Err(FrameError::TooLarge(_))));
    }

    #[test]
    fn bytes_that_are_no_message_are_an_error() {
        let (here, there) = UnixStream::pair().unwrap();
        (&here).write_all(&[3, 0, 0, 0, 0, 0, 0, 0, 0xc1, 0xc1, 0xc1]).unwrap();
        assert!(matches!(read::<FromExecutor>(&there), Err(FrameError::Decode(_))));
    }
}

//! Writes an input to the device.

use std::{
    io::{self, Seek, SeekFrom, Write},
    sync::Arc,
};

use super::{Exchange, Lane};
use crate::{executor::flight::Shared, ipc::ToExecutor};

/// A writer for an input on the device.
pub(in crate::executor) struct InputWriter {
    exchange: Exchange,
    /// The number of bytes in the first free piece.
    filled: usize,
    /// The number of bytes sent.
    offset: u64,
}

impl InputWriter {
    pub(in crate::executor) fn new(shared: &Arc<Shared>, job: u64, buffer: u32, lane: Lane) -> Self {
        Self { exchange: Exchange::new(shared, job, buffer, lane), filled: 0, offset: 0 }
    }

    /// Returns the memory for the next array. If the writer was flushed, all pieces have been copied.
    pub(in crate::executor) fn into_lane(mut self) -> Lane {
        std::mem::take(&mut self.exchange.free)
    }

    fn send(&mut self) {
        let bytes = self.filled as u64;
        self.exchange.send(ToExecutor::Bring, self.offset, bytes);
        (self.filled, self.offset) = (0, self.offset + bytes);
    }
}

impl Write for InputWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.exchange.free.is_empty() {
            let part = self.exchange.receive()?;
            self.exchange.free.extend(part);
        }
        let part = self.exchange.free.front_mut().ok_or(io::ErrorKind::OutOfMemory)?;
        let room = &mut part.as_mut()[self.filled..];
        let length = room.len().min(bytes.len());
        room[..length].copy_from_slice(&bytes[..length]);
        let is_full = length == room.len();
        self.filled += length;
        if is_full {
            self.send();
        }
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.filled > 0 {
            self.send();
        }
        self.exchange.settle()
    }
}

impl Seek for InputWriter {
    /// Restarts at the beginning; other positions are not supported.
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        if to != SeekFrom::Start(0) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.flush()?;
        self.offset = 0;
        Ok(0)
    }
}

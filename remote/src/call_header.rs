//! The start of a call's body.

use crate::codec::{Malformed, Put, Reader};

/// The start of a call's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallHeader {
    pub call: u16,
    /// The program does not wait for an answer.
    pub is_post: bool,
    /// The program has a default stream per thread.
    pub is_twin: bool,
    pub context: u32,
    pub thread: u32,
}

impl CallHeader {
    pub const BYTES: usize = 12;

    pub fn take(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            call: from.u16()?,
            is_post: from.flag()?,
            is_twin: from.flag()?,
            context: from.u32()?,
            thread: from.u32()?,
        })
    }

    pub fn put(&self, to: &mut Vec<u8>) {
        to.u16(self.call);
        to.flag(self.is_post);
        to.flag(self.is_twin);
        to.u32(self.context);
        to.u32(self.thread);
    }
}

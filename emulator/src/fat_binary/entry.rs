//! One entry of a fat binary: a program for one architecture.

use super::{
    FatBinaryError,
    payload::{self, Compression},
};

/// Bytes of the header that all entries have. Longer headers append names and options.
const HEADER_BYTES: usize = 64;
/// Maximum bytes of an uncompressed text; a larger one is refused before memory is allocated for it.
const TEXT_BYTES_MAX: u64 = 256 << 20;
/// Kinds of entries. Other kinds are for linkers.
const PTX: u16 = 1;
const MACHINE_CODE: u16 = 2;

/// A program for one architecture.
#[derive(Debug)]
pub struct Entry<'a> {
    kind: u16,
    /// Architecture number, such as 80 for `sm_80`.
    pub architecture: u32,
    flags: u64,
    /// Bytes of the uncompressed text; 0 if it is not compressed.
    text_bytes: u64,
    payload: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Parses the entry with this number; returns it and the bytes behind it.
    pub(super) fn parse(bytes: &'a [u8], number: usize) -> Result<(Self, &'a [u8]), FatBinaryError> {
        let cut_off = || FatBinaryError::CutOffEntry(number);
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or_else(cut_off)?;
        let header_bytes = word(header, 4);
        if (header_bytes as usize) < HEADER_BYTES {
            return Err(FatBinaryError::EntryHeader(header_bytes));
        }
        let room = usize::try_from(double(header, 8)).map_err(|_| cut_off())?;
        let body = bytes.get(header_bytes as usize..).filter(|body| body.len() >= room).ok_or_else(cut_off)?;
        let (payload, behind) = body.split_at(room);
        let entry = Self {
            kind: half(header, 0),
            architecture: word(header, 28),
            flags: double(header, 40),
            text_bytes: double(header, 56),
            // The used part of the payload; zeros follow it.
            payload: match word(header, 16) as usize {
                0 => payload,
                used => payload.get(..used).ok_or_else(cut_off)?,
            },
        };
        Ok((entry, behind))
    }

    pub fn is_ptx(&self) -> bool {
        self.kind == PTX
    }

    pub(super) fn name(&self) -> String {
        let Self { kind, architecture, .. } = self;
        match *kind {
            PTX => format!("PTX for sm_{architecture}"),
            MACHINE_CODE => format!("machine code for sm_{architecture}"),
            kind => format!("an entry of kind {kind} for sm_{architecture}"),
        }
    }

    /// Returns the PTX without the NUL at its end. Some of NVIDIA's tools write the PTX version to the header only;
    /// nothing here depends on it.
    pub fn text(&self) -> Result<String, FatBinaryError> {
        let Self { architecture, text_bytes: bytes, .. } = *self;
        if bytes > TEXT_BYTES_MAX {
            return Err(FatBinaryError::TooLarge { architecture, bytes, most: TEXT_BYTES_MAX });
        }
        let failed = |reason| FatBinaryError::Payload { architecture, reason };
        let compression = Compression::of(self.flags, bytes > 0).map_err(failed)?;
        let text = payload::uncompress(compression, self.payload, bytes as usize).map_err(failed)?;
        let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
        let text = std::str::from_utf8(&text[..end]).map_err(|error| failed(error.to_string()))?;
        Ok(text.to_owned())
    }
}

fn half(header: &[u8; HEADER_BYTES], at: usize) -> u16 {
    u16::from_le_bytes([header[at], header[at + 1]])
}

fn word(header: &[u8; HEADER_BYTES], at: usize) -> u32 {
    u32::from(half(header, at)) | u32::from(half(header, at + 2)) << 16
}

fn double(header: &[u8; HEADER_BYTES], at: usize) -> u64 {
    u64::from(word(header, at)) | u64::from(word(header, at + 4)) << 32
}

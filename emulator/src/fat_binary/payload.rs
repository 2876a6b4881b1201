//! Decompression of an entry's payload.

use std::borrow::Cow;

use ruzstd::decoding::FrameDecoder;

/// Bits of an entry's flags that name the compression.
const LZ4: u64 = 1 << 13;
const ZSTD: u64 = 1 << 15;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    /// One LZ4 block, without a frame.
    Lz4,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    pub fn of(flags: u64, is_compressed: bool) -> Result<Self, String> {
        match (flags & LZ4 != 0, flags & ZSTD != 0) {
            (true, false) => Ok(Self::Lz4),
            (false, true) => Ok(Self::Zstd),
            (false, false) if !is_compressed => Ok(Self::None),
            _ => Err(format!("unknown compression (flags {flags:#x})")),
        }
    }
}

/// Returns the uncompressed payload, which has `bytes` bytes as the entry says.
pub fn uncompress(compression: Compression, payload: &[u8], bytes: usize) -> Result<Cow<'_, [u8]>, String> {
    let mut text = vec![0; bytes];
    let written = match compression {
        Compression::None => return Ok(Cow::Borrowed(payload)),
        Compression::Lz4 => lz4_flex::block::decompress_into(payload, &mut text).map_err(|error| error.to_string())?,
        Compression::Zstd => FrameDecoder::new().decode_all(payload, &mut text).map_err(|error| error.to_string())?,
    };
    if written == bytes { Ok(Cow::Owned(text)) } else { Err(format!("{written} bytes instead of {bytes}")) }
}

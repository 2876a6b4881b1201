//! Fat binaries: containers with one program for several devices, as PTX and as machine code (SASS).
//!
//! A container is a header and entries, each with a header of its own and a payload. NVIDIA does not document the
//! layout. The fields that are read here were found in containers that NVIDIA's tools wrote; all other fields are
//! ignored.

mod entry;
mod payload;

use gpufleet_surface::image::{CONTAINER_MAGIC, HEADER_BYTES, container_bytes};

use self::entry::Entry;
use crate::module::ComputeCapability;

/// A parsed container.
#[derive(Debug)]
pub struct FatBinary<'a> {
    entries: Vec<Entry<'a>>,
}

/// The reason why a container could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FatBinaryError {
    #[error("no fat binary starts here")]
    Magic,
    #[error("the fat binary ends inside its header, or before its last entry")]
    CutOff,
    #[error("the fat binary ends inside its entry {0}")]
    CutOffEntry(usize),
    #[error("the fat binary has a header of {0} bytes")]
    Header(u16),
    #[error("an entry of the fat binary has a header of {0} bytes")]
    EntryHeader(u32),
    #[error("the PTX for sm_{architecture} has {bytes} bytes when uncompressed; {most} are allowed")]
    TooLarge { architecture: u32, bytes: u64, most: u64 },
    #[error("failed to uncompress the PTX for sm_{architecture}: {reason}")]
    Payload { architecture: u32, reason: String },
}

impl<'a> FatBinary<'a> {
    /// Parses the headers of a container; more bytes may follow it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FatBinaryError> {
        if !bytes.starts_with(&CONTAINER_MAGIC) {
            return Err(FatBinaryError::Magic);
        }
        let header = bytes.first_chunk::<HEADER_BYTES>().ok_or(FatBinaryError::CutOff)?;
        let start = u16::from_le_bytes([header[6], header[7]]);
        if usize::from(start) < HEADER_BYTES {
            return Err(FatBinaryError::Header(start));
        }
        let all = usize::try_from(container_bytes(header)).ok().and_then(|end| bytes.get(usize::from(start)..end));
        let mut rest = all.ok_or(FatBinaryError::CutOff)?;
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let (entry, behind) = Entry::parse(rest, entries.len())?;
            entries.push(entry);
            rest = behind;
        }
        Ok(Self { entries })
    }

    /// Returns the PTX entries for devices up to this one, the newest first. An entry may still be refused when it is
    /// loaded, because a target such as `sm_90a` runs on exactly that architecture.
    pub fn ptx_for(&self, device: ComputeCapability) -> Vec<&Entry<'a>> {
        let architecture = device.major * 10 + device.minor;
        let fits = |entry: &&Entry| entry.is_ptx() && entry.architecture <= architecture;
        let mut fitting: Vec<_> = self.entries.iter().filter(fits).collect();
        fitting.sort_by_key(|entry| std::cmp::Reverse(entry.architecture));
        fitting
    }

    /// Describes the entries, for error messages.
    pub fn contents(&self) -> String {
        let names: Vec<_> = self.entries.iter().map(Entry::name).collect();
        if names.is_empty() { "nothing".to_owned() } else { names.join(", ") }
    }
}

//! Writes containers in the layout of NVIDIA's tools.

/// Compression of a text, with its bit in the flags of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    None,
    Lz4,
    Zstd,
}

/// One program of a container.
#[derive(Clone, Debug)]
pub struct Program {
    pub kind: u16,
    pub architecture: u32,
    pub version: (u16, u16),
    pub flags: u64,
    /// 0 if it is not compressed.
    pub text_bytes: u64,
    pub payload: Vec<u8>,
    /// Additional header bytes behind the common 64.
    pub more_header: Vec<u8>,
}

/// Flags of an entry: 64 bits, for Linux.
const FLAGS: u64 = 0x11;
pub const PTX: u16 = 1;
pub const MACHINE_CODE: u16 = 2;

impl Program {
    pub fn ptx(architecture: u32, text: &str, compression: Compression) -> Self {
        let bytes = [text.as_bytes(), &[0]].concat();
        let (flag, payload) = match compression {
            Compression::None => (0, bytes.clone()),
            Compression::Lz4 => (1 << 13, lz4_flex::block::compress(&bytes)),
            Compression::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                (1 << 15, ruzstd::encoding::compress_to_vec(bytes.as_slice(), level))
            }
        };
        let text_bytes = if compression == Compression::None { 0 } else { bytes.len() as u64 };
        let (version, flags, more_header) = ((8, 0), FLAGS | flag, Vec::new());
        Self { kind: PTX, architecture, version, flags, text_bytes, payload, more_header }
    }

    pub fn machine_code(architecture: u32) -> Self {
        let payload = b"\x7fELF and so on".to_vec();
        let (version, flags, more_header) = ((1, 7), FLAGS, Vec::new());
        Self { kind: MACHINE_CODE, architecture, version, flags, text_bytes: 0, payload, more_header }
    }

    fn write(&self) -> Vec<u8> {
        let room = self.payload.len().next_multiple_of(8);
        let used = if self.text_bytes == 0 { 0 } else { self.payload.len() as u32 };
        let mut bytes = Vec::new();
        bytes.extend(self.kind.to_le_bytes());
        bytes.extend(0x0101u16.to_le_bytes());
        bytes.extend((64 + self.more_header.len() as u32).to_le_bytes());
        bytes.extend((room as u64).to_le_bytes());
        bytes.extend(used.to_le_bytes());
        bytes.extend(0u32.to_le_bytes());
        bytes.extend(self.version.1.to_le_bytes());
        bytes.extend(self.version.0.to_le_bytes());
        bytes.extend(self.architecture.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(self.flags.to_le_bytes());
        bytes.extend(0u64.to_le_bytes());
        bytes.extend(self.text_bytes.to_le_bytes());
        assert_eq!(bytes.len(), 64);
        bytes.extend(&self.more_header);
        bytes.extend(&self.payload);
        bytes.resize(64 + self.more_header.len() + room, 0);
        bytes
    }
}

/// Returns a container of these programs.
pub fn container(programs: &[Program]) -> Vec<u8> {
    let entries = programs.iter().flat_map(Program::write).collect::<Vec<_>>();
    let mut bytes = 0xBA55_ED50u32.to_le_bytes().to_vec();
    bytes.extend(1u16.to_le_bytes());
    bytes.extend(16u16.to_le_bytes());
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(entries);
    bytes
}

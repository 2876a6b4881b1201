//! From an image to a program: what kind of image it is, and what goes into the logs that the caller asked for.

use std::{fs, path::Path, sync::Arc};

use super::{
    device::Device,
    status::{Answer, Status},
};
use crate::module::{LoadError, LoadErrorKind, Module};

/// Images larger than this are refused before they are read: NVRTC's output is thousands of times smaller.
const IMAGE_BYTES_MAX: u64 = 256 << 20;
const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];
const FAT_BINARY: [u8; 4] = 0xBA55_ED50_u32.to_le_bytes();
const FAT_BINARY_WRAPPER: [u8; 4] = 0x4662_43B1_u32.to_le_bytes();

/// A load that failed, with the log for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitError {
    pub status: Status,
    pub log: String,
}

/// A program, and what to say about it.
#[derive(Debug)]
pub struct Loaded {
    pub module: Module,
    pub log: String,
}

/// Is this the start of machine code for a GPU, which only a GPU runs?
pub fn is_binary(image: &[u8]) -> bool {
    [ELF, FAT_BINARY, FAT_BINARY_WRAPPER].iter().any(|magic| image.starts_with(magic))
}

/// Loads a program from its text, without the NUL.
pub fn load(device: &Device, image: &[u8]) -> Result<Loaded, JitError> {
    if is_binary(image) {
        return Err(JitError {
            status: Status::NoBinaryForGpu,
            log: "error: the image is machine code for a GPU; the emulator runs PTX".to_owned(),
        });
    }
    let text = std::str::from_utf8(image).map_err(|error| {
        let line = 1 + image[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        JitError { status: Status::InvalidPtx, log: format!("error: line {line}: the text is not UTF-8") }
    })?;
    if text.trim().is_empty() {
        return Err(JitError { status: Status::InvalidImage, log: "error: the image is empty".to_owned() });
    }
    let module = Module::load(text, &Arc::clone(&device.memory), device.capability).map_err(JitError::from)?;
    let capability = device.capability;
    let log = format!(
        "info: {} kernels for an emulated device of compute capability {}.{}",
        module.entries().count(),
        capability.major,
        capability.minor
    );
    Ok(Loaded { module, log })
}

/// Reads the image of `cuModuleLoad`.
pub fn read(path: &Path) -> Answer<Vec<u8>> {
    let length = fs::metadata(path).map_err(|_| Status::FileNotFound)?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(Status::InvalidImage);
    }
    let mut image = fs::read(path).map_err(|_| Status::FileNotFound)?;
    // A file may or may not carry the NUL that an image in memory ends with.
    if image.last() == Some(&0) && !is_binary(&image) {
        image.pop();
    }
    Ok(image)
}

impl From<LoadError> for JitError {
    fn from(error: LoadError) -> Self {
        let status = match error.kind {
            LoadErrorKind::Syntax
            | LoadErrorKind::UnsupportedOpcode
            | LoadErrorKind::UnsupportedDirective
            | LoadErrorKind::Unresolved => Status::InvalidPtx,
            LoadErrorKind::Target => Status::NoBinaryForGpu,
            LoadErrorKind::OutOfMemory => Status::OutOfMemory,
        };
        Self { status, log: format!("error: {error}") }
    }
}

//! Loading of images: recognises the kind of image and produces the logs that the caller asked for.

use std::{fs, path::Path, sync::Arc};

use gpufleet_surface::image::{CONTAINER_MAGIC, WRAPPER_MAGIC};

use super::{
    device::Device,
    link,
    status::{Answer, Status},
};
use crate::{
    fat_binary::{FatBinary, FatBinaryError},
    module::{LoadError, LoadErrorKind, Module},
};

/// Maximum bytes of an image, refused before it is read. NVRTC's output is thousands of times smaller.
const IMAGE_BYTES_MAX: u64 = 256 << 20;
const ELF: [u8; 4] = [0x7f, b'E', b'L', b'F'];

/// A failed load, with the log for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JitError {
    pub status: Status,
    pub log: String,
}

/// A loaded program, with the log for the caller.
#[derive(Debug)]
pub struct Loaded {
    pub module: Module,
    pub log: String,
}

/// Reports whether the image starts like something other than PTX text.
fn is_binary(image: &[u8]) -> bool {
    [ELF, CONTAINER_MAGIC, WRAPPER_MAGIC].iter().any(|magic| image.starts_with(magic))
}

/// Loads a program from PTX text, without the NUL at its end, or from a fat binary.
pub fn load(device: &Device, image: &[u8]) -> Result<Loaded, JitError> {
    let (memory, capability) = (&Arc::clone(&device.memory), device.capability);
    if image.starts_with(&CONTAINER_MAGIC) {
        let module = newest(device, image, |text| Module::load(text, memory, capability))?;
        return Ok(Loaded::from_module(module, device));
    }
    refuse_binary(image)?;
    let text = utf8(image)?;
    let module = match link::texts(text) {
        Some((texts, limit)) => Module::link(&texts, memory, capability).map(|module| module.with_registers_max(limit)),
        None => Module::load(text, memory, capability),
    };
    Ok(Loaded::from_module(module?, device))
}

/// Loads the newest PTX of a fat binary that the device can run.
pub(super) fn newest<T>(
    device: &Device,
    image: &[u8],
    take: impl Fn(&str) -> Result<T, LoadError>,
) -> Result<T, JitError> {
    let binary = FatBinary::parse(image)?;
    for entry in binary.ptx_for(device.capability) {
        match take(&entry.text()?) {
            // A text for `sm_90a`, unlike others, does not run on later devices.
            Err(error) if error.kind == LoadErrorKind::Target => {}
            taken => return Ok(taken?),
        }
    }
    let (major, minor) = (device.capability.major, device.capability.minor);
    let log = format!("error: the fat binary has no PTX for sm_{major}{minor}; it has {}", binary.contents());
    Err(JitError { status: Status::NoBinaryForGpu, log })
}

pub(super) fn refuse_binary(image: &[u8]) -> Result<(), JitError> {
    if !is_binary(image) {
        return Ok(());
    }
    let log = "error: the image is machine code for a GPU; the emulator runs PTX".to_owned();
    Err(JitError { status: Status::NoBinaryForGpu, log })
}

pub(super) fn utf8(image: &[u8]) -> Result<&str, JitError> {
    let text = std::str::from_utf8(image).map_err(|error| {
        let line = 1 + image[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count();
        JitError { status: Status::InvalidPtx, log: format!("error: line {line}: the text is not UTF-8") }
    })?;
    if text.trim().is_empty() {
        return Err(JitError { status: Status::InvalidImage, log: "error: the image is empty".to_owned() });
    }
    Ok(text)
}

impl Loaded {
    pub(super) fn from_module(module: Module, device: &Device) -> Self {
        let capability = device.capability;
        let log = format!(
            "info: {} kernels for an emulated device of compute capability {}.{}",
            module.entries().count(),
            capability.major,
            capability.minor
        );
        Self { module, log }
    }
}

/// Reads the image file of `cuModuleLoad`.
pub fn read(path: &Path) -> Answer<Vec<u8>> {
    let length = fs::metadata(path).map_err(|_| Status::FileNotFound)?.len();
    if length > IMAGE_BYTES_MAX {
        return Err(Status::InvalidImage);
    }
    let mut image = fs::read(path).map_err(|_| Status::FileNotFound)?;
    // A file may or may not have the NUL that an image in memory ends with.
    if image.last() == Some(&0) && !is_binary(&image) {
        image.pop();
    }
    Ok(image)
}

impl From<FatBinaryError> for JitError {
    fn from(error: FatBinaryError) -> Self {
        Self { status: Status::InvalidImage, log: format!("error: failed to load the image: {error}") }
    }
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
            LoadErrorKind::Undefined | LoadErrorKind::DefinedTwice => {
                let lines = error.message.lines().map(|line| format!("error   : {line}")).collect::<Vec<_>>();
                return Self { status: Status::Unknown, log: lines.join("\n") };
            }
        };
        Self { status, log: format!("error: {error}") }
    }
}

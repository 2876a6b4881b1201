//! Modules from files, which are in the program's machine, and their variables.

use std::{ffi::OsStr, fs, io, os::unix::ffi::OsStrExt, path::Path};

use gpufleet_remote::{
    kinds::Module,
    roles::{Global, GlobalBytes},
};
use gpufleet_surface::{
    argument::{Out, Text},
    image::Image,
    status::{Answer, Status},
};

use crate::{contexts, rows};

pub(crate) fn cuModuleLoad(module: Out<Module>, path: Text) -> Answer {
    contexts::current()?;
    with_file(path, |image| rows::cuModuleLoadData(module, image))
}

/// The program may leave out one of the results, but not both.
pub(crate) fn cuModuleGetGlobal_v2(address: Global, bytes: GlobalBytes, module: Module, name: Text) -> Answer {
    check_global(address, bytes)?;
    rows::cuModuleGetGlobal_v2(address, bytes, module, name)
}

pub(super) fn check_global(address: Global, bytes: GlobalBytes) -> Answer {
    if address.0.is_null() && bytes.0.is_null() { Err(Status::InvalidValue) } else { Ok(()) }
}

/// Calls `load` with the program in a file.
pub(super) fn with_file(path: Text, load: impl FnOnce(Image) -> Answer) -> Answer {
    let mut image = read(path)?;
    // A text ends with a NUL.
    image.push(0);
    // SAFETY: the image lives until the call has ended.
    load(unsafe { Image::from_pointer(image.as_ptr()) })
}

/// Reads a file of the program's machine.
pub(super) fn read(path: Text) -> Answer<Vec<u8>> {
    fs::read(Path::new(OsStr::from_bytes(path.bytes()?))).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Status::FileNotFound,
        _ => Status::OperatingSystem,
    })
}

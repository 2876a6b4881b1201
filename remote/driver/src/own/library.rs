//! Libraries from files, which are in the program's machine.

use gpufleet_remote::{
    kinds::{Device, Function, Kernel, Library},
    roles::{Global, GlobalBytes, JitCount, JitKeys, JitValues, Unsent, UnsentCount},
};
use gpufleet_surface::{
    argument::{Out, Text},
    status::Answer,
};

use super::module::{check_global, with_file};
use crate::{functions, rows};

pub(crate) fn cuLibraryLoadFromFile(
    library: Out<Library>,
    path: Text,
    options: JitKeys,
    values: JitValues,
    count: JitCount,
    library_options: Unsent<u32>,
    library_values: Unsent<usize>,
    library_count: UnsentCount,
) -> Answer {
    with_file(path, |image| {
        rows::cuLibraryLoadData(library, image, options, values, count, library_options, library_values, library_count)
    })
}

pub(crate) fn cuLibraryGetGlobal(address: Global, bytes: GlobalBytes, library: Library, name: Text) -> Answer {
    check_global(address, bytes)?;
    rows::cuLibraryGetGlobal(address, bytes, library, name)
}

/// A kernel is a function too.
pub(crate) fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: Kernel, device: Device) -> Answer {
    functions::forget(Function(kernel.0));
    rows::cuKernelSetAttribute(attribute, value, kernel, device)
}

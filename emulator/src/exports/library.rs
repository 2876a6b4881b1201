//! C functions for libraries (`cuLibrary*`) and their kernels (`cuKernel*`).

use std::{
    ffi::{OsStr, c_char},
    os::unix::ffi::OsStrExt,
    path::Path,
};

use gpufleet_surface::{
    argument::{In, Out, Text},
    image::Image,
};

use super::module::{jit_options, write_logs};
use crate::driver::{
    current, driver,
    function::Function,
    handle::Handle,
    jit::{self, JitError},
    library::kernels,
    library::{self, Kernel, LoadedLibrary},
    module,
    status::{Answer, Status},
};
use std::sync::Arc;

/// The library options concern images that the caller keeps; they have no effect here.
pub(super) fn cuLibraryLoadData(
    library: Out<Handle>,
    image: Image,
    options: In<u32>,
    values: Out<usize>,
    count: u32,
    library_options: In<u32>,
    library_values: In<usize>,
    library_count: u32,
) -> Answer {
    let _ = (library_options, library_values, library_count);
    library.fill(|| load(image.bytes()?, options, values, count))
}

pub(super) fn cuLibraryLoadFromFile(
    library: Out<Handle>,
    path: Text,
    options: In<u32>,
    values: Out<usize>,
    count: u32,
    library_options: In<u32>,
    library_values: In<usize>,
    library_count: u32,
) -> Answer {
    let _ = (library_options, library_values, library_count);
    let path = Path::new(OsStr::from_bytes(path.bytes()?));
    library.fill(|| load(&jit::read(path)?, options, values, count))
}

pub(super) fn cuLibraryUnload(library: Handle) -> Answer {
    library::unload(library)
}

pub(super) fn cuLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: Text) -> Answer {
    kernel.fill(|| library::find(library)?.kernel(name.name()?))
}

pub(super) fn cuLibraryGetKernelCount(count: Out<u32>, library: Handle) -> Answer {
    count.fill(|| Ok(library::find(library)?.kernels().len() as u32))
}

pub(super) fn cuLibraryEnumerateKernels(kernels: Out<Handle>, room: u32, library: Handle) -> Answer {
    if kernels.is_null() {
        return Err(Status::InvalidValue);
    }
    let library = library::find(library)?;
    library.kernels().take(room as usize).enumerate().for_each(|(index, kernel)| kernels.at(index).set(kernel));
    Ok(())
}

pub(super) fn cuLibraryGetModule(module: Out<Handle>, library: Handle) -> Answer {
    module.fill(|| library::find(library)?.module(&current::context()?))
}

pub(super) fn cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) -> Answer {
    if address.is_null() && bytes.is_null() {
        return Err(Status::InvalidValue);
    }
    let module = library::find(library)?.module(&current::context()?)?;
    let (start, length) = module::find(module)?.global(name.name()?)?;
    address.set(start);
    bytes.set(length);
    Ok(())
}

/// Finds nothing, because PTX itself has no managed variables: compilers create them for whole programs.
pub(super) fn cuLibraryGetManaged(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) -> Answer {
    let _ = (address, bytes, name.name()?);
    library::find(library)?;
    Err(Status::NotFound)
}

pub(super) fn cuLibraryGetUnifiedFunction(pointer: Out<usize>, library: Handle, symbol: Text) -> Answer {
    let _ = (pointer, symbol.name()?);
    library::find(library)?;
    Err(Status::NotFound)
}

pub(super) fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) -> Answer {
    function.fill(|| find(kernel)?.function(&current::context()?))
}

pub(super) fn cuKernelGetLibrary(library: Out<Handle>, kernel: Handle) -> Answer {
    library.fill(|| Ok(find(kernel)?.library))
}

pub(super) fn cuKernelGetName(name: Out<*const c_char>, kernel: Handle) -> Answer {
    name.fill(|| Ok(find(kernel)?.name.as_ptr()))
}

pub(super) fn cuKernelGetParamInfo(kernel: Handle, index: usize, offset: Out<usize>, bytes: Out<usize>) -> Answer {
    let function = function_of(kernel)?;
    let param = function.entry.params.get(index).ok_or(Status::InvalidValue)?;
    offset.fill(|| Ok(param.offset as usize))?;
    bytes.set(param.bytes as usize);
    Ok(())
}

pub(super) fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: Handle, device: i32) -> Answer {
    value.fill(|| function_of(kernel)?.attribute(attribute, driver()?.device(device)?))
}

pub(super) fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: Handle, device: i32) -> Answer {
    let device = driver()?.device(device)?;
    function_of(kernel)?.set_attribute(attribute, value, device)?;
    find(kernel)?.set_attribute(attribute, value, device.ordinal);
    Ok(())
}

pub(super) fn cuKernelSetCacheConfig(kernel: Handle, config: u32, device: i32) -> Answer {
    let _ = config;
    driver()?.device(device)?;
    find(kernel).map(drop)
}

fn load(image: &[u8], options: In<u32>, values: Out<usize>, count: u32) -> Answer<Handle> {
    let options = jit_options(count as usize, options, values)?;
    match library::load(image, options.registers_max) {
        Ok(LoadedLibrary { handle, log }) => write_logs(&options, &log, "").map(|()| handle),
        Err(JitError { status, log }) => write_logs(&options, "", &log).and(Err(status)),
    }
}

fn find(kernel: Handle) -> Answer<Arc<Kernel>> {
    kernels()?.get(kernel)
}

/// Returns the kernel's function in the current context, for properties that are equal in all contexts.
fn function_of(kernel: Handle) -> Answer<Arc<Function>> {
    find(kernel)?;
    library::resolve(kernel, &current::context()?).map(|(_, function)| function)
}

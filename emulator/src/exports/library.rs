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

use super::{
    exports,
    module::{jit_options, write_logs},
};
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

exports! {
    /// The library options concern images that the caller keeps; they have no effect here.
    fn cuLibraryLoadData(
        library: Out<Handle>,
        image: Image,
        options: In<u32>,
        values: Out<usize>,
        count: u32,
        library_options: In<u32>,
        library_values: In<usize>,
        library_count: u32,
    ) {
        let _ = (library_options, library_values, library_count);
        library.fill(|| load(image.bytes()?, options, values, count))
    }

    fn cuLibraryLoadFromFile(
        library: Out<Handle>,
        path: Text,
        options: In<u32>,
        values: Out<usize>,
        count: u32,
        library_options: In<u32>,
        library_values: In<usize>,
        library_count: u32,
    ) {
        let _ = (library_options, library_values, library_count);
        let path = Path::new(OsStr::from_bytes(path.bytes()?));
        library.fill(|| load(&jit::read(path)?, options, values, count))
    }

    fn cuLibraryUnload(library: Handle) {
        library::unload(library)
    }

    fn cuLibraryGetKernel(kernel: Out<Handle>, library: Handle, name: Text) {
        kernel.fill(|| library::find(library)?.kernel(name.name()?))
    }

    fn cuLibraryGetKernelCount(count: Out<u32>, library: Handle) {
        count.fill(|| Ok(library::find(library)?.kernels().len() as u32))
    }

    fn cuLibraryEnumerateKernels(kernels: Out<Handle>, room: u32, library: Handle) {
        if kernels.is_null() {
            return Err(Status::InvalidValue);
        }
        let library = library::find(library)?;
        library.kernels().take(room as usize).enumerate().for_each(|(index, kernel)| kernels.at(index).set(kernel));
        Ok(())
    }

    fn cuLibraryGetModule(module: Out<Handle>, library: Handle) {
        module.fill(|| library::find(library)?.module(&current::context()?))
    }

    fn cuLibraryGetGlobal(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) {
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
    fn cuLibraryGetManaged(address: Out<u64>, bytes: Out<usize>, library: Handle, name: Text) {
        let _ = (address, bytes, name.name()?);
        library::find(library)?;
        Err(Status::NotFound)
    }

    fn cuLibraryGetUnifiedFunction(pointer: Out<usize>, library: Handle, symbol: Text) {
        let _ = (pointer, symbol.name()?);
        library::find(library)?;
        Err(Status::NotFound)
    }

    fn cuKernelGetFunction(function: Out<Handle>, kernel: Handle) {
        function.fill(|| find(kernel)?.function(&current::context()?))
    }

    fn cuKernelGetLibrary(library: Out<Handle>, kernel: Handle) {
        library.fill(|| Ok(find(kernel)?.library))
    }

    fn cuKernelGetName(name: Out<*const c_char>, kernel: Handle) {
        name.fill(|| Ok(find(kernel)?.name.as_ptr()))
    }

    fn cuKernelGetParamInfo(kernel: Handle, index: usize, offset: Out<usize>, bytes: Out<usize>) {
        let function = function_of(kernel)?;
        let param = function.entry.params.get(index).ok_or(Status::InvalidValue)?;
        offset.fill(|| Ok(param.offset as usize))?;
        bytes.set(param.bytes as usize);
        Ok(())
    }

    fn cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: Handle, device: i32) {
        value.fill(|| function_of(kernel)?.attribute(attribute, driver()?.device(device)?))
    }

    fn cuKernelSetAttribute(attribute: u32, value: i32, kernel: Handle, device: i32) {
        let device = driver()?.device(device)?;
        function_of(kernel)?.set_attribute(attribute, value, device)?;
        find(kernel)?.set_attribute(attribute, value, device.ordinal);
        Ok(())
    }

    fn cuKernelSetCacheConfig(kernel: Handle, config: u32, device: i32) {
        let _ = config;
        driver()?.device(device)?;
        find(kernel).map(drop)
    }
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

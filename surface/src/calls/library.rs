//! Libraries and their kernels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_library {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 12000 cuLibraryLoadData(
                library: Out<Library>, image: Image, options: JitKeys, values: JitValues, count: JitCount,
                library_options: Unsent<u32>, library_values: Unsent<usize>, library_count: UnsentCount
            );
            local 12000 cuLibraryLoadFromFile(
                library: Out<Library>, path: Text, options: JitKeys, values: JitValues, count: JitCount,
                library_options: Unsent<u32>, library_values: Unsent<usize>, library_count: UnsentCount
            );
            ask 12000 cuLibraryUnload(library: Gone<Library>);
            ask 12000 cuLibraryGetKernel(kernel: Out<Kernel>, library: Library, name: Text);
            ask 12040 cuLibraryGetKernelCount(count: Out<u32>, library: Library);
            ask 12040 cuLibraryEnumerateKernels(kernels: Listed<Kernel>, room: ListRoom, library: Library);
            ask 12000 cuLibraryGetModule(module: Out<Module>, library: Library);
            own 12000 cuLibraryGetGlobal(address: Global, bytes: GlobalBytes, library: Library, name: Text);
            refuse 12000 cuLibraryGetManaged(address: Out<Address>, bytes: Out<usize>, library: Library, name: Text);
            refuse 12000 cuLibraryGetUnifiedFunction(pointer: Out<usize>, library: Library, symbol: Text);
            ask 12000 cuKernelGetFunction(function: Out<Function>, kernel: Kernel);
            ask 12050 cuKernelGetLibrary(library: Out<Library>, kernel: Kernel);
            ask 12030 cuKernelGetName(name: Out<*const c_char>, kernel: Kernel);
            ask 12040 cuKernelGetParamInfo(kernel: Kernel, index: usize, offset: Out<usize>, bytes: Out<usize>);
            ask 12000 cuKernelGetAttribute(value: Out<i32>, attribute: u32, kernel: Kernel, device: Device);
            own 12000 cuKernelSetAttribute(attribute: u32, value: i32, kernel: Kernel, device: Device);
            ask 12000 cuKernelSetCacheConfig(kernel: Kernel, config: u32, device: Device);
        }
    };
}

//! Modules.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_module {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 2000 cuModuleLoad(module: Out<Module>, path: Text);
            ask 2000 cuModuleLoadData(module: Out<Module>, image: Image);
            ask 2000 cuModuleLoadFatBinary(module: Out<Module>, image: Image);
            ask 2010 cuModuleLoadDataEx(
                module: Out<Module>, image: Image, count: JitCount, options: JitKeys, values: JitValues
            );
            ask 2000 cuModuleUnload(module: Gone<Module>);
            ask 2000 cuModuleGetFunction(function: Out<Function>, module: Module, name: Text);
            ask 12040 cuModuleGetFunctionCount(count: Out<u32>, module: Module);
            ask 12040 cuModuleEnumerateFunctions(functions: Listed<Function>, room: ListRoom, module: Module);
            own 3020 cuModuleGetGlobal_v2(address: Global, bytes: GlobalBytes, module: Module, name: Text);
            ask 11070 cuModuleGetLoadingMode(mode: Out<u32>);
        }
    };
}

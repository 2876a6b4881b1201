//! Modules.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_module {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 2000 cuModuleLoad(module: Out<Module>, path: Text);
            ask 2000 cuModuleLoadData(module: Out<Module>, image: Image);
            ask 2000 cuModuleLoadFatBinary(module: Out<Module>, image: Image);
            ask 2010 cuModuleLoadDataEx(
                module: Out<Module>, image: Image, count: u32, options: In<u32>, values: InOut<usize>
            );
            post 2000 cuModuleUnload(module: Module);
            local 2000 cuModuleGetFunction(function: Out<Function>, module: Module, name: Text);
            local 12040 cuModuleGetFunctionCount(count: Out<u32>, module: Module);
            local 12040 cuModuleEnumerateFunctions(functions: Out<Function>, room: u32, module: Module);
            ask 3020 cuModuleGetGlobal_v2(address: Out<Address>, bytes: Out<usize>, module: Module, name: Text);
            local 11070 cuModuleGetLoadingMode(mode: Out<u32>);
        }
    };
}

//! Functions and occupancy.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_function {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 2020 cuFuncGetAttribute(value: Out<i32>, attribute: u32, function: Function);
            own 9000 cuFuncSetAttribute(function: Function, attribute: u32, value: i32);
            ask 3000 cuFuncSetCacheConfig(function: Function, config: u32);
            ask 4020 cuFuncSetSharedMemConfig(function: Function, config: u32);
            ask 11000 cuFuncGetModule(module: Out<Module>, function: Function);
            ask 12030 cuFuncGetName(name: Out<*const c_char>, function: Function);
            ask 12040 cuFuncGetParamInfo(function: Function, index: usize, offset: Out<usize>, bytes: Out<usize>);
            ask 12040 cuFuncIsLoaded(state: Out<u32>, function: Function);
            ask 12040 cuFuncLoad(function: Function);
            ask 6050 cuOccupancyMaxActiveBlocksPerMultiprocessor(
                blocks: Out<i32>, function: Function, block: i32, shared: usize
            );
            ask 7000 cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
                blocks: Out<i32>, function: Function, block: i32, shared: usize, flags: u32
            );
            local 6050 cuOccupancyMaxPotentialBlockSize(
                grid: Out<i32>, block: Out<i32>, function: Function, shared_of_block: Option<SharedOfBlock>,
                shared: usize, limit: i32
            );
            local 7000 cuOccupancyMaxPotentialBlockSizeWithFlags(
                grid: Out<i32>, block: Out<i32>, function: Function, shared_of_block: Option<SharedOfBlock>,
                shared: usize, limit: i32, flags: u32
            );
            ask 10020 cuOccupancyAvailableDynamicSMemPerBlock(
                bytes: Out<usize>, function: Function, blocks: i32, block: i32
            );
        }
    };
}

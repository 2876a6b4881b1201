//! Contexts.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_context {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            own 3020 cuCtxCreate_v2(context: Out<Context>, flags: ContextFlags, device: Device) old cuCtxCreate;
            local 11040 cuCtxCreate_v3(
                context: Out<Context>, affinity: In<c_void>, count: i32, flags: u32, device: Device
            );
            local 12050 cuCtxCreate_v4(context: Out<Context>, parameters: In<c_void>, flags: u32, device: Device);
            own 4000 cuCtxDestroy_v2(context: Gone<Context>) old cuCtxDestroy;
            local 2000 cuCtxAttach(context: Out<Context>, flags: u32);
            local 2000 cuCtxDetach(context: Context);
            local 4000 cuCtxPushCurrent_v2(context: Context) old cuCtxPushCurrent;
            local 4000 cuCtxPopCurrent_v2(context: Out<Context>) old cuCtxPopCurrent;
            local 4000 cuCtxSetCurrent(context: Context);
            local 4000 cuCtxGetCurrent(context: Out<Context>);
            local 2000 cuCtxGetDevice(device: Out<Device>);
            local 3020 cuCtxGetApiVersion(context: Context, version: Out<u32>);
            ask 12000 cuCtxGetId(context: Context, id: Out<u64>);
            ask 7000 cuCtxGetFlags(flags: Out<u32>);
            ask 12010 cuCtxSetFlags(flags: ContextFlags);
            wait 2000 cuCtxSynchronize();
            ask 3010 cuCtxGetLimit(value: Out<usize>, limit: u32);
            ask 3010 cuCtxSetLimit(limit: u32, value: usize);
            ask 3020 cuCtxGetCacheConfig(config: Out<u32>);
            ask 3020 cuCtxSetCacheConfig(config: u32);
            ask 4020 cuCtxGetSharedMemConfig(config: Out<u32>);
            ask 4020 cuCtxSetSharedMemConfig(config: u32);
            ask 5050 cuCtxGetStreamPriorityRange(least: Out<i32>, greatest: Out<i32>);
            ask 11000 cuCtxResetPersistingL2Cache();
            refuse 4000 cuCtxEnablePeerAccess(peer: Context, flags: u32);
            refuse 4000 cuCtxDisablePeerAccess(peer: Context);
        }
    };
}

//! Devices and their primary contexts.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_device {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 2000 cuDeviceGet(device: Out<Device>, ordinal: i32);
            local 2000 cuDeviceGetCount(count: Out<i32>);
            local 2000 cuDeviceGetName(name: TextRoom, room: i32, device: Device);
            local 9020 cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: Device);
            local 11040 cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: Device);
            local 3020 cuDeviceTotalMem_v2(bytes: Out<usize>, device: Device);
            local 2000 cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: Device);
            local 2000 cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: Device);
            local 2000 cuDeviceGetProperties(properties: Out<DeviceProperties>, device: Device);
            local 4010 cuDeviceGetPCIBusId(text: TextRoom, room: i32, device: Device);
            local 4010 cuDeviceGetByPCIBusId(device: Out<Device>, id: Text);
            local 4000 cuDeviceCanAccessPeer(can: Out<i32>, device: Device, peer: Device);
            local 8000 cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, source: Device, target: Device);
            local 11040 cuDeviceGetExecAffinitySupport(supported: Out<i32>, kind: u32, device: Device);
            ask 11040 cuDeviceGetGraphMemAttribute(device: Device, attribute: u32, value: Out<u64>);
            ask 11040 cuDeviceSetGraphMemAttribute(device: Device, attribute: u32, value: In<u64>);
            ask 11040 cuDeviceGraphMemTrim(device: Device);
            own 7000 cuDevicePrimaryCtxRetain(context: Out<Context>, device: Device);
            ask 11000 cuDevicePrimaryCtxRelease_v2(device: Device) old cuDevicePrimaryCtxRelease;
            ask 11000 cuDevicePrimaryCtxReset_v2(device: Device) old cuDevicePrimaryCtxReset;
            ask 11000 cuDevicePrimaryCtxSetFlags_v2(device: Device, flags: ContextFlags) old cuDevicePrimaryCtxSetFlags;
            ask 7000 cuDevicePrimaryCtxGetState(device: Device, flags: Out<u32>, active: Out<i32>);
            ask 11020 cuDeviceGetDefaultMemPool(pool: Out<Pool>, device: Device);
            ask 11020 cuDeviceGetMemPool(pool: Out<Pool>, device: Device);
            ask 11020 cuDeviceSetMemPool(device: Device, pool: Pool);
        }
    };
}

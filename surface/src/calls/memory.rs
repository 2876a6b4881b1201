//! Device, managed and pinned host memory, and attributes of pointers.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_memory {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 3020 cuMemAlloc_v2(address: Allocated, bytes: MeteredBytes);
            refuse 6000 cuMemAllocManaged(address: Out<Address>, bytes: usize, flags: u32);
            ask 3020 cuMemAllocPitch_v2(
                address: Allocated, pitch: Out<usize>, width_bytes: MeteredWidth, height: MeteredHeight, element_bytes: u32
            );
            ask 3020 cuMemFree_v2(address: Freed);
            ask 3020 cuMemGetInfo_v2(free: FreeBytes, total: TotalBytes);
            ask 3020 cuMemGetAddressRange_v2(base: Out<Address>, bytes: Out<usize>, address: Address);
            local 2020 cuMemHostAlloc(pointer: Out<HostAddress>, bytes: usize, flags: u32);
            local 3020 cuMemAllocHost_v2(pointer: Out<HostAddress>, bytes: usize);
            local 2000 cuMemFreeHost(pointer: HostAddress);
            local 6050 cuMemHostRegister_v2(pointer: Out<u8>, bytes: usize, flags: u32) old cuMemHostRegister;
            local 4000 cuMemHostUnregister(pointer: HostAddress);
            refuse 3020 cuMemHostGetDevicePointer_v2(address: Out<Address>, pointer: HostAddress, flags: u32);
            local 2030 cuMemHostGetFlags(flags: Out<u32>, pointer: HostAddress);
            own 4000 cuPointerGetAttribute(value: AttributeOut, attribute: PointerAttribute, address: Address);
            local 7000 cuPointerGetAttributes(count: u32, attributes: In<u32>, values: In<Out<c_void>>, address: Address);
            refuse 8000 cuMemAdvise(address: Address, bytes: usize, advice: u32, device: Device);
            refuse 12020 cuMemAdvise_v2(address: Address, bytes: usize, advice: u32, location: Location);
            ask 11020 cuMemAllocAsync(address: Allocated, bytes: MeteredBytes, stream: Stream) twin ptsz;
            ask 11020 cuMemAllocFromPoolAsync(
                address: Allocated, bytes: MeteredBytes, pool: Pool, stream: Stream
            ) twin ptsz;
            ask 11020 cuMemFreeAsync(address: Freed, stream: Stream) twin ptsz;
            refuse 8000 cuMemPrefetchAsync(address: Address, bytes: usize, device: Device, stream: Stream) twin ptsz;
            refuse 12020 cuMemPrefetchAsync_v2(
                address: Address, bytes: usize, location: Location, flags: u32, stream: Stream
            ) twin ptsz;
            refuse 6000 cuStreamAttachMemAsync(stream: Stream, address: Address, bytes: usize, flags: u32) twin ptsz;
        }
    };
}

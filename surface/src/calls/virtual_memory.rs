//! Virtual memory management.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_virtual_memory {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 10020 cuMemAddressReserve(
                address: Reserved, bytes: ReservedBytes, alignment: usize, hint: Address, flags: u64
            );
            ask 10020 cuMemAddressFree(address: Freed, bytes: usize);
            ask 10020 cuMemCreate(
                handle: Out<PhysicalMemory>, bytes: MeteredBytes, properties: In<AllocationProperties>, flags: u64
            );
            ask 10020 cuMemRelease(handle: Gone<PhysicalMemory>);
            ask 11000 cuMemRetainAllocationHandle(handle: Out<PhysicalMemory>, address: Address);
            ask 10020 cuMemMap(address: Address, bytes: usize, offset: usize, handle: PhysicalMemory, flags: u64);
            ask 10020 cuMemUnmap(address: Address, bytes: ReservedBytes);
            ask 10020 cuMemSetAccess(address: Address, bytes: usize, accesses: Many<Access>, count: Count);
            ask 10020 cuMemGetAccess(flags: Out<u64>, location: In<Location>, address: Address);
            ask 10020 cuMemGetAllocationGranularity(
                bytes: Out<usize>, properties: In<AllocationProperties>, option: u32
            );
            ask 10020 cuMemGetAllocationPropertiesFromHandle(
                properties: Out<AllocationProperties>, handle: PhysicalMemory
            );
        }
    };
}

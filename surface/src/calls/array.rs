//! Arrays and mipmapped arrays.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_array {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            make 3020 cuArrayCreate_v2(array: New<Array>, flat: Metered<FlatArray>);
            make 3020 cuArray3DCreate_v2(array: New<Array>, solid: Metered<SolidArray>);
            ask 3020 cuArrayGetDescriptor_v2(flat: Out<FlatArray>, array: Array);
            ask 3020 cuArray3DGetDescriptor_v2(solid: Out<SolidArray>, array: Array);
            ask 2000 cuArrayDestroy(array: Gone<Array>);
            ask 11060 cuArrayGetMemoryRequirements(requirements: Out<MemoryRequirements>, array: Array, device: Device);
            make 5000 cuMipmappedArrayCreate(array: New<MipmappedArray>, solid: Metered<SolidArray>, levels: u32);
            ask 5000 cuMipmappedArrayDestroy(array: Gone<MipmappedArray>);
            ask 5000 cuMipmappedArrayGetLevel(level: Out<Array>, array: MipmappedArray, number: u32);
            ask 11060 cuMipmappedArrayGetMemoryRequirements(
                requirements: Out<MemoryRequirements>, array: MipmappedArray, device: Device
            );
            ask 11010 cuDeviceGetTexture1DLinearMaxWidth(
                texels: Out<usize>, format: u32, channels: u32, device: Device
            );
        }
    };
}

//! Texture and surface references of modules.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_texture_reference {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            ask 2000 cuModuleGetTexRef(reference: Out<TextureReference>, module: Module, name: Text);
            ask 3000 cuModuleGetSurfRef(reference: Out<SurfaceReference>, module: Module, name: Text);
            ask 2000 cuTexRefSetArray(reference: TextureReference, array: Array, flags: u32);
            ask 5000 cuTexRefSetMipmappedArray(reference: TextureReference, array: MipmappedArray, flags: u32);
            ask 3000 cuSurfRefSetArray(reference: SurfaceReference, array: Array, flags: u32);
            ask 3020 cuTexRefSetAddress_v2(
                offset: Out<usize>, reference: TextureReference, address: Address, bytes: usize
            );
            ask 4010 cuTexRefSetAddress2D_v3(
                reference: TextureReference, flat: In<FlatArray>, address: Address, pitch: usize
            );
            ask 2000 cuTexRefSetFormat(reference: TextureReference, format: u32, channels: i32);
            ask 2000 cuTexRefSetAddressMode(reference: TextureReference, axis: i32, mode: u32);
            ask 2000 cuTexRefSetFilterMode(reference: TextureReference, mode: u32);
            ask 2000 cuTexRefSetFlags(reference: TextureReference, flags: u32);
            ask 5000 cuTexRefSetMaxAnisotropy(reference: TextureReference, most: u32);
            ask 8000 cuTexRefSetBorderColor(reference: TextureReference, color: In<[f32; 4]>);
            ask 5000 cuTexRefSetMipmapFilterMode(reference: TextureReference, mode: u32);
            ask 5000 cuTexRefSetMipmapLevelBias(reference: TextureReference, bias: f32);
            ask 5000 cuTexRefSetMipmapLevelClamp(reference: TextureReference, low: f32, high: f32);
            ask 2000 cuTexRefGetArray(array: Out<Array>, reference: TextureReference);
            ask 5000 cuTexRefGetMipmappedArray(array: Out<MipmappedArray>, reference: TextureReference);
            ask 3000 cuSurfRefGetArray(array: Out<Array>, reference: SurfaceReference);
            ask 3020 cuTexRefGetAddress_v2(address: Out<Address>, reference: TextureReference);
            ask 2000 cuTexRefGetFormat(format: Out<u32>, channels: Out<i32>, reference: TextureReference);
            ask 2000 cuTexRefGetAddressMode(mode: Out<u32>, reference: TextureReference, axis: i32);
            ask 2000 cuTexRefGetFilterMode(mode: Out<u32>, reference: TextureReference);
            ask 2000 cuTexRefGetFlags(flags: Out<u32>, reference: TextureReference);
            ask 5000 cuTexRefGetMaxAnisotropy(most: Out<u32>, reference: TextureReference);
            ask 8000 cuTexRefGetBorderColor(color: Out<[f32; 4]>, reference: TextureReference);
            ask 5000 cuTexRefGetMipmapFilterMode(mode: Out<u32>, reference: TextureReference);
            ask 5000 cuTexRefGetMipmapLevelBias(bias: Out<f32>, reference: TextureReference);
            ask 5000 cuTexRefGetMipmapLevelClamp(low: Out<f32>, high: Out<f32>, reference: TextureReference);
        }
    };
}

//! Launches that are put together call by call.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_staged_launch {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            local 2000 cuFuncSetBlockShape(function: Function, x: i32, y: i32, z: i32);
            local 2000 cuFuncSetSharedSize(function: Function, bytes: u32);
            local 2000 cuParamSetSize(function: Function, bytes: u32);
            local 2000 cuParamSeti(function: Function, offset: i32, value: u32);
            local 2000 cuParamSetf(function: Function, offset: i32, value: f32);
            local 2000 cuParamSetv(function: Function, offset: i32, value: In<u8>, bytes: u32);
            local 2000 cuParamSetTexRef(function: Function, unit: i32, reference: TextureReference);
            local 2000 cuLaunch(function: Function);
            local 2000 cuLaunchGrid(function: Function, width: i32, height: i32);
            local 2000 cuLaunchGridAsync(function: Function, width: i32, height: i32, stream: Stream);
        }
    };
}

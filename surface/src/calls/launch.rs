//! Launches of kernels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_launch {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            post 4000 cuLaunchKernel(
                function: Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                shared_bytes: u32, stream: Stream, parameters: In<*const u8>, extra: In<usize>
            ) twin ptsz;
            post 9000 cuLaunchCooperativeKernel(
                function: Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                shared_bytes: u32, stream: Stream, parameters: In<*const u8>
            ) twin ptsz;
            post 11060 cuLaunchKernelEx(
                config: In<LaunchConfig>, function: Function, parameters: In<*const u8>, extra: In<usize>
            ) twin ptsz;
        }
    };
}

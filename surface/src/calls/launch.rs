//! Launches of kernels.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_launch {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            own_post 4000 cuLaunchKernel(
                function: Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                shared_bytes: u32, stream: Stream, parameters: Parameters, extra: Extra
            ) twin ptsz;
            local 9000 cuLaunchCooperativeKernel(
                function: Function, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32,
                shared_bytes: u32, stream: Stream, parameters: Parameters
            ) twin ptsz;
            own_post 11060 cuLaunchKernelEx(
                config: In<LaunchConfig>, function: Function, parameters: Parameters, extra: Extra
            ) twin ptsz;
        }
    };
}

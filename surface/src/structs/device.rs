//! Properties of devices.

/// `CUdevprop`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DeviceProperties {
    pub block_threads_max: i32,
    pub block_max: [i32; 3],
    pub grid_max: [i32; 3],
    pub shared_bytes: i32,
    pub constant_bytes: i32,
    pub warp_threads: i32,
    pub pitch_max: i32,
    pub registers: i32,
    pub clock_khz: i32,
    pub texture_alignment: i32,
}

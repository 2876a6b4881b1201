//! Descriptions of textures and surfaces.

/// `CU_TR_ADDRESS_MODE_CLAMP`.
pub const CLAMP: u32 = 1;

/// `CUDA_RESOURCE_DESC`. Its union has 128 bytes; a format and a number of channels share a 64-bit word of it.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ResourceDescription {
    pub kind: u32,
    pub padding: u32,
    pub words: [u64; 16],
    pub flags: u32,
    pub end: u32,
}

/// `CUDA_RESOURCE_VIEW_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct ViewDescription {
    pub format: u32,
    pub padding: u32,
    pub size: [usize; 3],
    pub levels: [u32; 2],
    pub layers: [u32; 2],
    pub reserved: [u32; 16],
}

/// `CUDA_TEXTURE_DESC`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    pub address_modes: [u32; 3],
    pub filter: u32,
    pub flags: u32,
    pub anisotropy_max: u32,
    pub mipmap_filter: u32,
    pub level_bias: f32,
    pub level_min: f32,
    pub level_max: f32,
    pub border: [f32; 4],
    pub reserved: [i32; 12],
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            address_modes: [CLAMP; 3],
            filter: 0,
            flags: 0,
            anisotropy_max: 0,
            mipmap_filter: 0,
            level_bias: 0.0,
            level_min: 0.0,
            level_max: 0.0,
            border: [0.0; 4],
            reserved: [0; 12],
        }
    }
}

//! Descriptions of arrays.

/// `CUDA_ARRAY_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlatArray {
    pub width: usize,
    pub height: usize,
    pub format: u32,
    pub channels: u32,
}

/// `CUDA_ARRAY3D_DESCRIPTOR`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SolidArray {
    pub width: usize,
    pub height: usize,
    pub depth: usize,
    pub format: u32,
    pub channels: u32,
    pub flags: u32,
}

/// `CUDA_ARRAY_MEMORY_REQUIREMENTS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemoryRequirements {
    pub bytes: usize,
    pub alignment: usize,
    pub reserved: [u32; 4],
}

impl From<FlatArray> for SolidArray {
    fn from(flat: FlatArray) -> Self {
        let FlatArray { width, height, format, channels } = flat;
        Self { width, height, depth: 0, format, channels, flags: 0 }
    }
}

impl From<SolidArray> for FlatArray {
    fn from(solid: SolidArray) -> Self {
        let SolidArray { width, height, format, channels, .. } = solid;
        Self { width, height, format, channels }
    }
}

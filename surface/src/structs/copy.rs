//! Copies of rectangles and volumes.

use crate::kinds::{Address, Array, Context, HostAddress};

/// `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Rectangle {
    pub from: FlatEnd,
    pub to: FlatEnd,
    pub width: usize,
    pub height: usize,
}

/// One end of `CUDA_MEMCPY2D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FlatEnd {
    pub x: usize,
    pub y: usize,
    pub kind: u32,
    pub host: HostAddress,
    pub device: Address,
    pub array: Array,
    pub pitch: usize,
}

/// `CUDA_MEMCPY3D`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Volume {
    pub from: End,
    pub to: End,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// One end of `CUDA_MEMCPY3D`, and of `CUDA_MEMCPY3D_PEER`, which has a context in the reserved field.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct End {
    pub x: usize,
    pub y: usize,
    pub z: usize,
    pub level: usize,
    pub kind: u32,
    pub host: HostAddress,
    pub device: Address,
    pub array: Array,
    pub context: Context,
    pub pitch: usize,
    pub height: usize,
}

impl From<Rectangle> for Volume {
    fn from(rectangle: Rectangle) -> Self {
        let Rectangle { from, to, width, height } = rectangle;
        Self { from: from.into(), to: to.into(), width, height, depth: 1 }
    }
}

impl From<FlatEnd> for End {
    fn from(end: FlatEnd) -> Self {
        let FlatEnd { x, y, kind, host, device, array, pitch } = end;
        Self { x, y, z: 0, level: 0, kind, host, device, array, context: 0, pitch, height: 0 }
    }
}

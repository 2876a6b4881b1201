//! Launches with attributes.

use crate::{argument::In, kinds::Stream};

/// `CUlaunchConfig`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Stream,
    pub attributes: In<LaunchAttribute>,
    pub attribute_count: u32,
}

/// `CUlaunchAttribute`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct LaunchAttribute {
    pub id: u32,
    pub padding: u32,
    pub value: [u64; 8],
}

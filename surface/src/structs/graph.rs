//! Parameters of graphs and their nodes.

use std::ffi::c_void;

use super::{copy::Volume, memory::PoolProperties};
use crate::{
    argument::In,
    callback::HostFunction,
    kinds::{Address, Context, Function, GraphNode, HostAddress, Kernel, Stream},
};

/// `CUDA_GRAPH_INSTANTIATE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload_stream: Stream,
    pub error_node: GraphNode,
    pub result: u32,
}

/// `CUgraphExecUpdateResultInfo`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct UpdateResult {
    pub result: u32,
    pub error_node: GraphNode,
    pub error_from_node: GraphNode,
}

/// `CUDA_KERNEL_NODE_PARAMS`, in its second and third versions.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct KernelParams {
    pub first: FirstKernelParams,
    pub kernel: Kernel,
    pub context: Context,
}

/// `CUDA_KERNEL_NODE_PARAMS` in its first version, with which the later versions begin.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FirstKernelParams {
    pub function: Function,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub parameters: In<*const u8>,
    pub extra: In<usize>,
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FillParams {
    pub address: Address,
    pub pitch: usize,
    pub value: u32,
    pub element_bytes: u32,
    pub width: usize,
    pub height: usize,
}

/// `CUDA_MEMSET_NODE_PARAMS_v2`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FillIn {
    pub fill: FillParams,
    pub context: Context,
}

/// `CUDA_HOST_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct HostParams {
    pub function: Option<HostFunction>,
    pub data: *mut c_void,
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AllocateParams {
    pub pool: PoolProperties,
    pub accesses: HostAddress,
    pub access_count: usize,
    pub bytes: usize,
    pub address: Address,
}

/// `CUDA_MEMCPY_NODE_PARAMS`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct CopyParams {
    pub flags: i32,
    pub reserved: i32,
    pub context: Context,
    pub volume: Volume,
}

/// The start of `CUgraphNodeParams`; the rest depends on the kind.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct AnyHead {
    pub kind: u32,
    pub reserved: [i32; 3],
}

impl From<FirstKernelParams> for KernelParams {
    fn from(first: FirstKernelParams) -> Self {
        Self { first, kernel: 0, context: 0 }
    }
}

//! C functions that the emulator does not implement: each returns `CUDA_ERROR_NOT_SUPPORTED` and ignores its arguments.

use crate::driver::status::Status;

macro_rules! unsupported {
    ($($name:ident)+) => {
        $(
            // The C calling convention lets a callee ignore arguments, so one signature serves all.
            #[unsafe(no_mangle)]
            extern "C" fn $name() -> i32 {
                Status::NotSupported.code()
            }
        )+

        /// Returns the functions that this file exports.
        pub(super) fn symbols() -> Vec<super::Symbol> {
            vec![$((stringify!($name), $name as *const () as usize)),+]
        }
    };
}

unsupported! {
    cuArrayGetPlane
    cuArrayGetSparseProperties
    cuCoredumpGetAttribute
    cuCoredumpGetAttributeGlobal
    cuCoredumpSetAttribute
    cuCoredumpSetAttributeGlobal
    cuCtxFromGreenCtx
    cuCtxGetDevResource
    cuCtxGetExecAffinity
    cuCtxRecordEvent
    cuCtxWaitEvent
    cuDestroyExternalMemory
    cuDestroyExternalSemaphore
    cuDevResourceGenerateDesc
    cuDevSmResourceSplitByCount
    cuDeviceGetDevResource
    cuDeviceGetLuid
    cuDeviceRegisterAsyncNotification
    cuDeviceUnregisterAsyncNotification
    cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray
    cuFlushGPUDirectRDMAWrites
    cuGraphAddBatchMemOpNode
    cuGraphAddExternalSemaphoresSignalNode
    cuGraphAddExternalSemaphoresWaitNode
    cuGraphBatchMemOpNodeGetParams
    cuGraphBatchMemOpNodeSetParams
    cuGraphConditionalHandleCreate
    cuGraphExecBatchMemOpNodeSetParams
    cuGraphExecExternalSemaphoresSignalNodeSetParams
    cuGraphExecExternalSemaphoresWaitNodeSetParams
    cuGraphExternalSemaphoresSignalNodeGetParams
    cuGraphExternalSemaphoresSignalNodeSetParams
    cuGraphExternalSemaphoresWaitNodeGetParams
    cuGraphExternalSemaphoresWaitNodeSetParams
    cuGraphicsMapResources
    cuGraphicsResourceGetMappedMipmappedArray
    cuGraphicsResourceGetMappedPointer_v2
    cuGraphicsResourceSetMapFlags_v2
    cuGraphicsSubResourceGetMappedArray
    cuGraphicsUnmapResources
    cuGraphicsUnregisterResource
    cuGreenCtxCreate
    cuGreenCtxDestroy
    cuGreenCtxGetDevResource
    cuGreenCtxRecordEvent
    cuGreenCtxStreamCreate
    cuGreenCtxWaitEvent
    cuImportExternalMemory
    cuImportExternalSemaphore
    cuIpcCloseMemHandle
    cuIpcGetEventHandle
    cuIpcGetMemHandle
    cuIpcOpenEventHandle
    cuIpcOpenMemHandle_v2
    cuLaunchCooperativeKernelMultiDevice
    cuMemBatchDecompressAsync
    cuMemExportToShareableHandle
    cuMemGetHandleForAddressRange
    cuMemImportFromShareableHandle
    cuMemMapArrayAsync
    cuMemPoolExportPointer
    cuMemPoolExportToShareableHandle
    cuMemPoolImportFromShareableHandle
    cuMemPoolImportPointer
    cuMemRangeGetAttribute
    cuMemRangeGetAttributes
    cuMemcpy3DBatchAsync
    cuMemcpyBatchAsync
    cuMipmappedArrayGetSparseProperties
    cuMulticastAddDevice
    cuMulticastBindAddr
    cuMulticastBindMem
    cuMulticastCreate
    cuMulticastGetGranularity
    cuMulticastUnbind
    cuOccupancyMaxActiveClusters
    cuOccupancyMaxPotentialClusterSize
    cuPointerSetAttribute
    cuProfilerInitialize
    cuSignalExternalSemaphoresAsync
    cuTensorMapEncodeIm2col
    cuTensorMapEncodeIm2colWide
    cuTensorMapEncodeTiled
    cuTensorMapReplaceAddress
    cuTexRefCreate
    cuTexRefDestroy
    cuWaitExternalSemaphoresAsync
}

//! Calls that no part of gpufleet supports: each returns `CUDA_ERROR_NOT_SUPPORTED` and ignores its arguments.

#[doc(hidden)]
#[macro_export]
macro_rules! rows_of_unsupported {
    ($callback:ident! $($with:tt)*) => {
        $callback! {
            $($with)*
            refuse 11020 cuArrayGetPlane;
            refuse 11010 cuArrayGetSparseProperties;
            refuse 12010 cuCoredumpGetAttribute;
            refuse 12010 cuCoredumpGetAttributeGlobal;
            refuse 12010 cuCoredumpSetAttribute;
            refuse 12010 cuCoredumpSetAttributeGlobal;
            refuse 12040 cuCtxFromGreenCtx;
            refuse 12040 cuCtxGetDevResource;
            refuse 11040 cuCtxGetExecAffinity;
            refuse 12050 cuCtxRecordEvent;
            refuse 12050 cuCtxWaitEvent;
            refuse 10000 cuDestroyExternalMemory;
            refuse 10000 cuDestroyExternalSemaphore;
            refuse 12040 cuDevResourceGenerateDesc;
            refuse 12040 cuDevSmResourceSplitByCount;
            refuse 12040 cuDeviceGetDevResource;
            refuse 10000 cuDeviceGetLuid;
            refuse 12040 cuDeviceRegisterAsyncNotification;
            refuse 12040 cuDeviceUnregisterAsyncNotification;
            refuse 10000 cuExternalMemoryGetMappedBuffer;
            refuse 10000 cuExternalMemoryGetMappedMipmappedArray;
            refuse 11030 cuFlushGPUDirectRDMAWrites;
            refuse 11070 cuGraphAddBatchMemOpNode;
            refuse 11020 cuGraphAddExternalSemaphoresSignalNode;
            refuse 11020 cuGraphAddExternalSemaphoresWaitNode;
            refuse 11070 cuGraphBatchMemOpNodeGetParams;
            refuse 11070 cuGraphBatchMemOpNodeSetParams;
            refuse 12030 cuGraphConditionalHandleCreate;
            refuse 11070 cuGraphExecBatchMemOpNodeSetParams;
            refuse 11020 cuGraphExecExternalSemaphoresSignalNodeSetParams;
            refuse 11020 cuGraphExecExternalSemaphoresWaitNodeSetParams;
            refuse 11020 cuGraphExternalSemaphoresSignalNodeGetParams;
            refuse 11020 cuGraphExternalSemaphoresSignalNodeSetParams;
            refuse 11020 cuGraphExternalSemaphoresWaitNodeGetParams;
            refuse 11020 cuGraphExternalSemaphoresWaitNodeSetParams;
            refuse 3000 cuGraphicsMapResources;
            refuse 5000 cuGraphicsResourceGetMappedMipmappedArray;
            refuse 3020 cuGraphicsResourceGetMappedPointer_v2;
            refuse 6050 cuGraphicsResourceSetMapFlags_v2;
            refuse 3000 cuGraphicsSubResourceGetMappedArray;
            refuse 3000 cuGraphicsUnmapResources;
            refuse 3000 cuGraphicsUnregisterResource;
            refuse 12040 cuGreenCtxCreate;
            refuse 12040 cuGreenCtxDestroy;
            refuse 12040 cuGreenCtxGetDevResource;
            refuse 12040 cuGreenCtxRecordEvent;
            refuse 12050 cuGreenCtxStreamCreate;
            refuse 12040 cuGreenCtxWaitEvent;
            refuse 10000 cuImportExternalMemory;
            refuse 10000 cuImportExternalSemaphore;
            refuse 4010 cuIpcCloseMemHandle;
            refuse 4010 cuIpcGetEventHandle;
            refuse 4010 cuIpcGetMemHandle;
            refuse 4010 cuIpcOpenEventHandle;
            refuse 11000 cuIpcOpenMemHandle_v2;
            refuse 9000 cuLaunchCooperativeKernelMultiDevice;
            refuse 12060 cuMemBatchDecompressAsync;
            refuse 10020 cuMemExportToShareableHandle;
            refuse 11070 cuMemGetHandleForAddressRange;
            refuse 10020 cuMemImportFromShareableHandle;
            refuse 11010 cuMemMapArrayAsync;
            refuse 11020 cuMemPoolExportPointer;
            refuse 11020 cuMemPoolExportToShareableHandle;
            refuse 11020 cuMemPoolImportFromShareableHandle;
            refuse 11020 cuMemPoolImportPointer;
            refuse 8000 cuMemRangeGetAttribute;
            refuse 8000 cuMemRangeGetAttributes;
            refuse 12080 cuMemcpy3DBatchAsync;
            refuse 12080 cuMemcpyBatchAsync;
            refuse 11010 cuMipmappedArrayGetSparseProperties;
            refuse 12010 cuMulticastAddDevice;
            refuse 12010 cuMulticastBindAddr;
            refuse 12010 cuMulticastBindMem;
            refuse 12010 cuMulticastCreate;
            refuse 12010 cuMulticastGetGranularity;
            refuse 12010 cuMulticastUnbind;
            refuse 11070 cuOccupancyMaxActiveClusters;
            refuse 11070 cuOccupancyMaxPotentialClusterSize;
            refuse 6000 cuPointerSetAttribute;
            refuse 4000 cuProfilerInitialize;
            refuse 10000 cuSignalExternalSemaphoresAsync;
            refuse 12000 cuTensorMapEncodeIm2col;
            refuse 12080 cuTensorMapEncodeIm2colWide;
            refuse 12000 cuTensorMapEncodeTiled;
            refuse 12000 cuTensorMapReplaceAddress;
            refuse 2000 cuTexRefCreate;
            refuse 2000 cuTexRefDestroy;
            refuse 10000 cuWaitExternalSemaphoresAsync;
        }
    };
}

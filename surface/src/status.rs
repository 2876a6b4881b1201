//! The result codes of the driver API: every code that cudarc knows, with its name and meaning. A code outside this
//! table can't be constructed, because callers with a closed enum could not represent it.

use std::{
    ffi::CStr,
    panic::{self, UnwindSafe},
};

/// The result of a driver call: a value or an error code.
pub type Answer<T = ()> = Result<T, Status>;

/// Runs the body of an exported function and returns its code; a panic becomes `CUDA_ERROR_UNKNOWN`.
pub fn code_of(body: impl FnOnce() -> Answer + UnwindSafe) -> i32 {
    match panic::catch_unwind(body) {
        Ok(Ok(())) => 0,
        Ok(Err(status)) => status.code(),
        Err(_) => Status::Unknown.code(),
    }
}

macro_rules! statuses {
    ($($variant:ident = $code:literal, $name:literal, $meaning:literal;)+) => {
        /// A result code of the driver API.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(i32)]
        pub enum Status {
            $(#[doc = $meaning] $variant = $code,)+
        }

        const TABLE: &[(Status, &CStr, &CStr)] = &[
            $((Status::$variant, nul_terminated(concat!($name, "\0")), nul_terminated(concat!($meaning, "\0"))),)+
        ];
    };
}

impl Status {
    /// Returns the status with this code, if the driver API has one.
    pub fn from_code(code: i32) -> Option<Self> {
        TABLE.iter().map(|(status, ..)| *status).find(|status| status.code() == code)
    }

    /// Returns the number that crosses the C boundary.
    pub fn code(self) -> i32 {
        self as i32
    }

    /// Returns the name in the C headers, such as `CUDA_ERROR_INVALID_VALUE`.
    pub fn name(self) -> &'static CStr {
        self.row().1
    }

    /// Returns a sentence on the meaning of the code.
    pub fn meaning(self) -> &'static CStr {
        self.row().2
    }

    fn row(self) -> &'static (Status, &'static CStr, &'static CStr) {
        TABLE.iter().find(|(status, ..)| *status == self).expect("the table is made from the enum's own variants")
    }
}

const fn nul_terminated(text: &'static str) -> &'static CStr {
    match CStr::from_bytes_with_nul(text.as_bytes()) {
        Ok(text) => text,
        Err(_) => panic!("a table row holds a NUL of its own"),
    }
}

statuses! {
    Success = 0, "CUDA_SUCCESS", "no error";
    InvalidValue = 1, "CUDA_ERROR_INVALID_VALUE", "an argument is out of range or null";
    OutOfMemory = 2, "CUDA_ERROR_OUT_OF_MEMORY", "out of device memory";
    NotInitialized = 3, "CUDA_ERROR_NOT_INITIALIZED", "cuInit was not called";
    Deinitialized = 4, "CUDA_ERROR_DEINITIALIZED", "the driver is shutting down";
    ProfilerDisabled = 5, "CUDA_ERROR_PROFILER_DISABLED", "profiler disabled";
    ProfilerNotInitialized = 6, "CUDA_ERROR_PROFILER_NOT_INITIALIZED", "profiler not initialized";
    ProfilerAlreadyStarted = 7, "CUDA_ERROR_PROFILER_ALREADY_STARTED", "profiler already started";
    ProfilerAlreadyStopped = 8, "CUDA_ERROR_PROFILER_ALREADY_STOPPED", "profiler already stopped";
    StubLibrary = 34, "CUDA_ERROR_STUB_LIBRARY", "the library is a stub";
    DeviceUnavailable = 46, "CUDA_ERROR_DEVICE_UNAVAILABLE", "the device is busy or unavailable";
    NoDevice = 100, "CUDA_ERROR_NO_DEVICE", "no device";
    InvalidDevice = 101, "CUDA_ERROR_INVALID_DEVICE", "no device with that ordinal";
    DeviceNotLicensed = 102, "CUDA_ERROR_DEVICE_NOT_LICENSED", "device not licensed";
    InvalidImage = 200, "CUDA_ERROR_INVALID_IMAGE", "the module image is damaged";
    InvalidContext = 201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or it is not usable";
    ContextAlreadyCurrent = 202, "CUDA_ERROR_CONTEXT_ALREADY_CURRENT", "context already current";
    MapFailed = 205, "CUDA_ERROR_MAP_FAILED", "map failed";
    UnmapFailed = 206, "CUDA_ERROR_UNMAP_FAILED", "unmap failed";
    ArrayIsMapped = 207, "CUDA_ERROR_ARRAY_IS_MAPPED", "array is mapped";
    AlreadyMapped = 208, "CUDA_ERROR_ALREADY_MAPPED", "already mapped";
    NoBinaryForGpu = 209, "CUDA_ERROR_NO_BINARY_FOR_GPU", "the module has no code that this device can run";
    AlreadyAcquired = 210, "CUDA_ERROR_ALREADY_ACQUIRED", "already acquired";
    NotMapped = 211, "CUDA_ERROR_NOT_MAPPED", "not mapped";
    NotMappedAsArray = 212, "CUDA_ERROR_NOT_MAPPED_AS_ARRAY", "not mapped as array";
    NotMappedAsPointer = 213, "CUDA_ERROR_NOT_MAPPED_AS_POINTER", "not mapped as pointer";
    EccUncorrectable = 214, "CUDA_ERROR_ECC_UNCORRECTABLE", "an uncorrectable memory error";
    UnsupportedLimit = 215, "CUDA_ERROR_UNSUPPORTED_LIMIT", "the limit is not supported";
    ContextAlreadyInUse = 216, "CUDA_ERROR_CONTEXT_ALREADY_IN_USE", "context already in use";
    PeerAccessUnsupported = 217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these devices";
    InvalidPtx = 218, "CUDA_ERROR_INVALID_PTX", "the PTX did not compile";
    InvalidGraphicsContext = 219, "CUDA_ERROR_INVALID_GRAPHICS_CONTEXT", "invalid graphics context";
    NvlinkUncorrectable = 220, "CUDA_ERROR_NVLINK_UNCORRECTABLE", "nvlink uncorrectable";
    JitCompilerNotFound = 221, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND", "jit compiler not found";
    UnsupportedPtxVersion = 222, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION", "the PTX version is newer than this driver supports";
    JitCompilationDisabled = 223, "CUDA_ERROR_JIT_COMPILATION_DISABLED", "jit compilation disabled";
    UnsupportedExecAffinity = 224, "CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY", "unsupported exec affinity";
    InvalidSource = 300, "CUDA_ERROR_INVALID_SOURCE", "the source is not valid";
    FileNotFound = 301, "CUDA_ERROR_FILE_NOT_FOUND", "the file was not found";
    SharedObjectSymbolNotFound = 302, "CUDA_ERROR_SHARED_OBJECT_SYMBOL_NOT_FOUND", "shared object symbol not found";
    SharedObjectInitFailed = 303, "CUDA_ERROR_SHARED_OBJECT_INIT_FAILED", "shared object init failed";
    OperatingSystem = 304, "CUDA_ERROR_OPERATING_SYSTEM", "an operating system call failed";
    InvalidHandle = 400, "CUDA_ERROR_INVALID_HANDLE", "the handle is invalid or was destroyed";
    IllegalState = 401, "CUDA_ERROR_ILLEGAL_STATE", "the object is in the wrong state for this call";
    NotFound = 500, "CUDA_ERROR_NOT_FOUND", "no symbol with that name";
    NotReady = 600, "CUDA_ERROR_NOT_READY", "the work is not finished yet";
    IllegalAddress = 700, "CUDA_ERROR_ILLEGAL_ADDRESS", "a kernel accessed memory outside its allocations";
    LaunchOutOfResources = 701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "the launch asks for more resources than the device has";
    LaunchTimeout = 702, "CUDA_ERROR_LAUNCH_TIMEOUT", "the kernel ran longer than allowed";
    LaunchIncompatibleTexturing = 703, "CUDA_ERROR_LAUNCH_INCOMPATIBLE_TEXTURING", "launch incompatible texturing";
    PeerAccessAlreadyEnabled = 704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled";
    PeerAccessNotEnabled = 705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access is not enabled";
    PrimaryContextActive = 708, "CUDA_ERROR_PRIMARY_CONTEXT_ACTIVE", "the primary context is already active";
    ContextIsDestroyed = 709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed";
    Assert = 710, "CUDA_ERROR_ASSERT", "a device-side assertion failed";
    TooManyPeers = 711, "CUDA_ERROR_TOO_MANY_PEERS", "too many peers";
    HostMemoryAlreadyRegistered = 712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "the host memory is already registered";
    HostMemoryNotRegistered = 713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "the host memory is not registered";
    HardwareStackError = 714, "CUDA_ERROR_HARDWARE_STACK_ERROR", "a kernel overflowed its stack";
    IllegalInstruction = 715, "CUDA_ERROR_ILLEGAL_INSTRUCTION", "a kernel executed an illegal instruction";
    MisalignedAddress = 716, "CUDA_ERROR_MISALIGNED_ADDRESS", "a kernel accessed memory at a misaligned address";
    InvalidAddressSpace = 717, "CUDA_ERROR_INVALID_ADDRESS_SPACE", "a kernel used an address in the wrong state space";
    InvalidPc = 718, "CUDA_ERROR_INVALID_PC", "a kernel jumped to an invalid address";
    LaunchFailed = 719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel stopped with a trap";
    CooperativeLaunchTooLarge = 720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the cooperative launch has more blocks than fit on the device at once";
    NotPermitted = 800, "CUDA_ERROR_NOT_PERMITTED", "the operation is not permitted";
    NotSupported = 801, "CUDA_ERROR_NOT_SUPPORTED", "the emulated device does not support this operation";
    SystemNotReady = 802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not ready";
    SystemDriverMismatch = 803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system driver mismatch";
    CompatNotSupportedOnDevice = 804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "compat not supported on device";
    MpsConnectionFailed = 805, "CUDA_ERROR_MPS_CONNECTION_FAILED", "mps connection failed";
    MpsRpcFailure = 806, "CUDA_ERROR_MPS_RPC_FAILURE", "mps rpc failure";
    MpsServerNotReady = 807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "mps server not ready";
    MpsMaxClientsReached = 808, "CUDA_ERROR_MPS_MAX_CLIENTS_REACHED", "mps max clients reached";
    MpsMaxConnectionsReached = 809, "CUDA_ERROR_MPS_MAX_CONNECTIONS_REACHED", "mps max connections reached";
    StreamCaptureUnsupported = 900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "the operation is not permitted while a stream is captured";
    StreamCaptureInvalidated = 901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "stream capture invalidated";
    StreamCaptureMerge = 902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "stream capture merge";
    StreamCaptureUnmatched = 903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "stream capture unmatched";
    StreamCaptureUnjoined = 904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "stream capture unjoined";
    StreamCaptureIsolation = 905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "stream capture isolation";
    StreamCaptureImplicit = 906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "stream capture implicit";
    CapturedEvent = 907, "CUDA_ERROR_CAPTURED_EVENT", "captured event";
    StreamCaptureWrongThread = 908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "stream capture wrong thread";
    Timeout = 909, "CUDA_ERROR_TIMEOUT", "timeout";
    GraphExecUpdateFailure = 910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "graph exec update failure";
    ExternalDevice = 911, "CUDA_ERROR_EXTERNAL_DEVICE", "external device";
    InvalidClusterSize = 912, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "the device can't run a cluster of this size";
    FunctionNotLoaded = 913, "CUDA_ERROR_FUNCTION_NOT_LOADED", "the function is not loaded";
    InvalidResourceType = 914, "CUDA_ERROR_INVALID_RESOURCE_TYPE", "invalid resource type";
    InvalidResourceConfiguration = 915, "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION", "invalid resource configuration";
    Unknown = 999, "CUDA_ERROR_UNKNOWN", "internal error of the driver";
}

#[cfg(test)]
mod tests {
    use super::{Status, TABLE, code_of};

    #[test]
    fn a_panic_becomes_a_code() {
        assert_eq!(code_of(|| panic!("this panic is part of the test")), Status::Unknown.code());
        assert_eq!(code_of(|| Err(Status::NotReady)), 600);
        assert_eq!(code_of(|| Ok(())), 0);
    }

    #[test]
    fn every_status_is_found_by_its_code() {
        for (status, ..) in TABLE {
            assert_eq!(Status::from_code(status.code()), Some(*status));
        }
        assert_eq!(Status::from_code(123_456), None);
    }
}

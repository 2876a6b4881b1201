//! The device of this process, and its context.

use std::path::Path;

use cudarc::driver::{
    result,
    sys::{self, CUdevice_attribute as Attribute, CUresult},
};

use super::{
    error::{CudaError, called},
    library::DriverLibrary,
};
use crate::ipc::message::{ComputeMode, DeviceInfo, Refusal};

/// Device node of NVIDIA's unified memory. CUDA does not start without it, and its kernel module is loaded only on demand.
pub(crate) const UNIFIED_MEMORY_NODE: &str = "/dev/nvidia-uvm";

/// A device with its primary context, which lives as long as the process.
#[derive(Debug, Clone)]
pub(crate) struct Device {
    context: Context,
    pub info: DeviceInfo,
    pub limits: DeviceLimits,
    pub local: LocalMemory,
}

/// The launch limits of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeviceLimits {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub threads_per_block: u32,
    /// Maximum static and dynamic shared memory of a block together, after opting in.
    pub shared_bytes_per_block: u32,
    /// Whether the device supports cooperative launches.
    pub is_cooperative: bool,
    pub has_clusters: bool,
}

/// The local memory of a context: stack frames, arrays and spilled registers. For every thread that the device can run at once, a context
/// has as much as its most demanding kernel needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LocalMemory {
    threads: u64,
    /// The local memory of a thread when the context is new, in bytes.
    bytes: u64,
}

impl LocalMemory {
    /// Returns the local memory that the driver allocates, in addition to that of every context, for a kernel that needs `bytes` per
    /// thread.
    pub(crate) fn taken(self, bytes: u32) -> u64 {
        u64::from(bytes).saturating_sub(self.bytes).saturating_mul(self.threads)
    }

    /// Reads the device's numbers. Its context must be current.
    fn of(device: sys::CUdevice) -> Result<Self, CudaError> {
        let processors = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        let threads = attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR)?;
        let bytes = called("cuCtxGetLimit", result::ctx::get_limit(sys::CUlimit::CU_LIMIT_STACK_SIZE))?;
        Ok(Self { threads: u64::from(processors) * u64::from(threads), bytes: bytes as u64 })
    }
}

#[derive(Debug, Clone, Copy)]
struct Context(sys::CUcontext);

// SAFETY: the driver allows any thread to make a context current.
unsafe impl Send for Context {}
// SAFETY: the handle is never written to.
unsafe impl Sync for Context {}

impl Device {
    /// Opens the device and makes its context current on this thread.
    pub(crate) fn open(library: &DriverLibrary, ordinal: u32) -> Result<Self, Refusal> {
        let devices = count(library)?;
        if ordinal >= devices {
            return Err(Refusal::NoDevice { ordinal, devices });
        }
        Self::retain(library, ordinal).map_err(refused)
    }

    /// Makes the context current on the calling thread.
    pub(crate) fn bind(&self) -> Result<(), CudaError> {
        // SAFETY: the context is never released.
        called("cuCtxSetCurrent", unsafe { result::ctx::set_current(self.context.0) })
    }

    /// Returns the device memory that no process uses, in bytes.
    pub(crate) fn free_bytes() -> Result<u64, CudaError> {
        called("cuMemGetInfo", result::mem_get_info()).map(|(free, _)| free as u64)
    }

    fn retain(library: &DriverLibrary, ordinal: u32) -> Result<Self, CudaError> {
        let handle = called("cuDeviceGet", result::device::get(ordinal as i32))?;
        // SAFETY: the device comes from cuDeviceGet.
        let context = Context(called("cuDevicePrimaryCtxRetain", unsafe { result::primary_ctx::retain(handle) })?);
        // SAFETY: the context was just retained, and is never released.
        called("cuCtxSetCurrent", unsafe { result::ctx::set_current(context.0) })?;
        let heap = called("cuCtxGetLimit", result::ctx::get_limit(sys::CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE))?;
        let info = DeviceInfo { heap_bytes: heap as u64, ..describe(library, ordinal)? };
        Ok(Self { context, info, limits: DeviceLimits::of(handle)?, local: LocalMemory::of(handle)? })
    }
}

/// Lists the devices that the driver shows to this process. Creates no context on them.
pub(crate) fn list(library: &DriverLibrary) -> Result<Vec<DeviceInfo>, Refusal> {
    (0..count(library)?).map(|ordinal| describe(library, ordinal).map_err(refused)).collect()
}

fn count(library: &DriverLibrary) -> Result<u32, Refusal> {
    let has_nodes = library.is_emulator() || Path::new(UNIFIED_MEMORY_NODE).exists();
    called("cuInit", result::init()).or_else(|error| not_started(error, has_nodes))?;
    let devices = called("cuDeviceGetCount", result::device::get_count()).map_err(refused)?;
    Ok(u32::try_from(devices).unwrap_or(0))
}

fn describe(library: &DriverLibrary, ordinal: u32) -> Result<DeviceInfo, CudaError> {
    let handle = called("cuDeviceGet", result::device::get(ordinal as i32))?;
    // SAFETY: the device comes from cuDeviceGet.
    let memory_bytes = called("cuDeviceTotalMem", unsafe { result::device::total_mem(handle) })? as u64;
    let name = called("cuDeviceGetName", result::device::get_name(handle))?;
    Ok(DeviceInfo {
        ordinal,
        uuid: uuid(library, handle, &name)?,
        name,
        compute_capability: (
            attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory_bytes,
        heap_bytes: 0,
        multiprocessors: attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        driver_version: driver_version()?,
        emulated: library.is_emulator(),
        takes_cubins: !library.is_emulator(),
        compute_mode: compute_mode(attribute(handle, Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)?),
        library: library.name.clone(),
    })
}

impl DeviceLimits {
    fn of(device: sys::CUdevice) -> Result<Self, CudaError> {
        Ok(Self {
            grid: [
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X)?,
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)?,
            ],
            block: [
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X)?,
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y)?,
                attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)?,
            ],
            threads_per_block: attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            shared_bytes_per_block: attribute(
                device,
                Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
            )?,
            is_cooperative: attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH)? != 0,
            // Drivers before CUDA 11.8 do not know this attribute.
            has_clusters: attribute(device, Attribute::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH).is_ok_and(|has| has != 0),
        })
    }
}

fn attribute(device: sys::CUdevice, attribute: Attribute) -> Result<u32, CudaError> {
    // SAFETY: the device comes from cuDeviceGet.
    let value = called("cuDeviceGetAttribute", unsafe { result::device::get_attribute(device, attribute) })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// Converts the driver's number of a compute mode. 1, exclusive to one thread, no longer exists.
fn compute_mode(number: u32) -> ComputeMode {
    match number {
        1 | 3 => ComputeMode::Exclusive,
        2 => ComputeMode::Prohibited,
        _ => ComputeMode::Shared,
    }
}

fn driver_version() -> Result<u32, CudaError> {
    let mut version = 0;
    // SAFETY: the integer is a valid place for the result.
    called("cuDriverGetVersion", unsafe { sys::cuDriverGetVersion(&raw mut version) }.result())?;
    Ok(u32::try_from(version).unwrap_or(0))
}

/// Returns the device's UUID as `nvidia-smi -L` writes it. The older of the two calls returns that of the GPU; the newer one returns that
/// of the MIG slice if the device is one. Both are called by their real names, because newer headers and cudarc redirect the older name to
/// the newer call.
fn uuid(library: &DriverLibrary, device: sys::CUdevice, name: &str) -> Result<String, CudaError> {
    let mut gpu = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `gpu` is a valid place for the result, and the device comes from cuDeviceGet.
    called("cuDeviceGetUuid", unsafe { sys::cuDeviceGetUuid(&raw mut gpu, device) }.result())?;
    if !library.has("cuDeviceGetUuid_v2") {
        return Ok(uuid_text("GPU", &gpu));
    }
    let mut own = gpu;
    // SAFETY: `own` is a valid place for the result, and the device comes from cuDeviceGet.
    called("cuDeviceGetUuid_v2", unsafe { sys::cuDeviceGetUuid_v2(&raw mut own, device) }.result())?;
    let is_slice = own.bytes != gpu.bytes || name.contains(" MIG ");
    Ok(uuid_text(if is_slice { "MIG" } else { "GPU" }, &own))
}

fn uuid_text(kind: &str, uuid: &sys::CUuuid) -> String {
    let hex: String = uuid.bytes.iter().map(|byte| format!("{:02x}", *byte as u8)).collect();
    format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

pub(crate) fn refused(error: CudaError) -> Refusal {
    Refusal::Driver { call: error.call.to_owned(), code: error.code(), name: error.name }
}

/// Classifies a failed start of the driver. It reports "no device" if there is no device. If device nodes are missing, it reports the same
/// or an unknown error.
fn not_started(error: CudaError, has_nodes: bool) -> Result<(), Refusal> {
    match error.result {
        CUresult::CUDA_ERROR_NO_DEVICE | CUresult::CUDA_ERROR_UNKNOWN if !has_nodes => Err(Refusal::NoDriver {
            hint: format!(
                "{error}; {UNIFIED_MEMORY_NODE} is missing; create it as root with `nvidia-modprobe -u -c 0`"
            ),
        }),
        CUresult::CUDA_ERROR_NO_DEVICE => Err(Refusal::NoDevice { ordinal: 0, devices: 0 }),
        _ => Err(refused(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_without_its_nodes_is_told_from_one_without_a_device() {
        let error = |result| CudaError { call: "cuInit", result, name: "CUDA_ERROR".into(), text: "text".into() };
        let (no_device, unknown) = (CUresult::CUDA_ERROR_NO_DEVICE, CUresult::CUDA_ERROR_UNKNOWN);
        for result in [no_device, unknown] {
            let Err(Refusal::NoDriver { hint }) = not_started(error(result), false) else { panic!("{result:?}") };
            assert!(hint.contains("cuInit") && hint.contains(UNIFIED_MEMORY_NODE), "{hint}");
        }
        assert_eq!(not_started(error(no_device), true), Err(Refusal::NoDevice { ordinal: 0, devices: 0 }));
        assert!(matches!(not_started(error(unknown), true), Err(Refusal::Driver { code: 999, .. })));
        assert!(matches!(
            not_started(error(CUresult::CUDA_ERROR_NOT_INITIALIZED), false),
            Err(Refusal::Driver { code: 3, .. })
        ));
    }
}

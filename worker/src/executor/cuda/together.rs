//! Launches whose blocks run together: cooperative grids, whose blocks all run at once, and clusters, whose blocks run on the same part of
//! the device.

use std::ffi::c_void;

use cudarc::driver::{
    DriverError, result,
    sys::{
        self, CUfunction_attribute_enum as FunctionAttribute, CUlaunchAttribute, CUlaunchAttributeID as AttributeId,
        CUlaunchAttributeValue, CUresult, CUstream,
    },
};

use super::{
    device::Device,
    error::{CudaError, called},
    geometry::Geometry,
    library::DriverLibrary,
    module::Function,
};
use crate::ipc::message::LaunchPlan;

/// Maximum size of a cluster without an attribute of the kernel, in blocks.
const PORTABLE_CLUSTER_BLOCKS: u32 = 8;
/// The driver function for launches with attributes, which exists since CUDA 11.8.
const LAUNCH_SYMBOL: &str = "cuLaunchKernelEx";

/// Which blocks of a launch run together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Together {
    cooperative: bool,
    /// The size of a cluster in x, y and z, in blocks.
    pub(super) cluster: [u32; 3],
}

impl Together {
    pub(super) fn of(launch: &LaunchPlan) -> Self {
        let mut cluster = [1; 3];
        cluster.iter_mut().zip(&launch.cluster).for_each(|(to, from)| *to = *from);
        Self { cooperative: launch.cooperative, cluster }
    }

    /// Returns whether the launch needs more than independent blocks.
    pub(super) fn is_special(self) -> bool {
        self.cooperative || self.cluster_blocks() > 1
    }

    fn cluster_blocks(self) -> u32 {
        self.cluster.iter().fold(1, |product: u32, extent| product.saturating_mul(*extent))
    }

    /// Checks that the device can run such a launch. The inner error is the user's mistake.
    pub(super) fn check(
        self,
        library: &DriverLibrary,
        device: &Device,
        function: &Function,
        geometry: Geometry,
        shared_bytes: u32,
    ) -> Result<Result<(), String>, CudaError> {
        if !self.is_special() {
            return Ok(Ok(()));
        }
        if let Err(problem) = self.check_device(library, device) {
            return Ok(Err(problem));
        }
        let threads: u32 = geometry.block.iter().product();
        let resident = if self.cluster_blocks() > 1 {
            let clusters = self.active_clusters(function, geometry, shared_bytes)?;
            if clusters == 0 {
                let blocks = self.cluster_blocks();
                return Ok(Err(format!(
                    "a cluster of {blocks} blocks of {threads} threads does not fit on this device"
                )));
            }
            u64::from(clusters) * u64::from(self.cluster_blocks())
        } else {
            let blocks = called(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                // SAFETY: the function is loaded.
                unsafe {
                    result::occupancy::max_active_block_per_multiprocessor(
                        function.raw(),
                        threads as i32,
                        shared_bytes as usize,
                    )
                },
            )?;
            u64::from(blocks.max(0).cast_unsigned()) * u64::from(device.info.multiprocessors)
        };
        Ok(if self.cooperative { fits(geometry, threads, resident, device.info.multiprocessors) } else { Ok(()) })
    }

    fn check_device(self, library: &DriverLibrary, device: &Device) -> Result<(), String> {
        let (major, minor) = device.info.compute_capability;
        if self.cluster_blocks() > 1 && !device.limits.has_clusters {
            return Err(if device.info.emulated {
                "the emulated device does not support clusters of several blocks; use a GPU of compute capability 9.0 or higher"
                    .to_owned()
            } else {
                format!("clusters need compute capability 9.0, but this device has {major}.{minor}")
            });
        }
        if self.cooperative && !device.limits.is_cooperative {
            return Err("this device does not support cooperative launches".to_owned());
        }
        if !library.has(LAUNCH_SYMBOL) {
            return Err("cooperative launches and clusters need a CUDA driver of version 11.8 or newer".to_owned());
        }
        Ok(())
    }

    /// Returns how many such clusters the device can run at once.
    fn active_clusters(self, function: &Function, geometry: Geometry, shared_bytes: u32) -> Result<u32, CudaError> {
        if self.cluster_blocks() > PORTABLE_CLUSTER_BLOCKS {
            let attribute = FunctionAttribute::CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED;
            // SAFETY: the function is loaded.
            let set = unsafe { result::function::set_function_attribute(function.raw(), attribute, 1) };
            called("cuFuncSetAttribute", set)?;
        }
        let mut attributes = self.attributes();
        let config = config(geometry, shared_bytes, std::ptr::null_mut(), &mut attributes);
        let mut clusters = 0;
        // SAFETY: the function is loaded, and the number and the configuration with its attributes are live.
        let asked = unsafe { sys::cuOccupancyMaxActiveClusters(&raw mut clusters, function.raw(), &raw const config) };
        match called("cuOccupancyMaxActiveClusters", asked.result()) {
            Ok(()) => Ok(u32::try_from(clusters).unwrap_or(0)),
            Err(error) if error.result == CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE => Ok(0),
            Err(error) => Err(error),
        }
    }

    /// Enqueues the launch on a stream.
    ///
    /// # Safety
    /// The function is loaded and the stream live. There are as many `params` as the function has parameters, and each points to as many
    /// bytes as its parameter has.
    pub(super) unsafe fn launch(
        self,
        function: &Function,
        geometry: Geometry,
        shared_bytes: u32,
        stream: CUstream,
        params: &mut [*mut c_void],
    ) -> Result<(), DriverError> {
        let mut attributes = self.attributes();
        let config = config(geometry, shared_bytes, stream, &mut attributes);
        let pointers = params.as_mut_ptr();
        // SAFETY: the caller vouches for function, stream and parameters; configuration and attributes are live.
        unsafe { sys::cuLaunchKernelEx(&raw const config, function.raw(), pointers, std::ptr::null_mut()) }.result()
    }

    fn attributes(self) -> Vec<CUlaunchAttribute> {
        let attribute = |id, value| CUlaunchAttribute { id, pad: [0; 4], value };
        let mut attributes = Vec::with_capacity(2);
        if self.cooperative {
            let value = CUlaunchAttributeValue { cooperative: 1 };
            attributes.push(attribute(AttributeId::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, value));
        }
        if self.cluster_blocks() > 1 {
            let mut value = CUlaunchAttributeValue { pad: [0; 64] };
            let [x, y, z] = self.cluster;
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            attributes.push(attribute(AttributeId::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value));
        }
        attributes
    }
}

/// Returns the configuration. It points to the attributes, which must outlive it.
fn config(
    geometry: Geometry,
    shared_bytes: u32,
    stream: CUstream,
    attributes: &mut [CUlaunchAttribute],
) -> sys::CUlaunchConfig {
    let ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]) = (geometry.grid, geometry.block);
    sys::CUlaunchConfig {
        gridDimX: grid_x,
        gridDimY: grid_y,
        gridDimZ: grid_z,
        blockDimX: block_x,
        blockDimY: block_y,
        blockDimZ: block_z,
        sharedMemBytes: shared_bytes,
        hStream: stream,
        attrs: attributes.as_mut_ptr(),
        numAttrs: attributes.len() as u32,
    }
}

/// Checks that all blocks of a cooperative grid can run at once.
fn fits(geometry: Geometry, threads: u32, resident: u64, multiprocessors: u32) -> Result<(), String> {
    let blocks = geometry.grid.iter().try_fold(1_u64, |product, extent| product.checked_mul(u64::from(*extent)));
    if blocks.is_some_and(|blocks| blocks <= resident) {
        return Ok(());
    }
    let [x, y, z] = geometry.grid;
    Err(format!(
        "a cooperative grid of {x} x {y} x {z} blocks of {threads} threads is too large: this device runs at most {resident} of its blocks at \
         once on {multiprocessors} multiprocessors; launch fewer blocks, each with more work"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn together(cooperative: bool, cluster: [u32; 3]) -> Together {
        Together { cooperative, cluster }
    }

    #[test]
    fn a_cluster_of_one_block_is_no_cluster() {
        assert!(!together(false, [1; 3]).is_special());
        assert!(together(true, [1; 3]).is_special() && together(false, [1, 2, 1]).is_special());
        let ids = |together: Together| together.attributes().iter().map(|attribute| attribute.id).collect::<Vec<_>>();
        assert_eq!(ids(together(true, [1; 3])), [AttributeId::CU_LAUNCH_ATTRIBUTE_COOPERATIVE]);
        let both = ids(together(true, [2, 2, 1]));
        assert_eq!(
            both,
            [AttributeId::CU_LAUNCH_ATTRIBUTE_COOPERATIVE, AttributeId::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION]
        );
    }

    #[test]
    fn a_cooperative_grid_that_does_not_fit_is_told_in_numbers() {
        let geometry = |grid| Geometry { grid, block: [256, 1, 1] };
        assert_eq!(fits(geometry([132, 2, 1]), 256, 264, 132), Ok(()));
        let told = fits(geometry([133, 2, 1]), 256, 264, 132).unwrap_err();
        assert!(
            told.starts_with(
                "a cooperative grid of 133 x 2 x 1 blocks of 256 threads is too large: this device runs at most 264"
            ),
            "{told}"
        );
        assert!(fits(geometry([u32::MAX; 3]), 256, u64::MAX, 132).is_err(), "it overflows");
    }
}

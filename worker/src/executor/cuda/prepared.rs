//! Launches, checked against their kernels and the device before anything of their job is done.

use std::sync::Arc;

use cudarc::driver::sys;
use gpufleet_schema::{FailureCode, Verdict};

use super::{
    geometry::{Geometry, check_shared},
    lane::{JobError, failed},
    module::{Function, Module},
    preparation::Preparation,
};
use crate::ipc::message::{ArgPlan, LaunchPlan};

/// A launch that can't fail any more for what was asked of it.
pub(super) struct Prepared<'a> {
    pub(super) function: Arc<Function>,
    pub(super) geometry: Geometry,
    pub(super) launch: &'a LaunchPlan,
}

pub(super) fn prepare<'a>(
    preparation: &Preparation<'_>,
    module: &Module,
    launch: &'a LaunchPlan,
    index: usize,
    buffers: usize,
) -> Result<Prepared<'a>, JobError> {
    let entry = &launch.entry;
    let refuse = |problem: String| {
        failed(Verdict::User, FailureCode::LaunchError, format!("launches[{index}] ({entry}): {problem}"))
    };
    let function = preparation.function(module, entry)?;
    if let Err(problem) = check_args(&function, &launch.args, buffers) {
        return refuse(problem);
    }
    let limits = &preparation.common.device.limits;
    if let Err(problem) = check_shared(launch.shared_bytes, limits, function.limits) {
        return refuse(problem);
    }
    function.opt_in(launch.shared_bytes)?;
    let occupancy = || function.occupancy(launch.shared_bytes);
    match Geometry::of(&launch.grid, &launch.block, limits, function.limits, occupancy)? {
        Ok(geometry) => Ok(Prepared { function, geometry, launch }),
        Err(problem) => refuse(problem),
    }
}

/// The driver takes a list of pointers on trust; so it gets exactly what the kernel declares, or nothing.
fn check_args(function: &Function, args: &[ArgPlan], buffers: usize) -> Result<(), String> {
    let Some(params) = &function.params else {
        return Err("neither this driver nor a text says what parameters the kernel takes; submit plain PTX".to_owned());
    };
    if params.len() != args.len() {
        return Err(format!("{} arguments given, the kernel takes {}", args.len(), params.len()));
    }
    for (index, (arg, wanted)) in args.iter().zip(params).enumerate() {
        let given = match arg {
            ArgPlan::Buffer(buffer) if *buffer as usize >= buffers => {
                return Err(format!("there is no buffer {buffer}"));
            }
            ArgPlan::Buffer(_) => size_of::<sys::CUdeviceptr>(),
            ArgPlan::Scalar { size, .. } => usize::from(*size),
        };
        if given != *wanted {
            return Err(format!("args[{index}] has {given} bytes, the kernel's parameter {wanted}"));
        }
    }
    Ok(())
}

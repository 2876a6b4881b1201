//! Checks all launches of a job against their kernels and the device before the job starts.

use std::sync::Arc;

use cudarc::driver::sys;
use gpufleet_schema::{FailureCode, Verdict};

use super::{
    ending::{StreamError, failed},
    geometry::{Geometry, check_shared},
    module::{Function, Module, Param},
    preparation::LaunchPreparation,
    together::Together,
};
use crate::ipc::message::{ArgPlan, BufferPlan, LaunchPlan};

/// A launch that has been checked and can no longer fail because of its request.
pub(super) struct CheckedLaunch<'a> {
    pub(super) function: Arc<Function>,
    pub(super) geometry: Geometry,
    pub(super) together: Together,
    pub(super) launch: &'a LaunchPlan,
}

pub(super) fn check_launch<'a>(
    preparation: &LaunchPreparation<'_>,
    module: &Module,
    launch: &'a LaunchPlan,
    index: usize,
    buffers: &[BufferPlan],
) -> Result<CheckedLaunch<'a>, StreamError> {
    let entry = &launch.entry;
    let refuse = |problem: String| {
        failed(Verdict::User, FailureCode::LaunchError, format!("launches[{index}] ({entry}): {problem}"))
    };
    let function = preparation.function(module, &launch.symbol)?;
    if let Err(problem) = check_args(function.params.as_deref(), &launch.args, buffers) {
        return refuse(problem);
    }
    let device = &preparation.common.device;
    if let Err(problem) = check_shared(launch.shared_bytes, &device.limits, function.limits) {
        return refuse(problem);
    }
    function.opt_in(launch.shared_bytes)?;
    let together = Together::of(launch);
    let occupancy = || function.occupancy(launch.shared_bytes);
    let geometry =
        Geometry::of(&launch.grid, &launch.block, together.cluster, &device.limits, function.limits, occupancy)?;
    let geometry = match geometry {
        Ok(geometry) => geometry,
        Err(problem) => return refuse(problem),
    };
    match together.check(&preparation.common.library, device, &function, geometry, launch.shared_bytes)? {
        Ok(()) => Ok(CheckedLaunch { function, geometry, together, launch }),
        Err(problem) => refuse(problem),
    }
}

/// Checks that the arguments match the kernel's parameters exactly, because the driver trusts the list of pointers.
fn check_args(params: Option<&[Param]>, args: &[ArgPlan], buffers: &[BufferPlan]) -> Result<(), String> {
    let Some(params) = params else {
        return Err("the worker cannot determine the parameters of the kernel; submit plain PTX".to_owned());
    };
    if params.len() != args.len() {
        return Err(format!("{} arguments given, but the kernel takes {}", args.len(), params.len()));
    }
    for (index, (arg, param)) in args.iter().zip(params).enumerate() {
        let given = match arg {
            ArgPlan::Buffer { buffer, offset } => {
                check_address(*buffer, *offset, buffers)?;
                size_of::<sys::CUdeviceptr>()
            }
            ArgPlan::Scalar { size, .. } => usize::from(*size),
            ArgPlan::Bytes { bytes, .. } => bytes.len(),
        };
        if given != param.bytes {
            return Err(format!("args[{index}] has {given} bytes, but the kernel's parameter has {}", param.bytes));
        }
        if let (ArgPlan::Bytes { align, .. }, Some(offset)) = (arg, param.offset)
            && !offset.is_multiple_of(*align as usize)
        {
            return Err(format!(
                "args[{index}] is aligned to {align} bytes, but the kernel's parameter starts at byte {offset}; give the alignment that \
                 the structure has in the kernel"
            ));
        }
    }
    Ok(())
}

fn check_address(buffer: u32, offset: u64, buffers: &[BufferPlan]) -> Result<(), String> {
    match buffers.get(buffer as usize) {
        None => Err(format!("there is no buffer {buffer}")),
        Some(plan) if offset != 0 && offset >= plan.bytes => {
            Err(format!("offset {offset} is outside buffer {buffer}, which has {} bytes", plan.bytes))
        }
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ipc::message::Contents;

    #[test]
    fn arguments_are_compared_with_the_parameters_in_number_size_and_place() {
        let params = [(8, 0), (12, 8), (2, 20)].map(|(bytes, offset)| Param { bytes, offset: Some(offset) });
        let buffers = [BufferPlan { bytes: 64, contents: Contents::Zeros }];
        let check = |args: &[ArgPlan]| check_args(Some(&params), args, &buffers);
        let at = |offset| ArgPlan::Buffer { buffer: 0, offset };
        let structure = |length, align| ArgPlan::Bytes { bytes: vec![0; length], align };
        let half = ArgPlan::Scalar { bits: 0, size: 2 };
        assert_eq!(check(&[at(60), structure(12, 4), half.clone()]), Ok(()));
        let told = |args: &[ArgPlan]| check(args).unwrap_err();
        assert!(told(&[at(0), half.clone()]).contains("2 arguments given, but the kernel takes 3"));
        assert!(
            told(&[at(64), structure(12, 4), half.clone()])
                .contains("offset 64 is outside buffer 0, which has 64 bytes")
        );
        assert!(
            told(&[at(0), structure(16, 4), half.clone()])
                .contains("args[1] has 16 bytes, but the kernel's parameter has 12")
        );
        let told = check_args(Some(&params[..2]), &[at(0), structure(12, 16)], &buffers).unwrap_err();
        assert!(told.contains("aligned to 16 bytes, but the kernel's parameter starts at byte 8"), "{told}");
        assert!(check_args(None, &[], &buffers).is_err());
    }
}

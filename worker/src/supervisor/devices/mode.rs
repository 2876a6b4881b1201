//! Checks a device's compute mode, by which an operator limits the number of its processes. A worker has a process for each executor, and a
//! spare one.

use std::env;

use tracing::warn;

use crate::executor::{ComputeMode, DeviceInfo};

/// Environment variable that is set if the processes of this machine share devices through NVIDIA's MPS server. The device then has only
/// one process, the server.
const MPS_VARIABLE: &str = "CUDA_MPS_PIPE_DIRECTORY";

/// Returns why the device can't have so many executors, if it can't.
pub(super) fn unfit(device: &DeviceInfo, executors: u64) -> Option<String> {
    let served = env::var_os(MPS_VARIABLE).is_some_and(|folder| !folder.is_empty());
    let unfit = why(device.compute_mode, executors, served);
    if unfit.is_none() && executors > 1 && device.compute_mode == ComputeMode::Exclusive {
        warn!(device = device.ordinal, executors, "device allows one process only, its executors depend on MPS");
    }
    unfit
}

fn why(mode: ComputeMode, executors: u64, served: bool) -> Option<String> {
    match mode {
        ComputeMode::Prohibited => Some(
            "its compute mode is Prohibited, which allows no process; change it with `nvidia-smi -c DEFAULT`"
                .to_owned(),
        ),
        ComputeMode::Exclusive if executors > 1 && !served => Some(format!(
            "its compute mode is Exclusive_Process, which allows one process, but the worker's pools have {executors} executors there; set \
             it to Default (`nvidia-smi -c DEFAULT`), serve one pool with executors=1 per worker, or share the device with MPS \
             ({MPS_VARIABLE})"
        )),
        ComputeMode::Exclusive | ComputeMode::Shared => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exclusive_device_takes_one_executor_unless_mps_serves_it() {
        assert!(why(ComputeMode::Exclusive, 2, false).unwrap().contains("2 executors"));
        assert_eq!(why(ComputeMode::Exclusive, 2, true), None);
        assert_eq!(why(ComputeMode::Exclusive, 1, false), None);
        assert_eq!(why(ComputeMode::Shared, 20, false), None);
        assert!(why(ComputeMode::Prohibited, 1, true).is_some());
    }
}

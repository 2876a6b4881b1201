//! The child that lists devices: it sends one answer on its socket and exits.

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use crate::{
    executor::{CudaSpec, DeviceInfo, ignore_signals, list_devices},
    ipc::{frame, message::Refusal},
    nvml::Nvml,
    own_executable, privileges,
};

/// The command line of the child. The child's socket is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// CUDA driver to open
    #[arg(long)]
    cuda: CudaSpec,
    /// NVIDIA's management library
    #[arg(long)]
    nvml: Option<String>,
    /// User to run as when started by root
    #[arg(long)]
    user: Option<String>,
}

/// The answer of the child.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    Devices(Listing),
    Refused(Refusal),
}

/// The devices that CUDA shows, and the UUIDs of all devices that NVML knows: whole GPUs, and slices in place of partitioned GPUs.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Listing {
    pub(super) devices: Vec<DeviceInfo>,
    pub(super) uuids: Vec<String>,
}

/// Runs the child. Only [`super::list`] starts one.
pub fn main(args: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-list");
    ignore_signals();
    let locked = privileges::close_inherited().and_then(|()| privileges::refuse_new());
    let Ok(socket) = own_executable::supervisor_socket() else {
        eprintln!("only `gpufleet-worker run` may start this subcommand: standard input is not a socket");
        return ExitCode::FAILURE;
    };
    let answer = match locked.map_err(Refusal::from).and_then(|()| list_devices(&args.cuda, args.user.as_deref())) {
        Ok(devices) => Answer::Devices(Listing { devices, uuids: known_to_nvml(args.nvml.as_deref()) }),
        Err(refusal) => Answer::Refused(refusal),
    };
    match frame::write(&socket, &answer) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Returns the UUIDs that NVML knows; none if the library is missing or does not work.
fn known_to_nvml(library: Option<&str>) -> Vec<String> {
    let Some(library) = library else { return Vec::new() };
    match Nvml::open(library) {
        Ok(nvml) => nvml.devices().into_iter().map(|device| device.uuid).collect(),
        Err(error) => {
            eprintln!("MIG slices not listed: {error}");
            Vec::new()
        }
    }
}

//! The child that reads the devices' sensors at intervals and writes the readings to its socket, until the worker
//! closes it.

use std::{process::ExitCode, thread, time::Duration};

use super::{Nvml, Reading};
use crate::{executor::ignore_signals, ipc::frame, own_executable, privileges};

/// Interval between readings: half that of heartbeats, so that a heartbeat's reading is at most half an interval old.
pub const PERIOD: Duration = Duration::from_secs(5);

/// The command line of the child. The child's socket is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// NVIDIA's management library
    #[arg(long)]
    library: String,
    /// User to run as when started by root
    #[arg(long)]
    user: Option<String>,
}

/// Runs the child. Only a worker starts one.
pub fn main(args: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-nvml");
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Reads until the supervisor has ended, so that its socket accepts no more.
fn watch(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    ignore_signals();
    privileges::close_inherited()?;
    privileges::refuse_new()?;
    let socket = own_executable::supervisor_socket()?;
    privileges::leave_root(args.user.as_deref())?;
    let nvml = Nvml::open(&args.library)?;
    loop {
        // List the devices each time, because slices and their handles can change.
        let readings: Vec<Reading> = nvml.devices().iter().map(|device| nvml.read(device)).collect();
        if frame::write(&socket, &readings).is_err() {
            return Ok(());
        }
        thread::sleep(PERIOD);
    }
}

//! The child that reads the devices' metrics at intervals and writes them to its socket until the worker closes it.

use std::{process::ExitCode, thread, time::Duration};

use super::{Nvml, Reading};
use crate::{executor::ignore_signals, ipc::frame, own_executable, privileges};

/// Two readings per heartbeat, so that a reading is at most half an interval old.
pub const PERIOD: Duration = Duration::from_secs(5);

/// The command line of the child. Its socket is its standard input.
#[derive(Debug, Clone, clap::Args)]
pub struct Args {
    /// NVIDIA's management library.
    #[arg(long)]
    library: String,
    /// Whom to become when started by root.
    #[arg(long)]
    user: Option<String>,
}

/// The life of the child. Only a worker starts one.
pub fn main(args: &Args) -> ExitCode {
    own_executable::show_as("gpufleet-nvml");
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("could not {error}");
            ExitCode::FAILURE
        }
    }
}

/// Ends when the supervisor is gone: its socket then takes no more.
fn watch(args: &Args) -> Result<(), Box<dyn std::error::Error>> {
    ignore_signals();
    privileges::close_inherited()?;
    privileges::refuse_new()?;
    let socket = own_executable::supervisor_socket()?;
    privileges::leave_root(args.user.as_deref())?;
    let nvml = Nvml::open(&args.library)?;
    loop {
        // Listed each time, because slices and their handles can change.
        let readings: Vec<Reading> = nvml.devices().iter().map(|device| nvml.read(device)).collect();
        if frame::write(&socket, &readings).is_err() {
            return Ok(());
        }
        thread::sleep(PERIOD);
    }
}

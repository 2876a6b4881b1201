//! The processes of a session, in which a program elsewhere uses a lease of device memory.
//!
//! For each lease the supervisor starts a gate ([`handle`]). The gate ([`gate`]) is what clients connect to: it checks that they have the
//! session's token, and passes bytes on. For each process of the program it starts an engine ([`engine`]), which makes the driver calls.
//! Strangers' bytes reach neither the supervisor, which has the broker's password, nor an engine; and a gate has no device.
//!
//! | event | result |
//! | --- | --- |
//! | a process of the program ends | its engine ends, and with it everything that it had on the device |
//! | an engine dies | the program's connection is closed; the gate lives |
//! | a kernel faults | the process of the program gets the driver's code until it ends; the gate reports the code's name |
//! | the client goes, or is silent | the gate reports it, and the supervisor ends the session |
//! | the gate or the supervisor dies | the kernel kills the engine |

mod driver_file;
mod engine;
mod gate;
mod handle;
mod listen;
mod message;

pub use self::{
    engine::{Args as EngineArgs, main as engine_main},
    gate::{Args as GateArgs, main as gate_main},
    handle::{Gate, GateError},
    listen::{InvalidListen, Listen},
    message::{FromGate, GateEvent, GateReady, Progress, ToGate},
};
use crate::executor::CudaSpec;

/// Options for starting a gate.
#[derive(Debug, Clone)]
pub struct SessionOptions {
    pub cuda: CudaSpec,
    /// The device's UUID as in `nvidia-smi -L`. The session sees only this device.
    pub uuid: String,
    /// Device memory of the lease, in bytes.
    pub memory_bytes: u64,
    pub listen: Listen,
    /// The user (name or number) that gate and engine run as if the worker runs as root. The default is `nobody`.
    pub user: Option<String>,
}

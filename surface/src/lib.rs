//! The surface of the CUDA driver API: the table of its calls, their types and result codes, and handles. The libraries
//! that export the API share it. Nothing here touches a device.

pub mod argument;
pub mod callback;
pub mod calls;
pub mod capture;
pub mod copy;
pub mod handle;
pub mod image;
pub mod kinds;
pub mod launch;
pub mod look_up;
pub mod roles;
pub mod status;
pub mod structs;

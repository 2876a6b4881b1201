//! The surface of the CUDA driver API: its result codes, the types of its arguments, and handles. The libraries that
//! export the API share it. Nothing here knows a device.

pub mod argument;
pub mod handle;
pub mod image;
pub mod status;

//! Launches of kernels: what a driver checks before a launch, with the limits of the device and of the kernel alone.

pub mod arguments;
pub mod limits;
pub mod occupancy;
pub mod shape;

//! cudarc, unchanged, on the emulator: what the worker's executor relies on.
//!
//! This is the one place outside of the worker's executor that knows cudarc. The library is opened by its path, before
//! cudarc's first call; glibc then answers cudarc's own `dlopen("libcuda.so")` by the library's SONAME.

mod copies;
mod device;
mod faults;
mod launches;
mod modules;
mod platform;
mod programs;
mod streams;
mod symbols;

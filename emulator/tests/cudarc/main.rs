//! Unmodified cudarc on the emulator: the functions that the worker's executor relies on.
//!
//! This is the only place outside the worker's executor that uses cudarc. The library is opened by its path before
//! cudarc's first call; glibc then resolves cudarc's own `dlopen("libcuda.so")` by the library's SONAME.

#[cfg(test)]
mod arrays;
#[cfg(test)]
mod captures;
#[cfg(test)]
mod cooperative;
#[cfg(test)]
mod copies;
#[cfg(test)]
mod device;
#[cfg(test)]
mod fat_binaries;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod graphs;
#[cfg(test)]
mod injection;
#[cfg(test)]
mod launches;
#[cfg(test)]
mod libraries;
#[cfg(test)]
mod linking;
#[cfg(test)]
mod modules;
#[cfg(test)]
mod old;
#[cfg(test)]
mod platform;
#[cfg(test)]
mod pools;
#[cfg(test)]
mod programs;
#[cfg(test)]
mod refusals;
#[cfg(test)]
mod scopes;
#[cfg(test)]
mod several;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod symbols;
#[cfg(test)]
mod textures;
#[cfg(test)]
mod virtual_memory;

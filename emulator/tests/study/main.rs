//! Compiles CUDA C with NVRTC under common options, runs it in the emulator, and compares the results with Rust's. It
//! needs what `cargo xtask setup` installs.

#[cfg(test)]
mod arrays;
#[cfg(test)]
mod atomics;
#[cfg(test)]
mod barriers;
#[cfg(test)]
mod builds;
#[cfg(test)]
mod catalog;
#[cfg(test)]
mod close;
#[cfg(test)]
mod counting;
#[cfg(test)]
mod device;
#[cfg(test)]
mod directed;
#[cfg(test)]
mod functions;
#[cfg(test)]
mod groups;
#[cfg(test)]
mod halves;
#[cfg(test)]
mod intrinsics;
#[cfg(test)]
mod lanes;
#[cfg(test)]
mod language;
#[cfg(test)]
mod libraries;
#[cfg(test)]
mod mistakes;
#[cfg(test)]
mod models;
#[cfg(test)]
mod nvrtc;
#[cfg(test)]
mod objects;
#[cfg(test)]
mod products;
#[cfg(test)]
mod textures;
#[cfg(test)]
mod warps;

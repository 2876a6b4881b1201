//! The cases, on the emulator and for themselves.

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod image;
#[cfg(test)]
mod random;

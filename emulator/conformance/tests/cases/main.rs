//! Tests of the cases, on the emulator and by themselves.

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod image;
#[cfg(test)]
mod random;

//! Copies between host and device, in one to three dimensions.

use gpufleet_surface::copy::extent;

use super::{
    device::{Device, DeviceFault},
    driver,
    status::{Answer, Status},
};
use crate::memory::{BadAddress, Memory};

/// Bytes of the buffer through which data is copied between two devices.
const BOUNCE_BYTES: usize = 1 << 20;

/// The address of one end of a copy.
#[derive(Debug, Clone, Copy)]
pub enum Place {
    Device(&'static Device, u64),
    Host(usize),
}

/// One end of a copy: its place, and the bytes from one row and one plane to the next.
#[derive(Debug, Clone, Copy)]
pub struct Side {
    pub place: Place,
    pub pitch: usize,
    pub slice: usize,
}

/// A copy of planes of rows; a plain copy is a single row.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    pub to: Side,
    pub from: Side,
    pub width: usize,
    pub height: usize,
    pub depth: usize,
}

/// When a call that copies may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Return {
    /// After the copy, if the host takes part in it.
    Done,
    /// As soon as the caller may reuse its memory.
    Early,
}

impl Place {
    /// Returns the place of an address that has to be in device memory, or in pinned memory that a device can reach.
    pub fn device(address: u64) -> Answer<Self> {
        match Self::unified(address)? {
            Self::Host(pointer) if driver()?.host.find(pointer).is_none() => Err(Status::InvalidValue),
            place => Ok(place),
        }
    }

    /// Returns the place of any address: host memory, pinned or not, or device memory. The two never share addresses.
    pub fn unified(address: u64) -> Answer<Self> {
        if address == 0 {
            return Err(Status::InvalidValue);
        }
        match driver()?.device_of(address) {
            Some(device) => Ok(Self::Device(device, address)),
            // Reserved addresses are never host memory, whether or not something is mapped there.
            None if driver()?.reservations.holds(address) => Err(Status::InvalidValue),
            None => Ok(Self::Host(address as usize)),
        }
    }

    /// Checks that the memory exists and, for a target, that it may be written.
    fn check(self, extent: usize, is_target: bool) -> Answer {
        match self {
            Self::Device(device, address) => {
                let memory = &device.memory;
                let check = if is_target { Memory::check_writable } else { Memory::check };
                check(memory, address, extent as u64).map_err(|_| Status::InvalidValue)
            }
            Self::Host(pointer) => pointer.checked_add(extent).map(drop).ok_or(Status::InvalidValue),
        }
    }

    pub(super) fn is_pageable(self, extent: usize) -> bool {
        match self {
            Self::Device(..) => false,
            Self::Host(pointer) => !driver().is_ok_and(|driver| driver.host.covers(pointer, extent)),
        }
    }

    /// Returns the place some bytes further on; the extents were checked before.
    fn at(self, offset: usize) -> Self {
        match self {
            Self::Device(device, address) => Self::Device(device, address + offset as u64),
            Self::Host(pointer) => Self::Host(pointer + offset),
        }
    }
}

impl Copy {
    /// Describes a plain copy.
    pub fn linear(to: Place, from: Place, bytes: usize) -> Self {
        let side = |place| Side { place, pitch: bytes, slice: bytes };
        Self { to: side(to), from: side(from), width: bytes, height: 1, depth: 1 }
    }

    /// Checks the copy and returns the bytes that it spans on both sides; `None` if it copies nothing.
    pub fn check(&self) -> Answer<Option<(usize, usize)>> {
        let size = [self.width, self.height, self.depth];
        let extent = |side: &Side| extent(size, side.pitch, side.slice);
        let (to_extent, from_extent) = extent(&self.to).zip(extent(&self.from)).ok_or(Status::InvalidValue)?;
        if self.width == 0 || self.height == 0 || self.depth == 0 {
            return Ok(None);
        }
        self.to.place.check(to_extent, true)?;
        self.from.place.check(from_extent, false)?;
        Ok(Some((to_extent, from_extent)))
    }

    /// Reports which of both sides are device memory.
    pub fn kinds(&self) -> (bool, bool) {
        let is_device = |side: &Side| matches!(side.place, Place::Device(..));
        (is_device(&self.to), is_device(&self.from))
    }

    pub fn perform(&self) -> Result<(), DeviceFault> {
        for plane in 0..self.depth {
            for row in 0..self.height {
                copy_row(self.to.row(plane, row), self.from.row(plane, row), self.width).map_err(freed_underway)?;
            }
        }
        Ok(())
    }

    pub(super) fn bytes(&self) -> usize {
        self.width.saturating_mul(self.height).saturating_mul(self.depth)
    }
}

impl Side {
    /// Returns the start of a row; the extents were checked before.
    fn row(&self, plane: usize, row: usize) -> Place {
        self.place.at(plane * self.slice + row * self.pitch)
    }
}

/// Both ends were checked at submission, so a bad address means that the memory was freed since.
fn freed_underway(address: BadAddress) -> DeviceFault {
    let report = format!("a copy's memory was freed before the stream reached the copy: {address}");
    DeviceFault::new(Status::IllegalAddress, report)
}

fn copy_row(to: Place, from: Place, bytes: usize) -> Result<(), BadAddress> {
    let length = bytes as u64;
    match (to, from) {
        // SAFETY: the caller of the driver API vouches for its host memory until the copy has ended.
        (Place::Device(device, to), Place::Host(from)) => unsafe { device.memory.copy_in(to, host(from), length) },
        // SAFETY: as above.
        (Place::Host(to), Place::Device(device, from)) => unsafe { device.memory.copy_out(host(to), from, length) },
        (Place::Device(to_device, to), Place::Device(from_device, from)) => {
            if to_device.ordinal == from_device.ordinal {
                return to_device.memory.copy_within(to, from, length);
            }
            copy_between(to_device, to, from_device, from, bytes)
        }
        (Place::Host(to), Place::Host(from)) => {
            // SAFETY: as above; the ranges may overlap.
            unsafe { std::ptr::copy(host(from), host(to), bytes) };
            Ok(())
        }
    }
}

fn copy_between(to_device: &Device, to: u64, from_device: &Device, from: u64, bytes: usize) -> Result<(), BadAddress> {
    let mut bounce = vec![0u8; bytes.min(BOUNCE_BYTES)];
    for offset in (0..bytes).step_by(BOUNCE_BYTES) {
        let chunk = (bytes - offset).min(BOUNCE_BYTES) as u64;
        // SAFETY: the buffer holds at least a chunk.
        unsafe {
            from_device.memory.copy_out(bounce.as_mut_ptr(), from + offset as u64, chunk)?;
            to_device.memory.copy_in(to + offset as u64, bounce.as_ptr(), chunk)?;
        }
    }
    Ok(())
}

pub(super) fn host(pointer: usize) -> *mut u8 {
    std::ptr::with_exposed_provenance_mut(pointer)
}

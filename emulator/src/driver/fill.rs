//! Fills (`cuMemset*`): a value of one, two or four bytes, repeated in rows of elements.

use super::{
    copy::Place,
    device::{Device, DeviceFault},
    status::{Answer, Status},
};
use crate::memory::BadAddress;

/// The repeated value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    One(u8),
    Two(u16),
    Four(u32),
}

/// A fill of rows; a plain fill is a single row.
#[derive(Debug, Clone, Copy)]
pub struct Fill {
    pub address: u64,
    pub value: Value,
    /// Elements in a row.
    pub width: usize,
    pub height: usize,
    /// Bytes from the start of one row to that of the next.
    pub pitch: usize,
}

impl Value {
    pub(super) fn bytes(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Four(_) => 4,
        }
    }

    fn write(self, device: &Device, address: u64, count: u64) -> Result<(), BadAddress> {
        match self {
            Self::One(value) => device.memory.fill8(address, value, count),
            Self::Two(value) => device.memory.fill16(address, value, count),
            Self::Four(value) => device.memory.fill32(address, value, count),
        }
    }
}

impl Fill {
    /// Describes a plain fill.
    pub fn linear(address: u64, value: Value, count: usize) -> Self {
        Self { address, value, width: count, height: 1, pitch: 0 }
    }

    /// Returns the device whose memory is filled, `own` for pinned memory; `None` if there is nothing to fill.
    pub fn check(&self, own: &'static Device) -> Answer<Option<&'static Device>> {
        let extent = self.extent().ok_or(Status::InvalidValue)?;
        if self.width == 0 || self.height == 0 {
            return Ok(None);
        }
        if !self.address.is_multiple_of(self.value.bytes() as u64) {
            return Err(Status::InvalidValue);
        }
        // Pinned host memory is mapped on every device, so the context's own device reaches it.
        let device = match Place::device(self.address)? {
            Place::Device(device, _) => device,
            Place::Host(_) => own,
        };
        device.memory.check_writable(self.address, extent as u64).map_err(|_| Status::InvalidValue)?;
        Ok(Some(device))
    }

    fn extent(&self) -> Option<usize> {
        let row = self.width.checked_mul(self.value.bytes())?;
        if self.height > 1 && self.pitch < row {
            return None;
        }
        self.pitch.checked_mul(self.height.saturating_sub(1))?.checked_add(row)
    }

    pub fn perform(&self, device: &Device) -> Result<(), DeviceFault> {
        for row in 0..self.height as u64 {
            let address = self.address + row * self.pitch as u64;
            self.value.write(device, address, self.width as u64).map_err(|bad| {
                let report = format!("a fill's memory was freed before the stream reached the fill: {bad}");
                DeviceFault::new(Status::IllegalAddress, report)
            })?;
        }
        Ok(())
    }
}

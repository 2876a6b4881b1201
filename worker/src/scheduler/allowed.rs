//! The devices that a job may run on.

use super::DeviceId;

/// A set of devices with one bit each, so that a demand is cheap to copy. It has room for [`DEVICES_MAX`] devices, more
/// than any machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allowed(u64);

/// Maximum number of devices of one worker; their numbers are below it.
pub const DEVICES_MAX: u32 = u64::BITS;

impl Allowed {
    pub const ALL: Self = Self(u64::MAX);

    pub fn has(self, device: DeviceId) -> bool {
        1_u64.checked_shl(device.0).is_some_and(|bit| self.0 & bit != 0)
    }

    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<DeviceId> for Allowed {
    fn from_iter<T: IntoIterator<Item = DeviceId>>(devices: T) -> Self {
        Self(devices.into_iter().filter_map(|device| 1_u64.checked_shl(device.0)).fold(0, |bits, bit| bits | bit))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_it_was_made_of() {
        let set: Allowed = [DeviceId(0), DeviceId(DEVICES_MAX - 1)].into_iter().collect();
        assert!(set.has(DeviceId(0)) && set.has(DeviceId(63)) && !set.has(DeviceId(1)));
        assert!(Allowed::from_iter([]).is_empty() && Allowed::ALL.has(DeviceId(17)));
    }
}

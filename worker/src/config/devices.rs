//! The value of `--devices`: `all`, or numbers and UUIDs (or their prefixes).

use std::{fmt, str::FromStr};

use crate::{executor::DeviceInfo, inventory::begins_with, scheduler::DEVICES_MAX};

/// Which of the machine's devices a worker uses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    #[default]
    All,
    Named(Vec<DeviceName>),
}

/// One selected device, as typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceName {
    Number(u32),
    Uuid(String),
}

/// Why a selection of devices fails.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ChoiceError {
    #[error("failed to find a device: the driver reports none; use --cuda emulated to run on the CPU")]
    None,
    #[error("failed to find device {name}: this machine has only {there}")]
    Unknown { name: DeviceName, there: String },
    #[error("failed to find device {name}: it matches {matching}; give more characters of the UUID")]
    Ambiguous { name: DeviceName, matching: String },
    #[error("failed to use device {device}: --devices names it twice, as {first} and as {second}")]
    Twice { device: String, first: DeviceName, second: DeviceName },
    #[error(
        "failed to use device {0}: device numbers must be below {DEVICES_MAX}; start another worker with CUDA_VISIBLE_DEVICES set to this device"
    )]
    Beyond(String),
}

impl DeviceChoice {
    /// Selects from the machine's devices.
    pub fn choose(&self, there: &[DeviceInfo]) -> Result<Vec<DeviceInfo>, ChoiceError> {
        if there.is_empty() {
            return Err(ChoiceError::None);
        }
        let chosen = match self {
            Self::All => there.to_vec(),
            Self::Named(names) => named(names, there)?,
        };
        match chosen.iter().find(|device| device.ordinal >= DEVICES_MAX) {
            Some(device) => Err(ChoiceError::Beyond(describe(device))),
            None => Ok(chosen),
        }
    }
}

fn named(names: &[DeviceName], there: &[DeviceInfo]) -> Result<Vec<DeviceInfo>, ChoiceError> {
    let mut chosen: Vec<(&DeviceInfo, &DeviceName)> = Vec::new();
    for name in names {
        let device = name.find(there)?;
        if let Some((_, first)) = chosen.iter().find(|(known, _)| known.uuid == device.uuid) {
            let (first, second) = ((*first).clone(), name.clone());
            return Err(ChoiceError::Twice { device: describe(device), first, second });
        }
        chosen.push((device, name));
    }
    Ok(chosen.into_iter().map(|(device, _)| device.clone()).collect())
}

impl DeviceName {
    fn find<'a>(&self, there: &'a [DeviceInfo]) -> Result<&'a DeviceInfo, ChoiceError> {
        let matching: Vec<&DeviceInfo> = there.iter().filter(|device| self.means(device)).collect();
        match matching.as_slice() {
            [device] => Ok(device),
            [] => Err(ChoiceError::Unknown { name: self.clone(), there: list(there) }),
            several => Err(ChoiceError::Ambiguous { name: self.clone(), matching: list(several.iter().copied()) }),
        }
    }

    fn means(&self, device: &DeviceInfo) -> bool {
        match self {
            Self::Number(number) => device.ordinal == *number,
            Self::Uuid(uuid) => begins_with(&device.uuid, uuid),
        }
    }
}

fn list<'a>(devices: impl IntoIterator<Item = &'a DeviceInfo>) -> String {
    let devices = devices.into_iter().map(|device| format!("device {}", describe(device)));
    devices.collect::<Vec<_>>().join(", ")
}

fn describe(device: &DeviceInfo) -> String {
    format!("{} ({}, {})", device.ordinal, device.name, device.uuid)
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.trim().eq_ignore_ascii_case("all") {
            return Ok(Self::All);
        }
        text.split(',').map(|name| name.trim().parse()).collect::<Result<_, _>>().map(Self::Named)
    }
}

impl FromStr for DeviceName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_uuid = ["GPU-", "MIG-"].iter().any(|kind| begins_with(text, kind));
        match text.parse() {
            Ok(number) => Ok(Self::Number(number)),
            Err(_) if is_uuid => Ok(Self::Uuid(text.to_owned())),
            Err(_) => {
                Err(format!("{text:?} is not a device; use all, a number, or a UUID that begins with GPU- or MIG-"))
            }
        }
    }
}

impl fmt::Display for DeviceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Vec<DeviceInfo> {
        let uuids = ["GPU-8932f937-aaaa", "GPU-8932f937-bbbb", "MIG-41b35014-cccc"];
        (0..).zip(uuids).map(|(ordinal, uuid)| DeviceInfo::named(ordinal, uuid)).collect()
    }

    fn chosen(text: &str) -> Result<Vec<u32>, String> {
        let devices = text.parse::<DeviceChoice>()?.choose(&machine()).map_err(|error| error.to_string())?;
        Ok(devices.iter().map(|device| device.ordinal).collect())
    }

    #[test]
    fn devices_are_named_by_number_by_uuid_or_all_together() {
        assert_eq!(chosen("all").unwrap(), [0, 1, 2]);
        assert_eq!(chosen("2, 0").unwrap(), [2, 0]);
        assert_eq!(chosen("mig-41B35014").unwrap(), [2]);
        assert_eq!(chosen("GPU-8932f937-bbbb,0").unwrap(), [1, 0]);
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is() {
        let error = chosen("7").unwrap_err();
        assert!(
            error.contains("device 7")
                && error.contains("has only device 0 (a GPU")
                && error.contains("device 2 (a GPU, MIG-41b35014-cccc)"),
            "{error}"
        );
        assert!(chosen("GPU-77").unwrap_err().contains("GPU-8932f937-aaaa"));
        assert!(chosen("GPU-8932").unwrap_err().contains("give more characters of the UUID"));
        assert_eq!(DeviceChoice::All.choose(&[]), Err(ChoiceError::None));
    }

    #[test]
    fn a_device_is_taken_once() {
        assert!(chosen("0,0").unwrap_err().contains("twice"));
        assert!(chosen("1,GPU-8932f937-bbbb").unwrap_err().contains("as 1 and as GPU-8932f937-bbbb"));
    }

    #[test]
    fn a_word_that_names_no_device_is_refused() {
        for text in ["", "all,0", "gpu0", "-1", "0,"] {
            assert!(text.parse::<DeviceChoice>().unwrap_err().contains("is not a device"), "{text}");
        }
    }

    #[test]
    fn a_machine_with_very_many_devices_is_told_how_to_share_them_out() {
        let device = DeviceInfo { ordinal: DEVICES_MAX, ..machine()[0].clone() };
        assert!(matches!(DeviceChoice::All.choose(&[device]), Err(ChoiceError::Beyond(_))));
    }
}

//! The devices that this process sees: all devices of the machine, unless `CUDA_VISIBLE_DEVICES` selects some, as for
//! NVIDIA's driver.
//!
//! The variable is a list of numbers, UUIDs (`GPU-…`) or prefixes of UUIDs. The list ends at the first entry that
//! matches no device or one that was listed before. If the devices are divided into slices (`MIG-…`), a process sees
//! one slice: the first in the list, or the first of all.

use super::settings::Settings;

/// A device of the machine, or a slice of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the device in the machine.
    pub device: u32,
    pub slice: Option<u32>,
}

/// Returns all devices and slices of the machine, in order.
pub fn parts(settings: &Settings) -> Vec<Part> {
    let of = |device| match settings.slices {
        0 => vec![Part { device, slice: None }],
        slices => (0..slices).map(|slice| Part { device, slice: Some(slice) }).collect(),
    };
    (0..settings.devices).flat_map(of).collect()
}

/// Returns the devices or slices that this process sees.
pub fn shown(settings: &Settings) -> Vec<Part> {
    let parts = parts(settings);
    let shown = match &settings.visible {
        None => parts,
        Some(list) => named(list, &parts),
    };
    let count = if settings.slices == 0 { shown.len() } else { 1 };
    shown.into_iter().take(count).collect()
}

fn named(list: &str, parts: &[Part]) -> Vec<Part> {
    let mut chosen: Vec<Part> = Vec::new();
    for name in list.split(',').map(str::trim) {
        match parts.iter().enumerate().find(|(number, part)| part.is_named(*number, name)) {
            Some((_, part)) if !chosen.contains(part) => chosen.push(*part),
            _ => break,
        }
    }
    chosen
}

impl Part {
    fn is_named(self, number: usize, name: &str) -> bool {
        let uuid = self.uuid_text();
        let is_beginning =
            name.len() > "GPU-".len() && uuid.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name));
        name.parse() == Ok(number) || is_beginning
    }

    /// Returns a UUID that is stable on one host and differs between hosts, devices and slices, as a board's does.
    pub fn uuid(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let slice = self.slice.map(|slice| format!(" slice {slice}")).unwrap_or_default();
        let seed = format!("gpufleet emulator {} {}{slice}", host_name(), self.device);
        for (half, salt) in bytes.chunks_exact_mut(8).zip(["a", "b"]) {
            half.copy_from_slice(&fnv1a(format!("{salt}{seed}").as_bytes()).to_be_bytes());
        }
        bytes
    }

    /// Returns the whole device: this one, or the one that this is a slice of.
    pub fn whole(self) -> Self {
        Self { slice: None, ..self }
    }

    /// Formats the UUID as tools do: `GPU-…`, or `MIG-…` for a slice.
    pub fn uuid_text(self) -> String {
        let hex: String = self.uuid().iter().map(|byte| format!("{byte:02x}")).collect();
        let kind = if self.slice.is_some() { "MIG" } else { "GPU" };
        format!("{kind}-{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }
}

fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer is valid for its length; one byte less keeps a NUL at the end of a name that was cut off.
    let named = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len() - 1) };
    let length = if named == 0 { name.iter().position(|byte| *byte == 0).unwrap_or(0) } else { 0 };
    String::from_utf8_lossy(&name[..length]).into_owned()
}

fn fnv1a(bytes: &[u8]) -> u64 {
    const OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET_BASIS, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

#[cfg(test)]
mod tests {
    use super::{Part, shown};
    use crate::driver::settings::Settings;

    fn devices(visible: Option<&str>) -> Vec<u32> {
        let settings = Settings { devices: 3, visible: visible.map(str::to_owned), ..Settings::default() };
        shown(&settings).iter().map(|part| part.device).collect()
    }

    #[test]
    fn a_list_chooses_and_orders_the_devices() {
        let third = Part { device: 2, slice: None }.uuid_text();
        assert_eq!(devices(None), [0, 1, 2]);
        assert_eq!(devices(Some("2, 0")), [2, 0]);
        assert_eq!(devices(Some(&format!("{},1", &third[..12]))), [2, 1]);
    }

    #[test]
    fn a_name_of_nothing_ends_the_list() {
        assert_eq!(devices(Some("1,7,0")), [1]);
        assert_eq!(devices(Some("1,1,0")), [1]);
        for none in ["", "-1", "GPU-", "MIG-00"] {
            assert!(devices(Some(none)).is_empty(), "{none}");
        }
    }

    #[test]
    fn a_process_sees_one_slice() {
        let slice = Part { device: 1, slice: Some(1) };
        let sliced = |visible: Option<String>| Settings { devices: 2, slices: 2, visible, ..Settings::default() };
        assert_eq!(shown(&sliced(None)), [Part { device: 0, slice: Some(0) }]);
        assert_eq!(shown(&sliced(Some(format!("{},0", slice.uuid_text())))), [slice]);
        assert_ne!(slice.uuid(), slice.whole().uuid());
        assert!(slice.uuid_text().starts_with("MIG-"));
    }
}

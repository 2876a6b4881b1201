//! Environment variables of the emulated machine, with defaults and parsers. A malformed value is an error, never a
//! silent default.

use std::{env, thread};

use thiserror::Error;

use super::faults::{self, Rule};
use crate::checks::{Checks, NAMES};
use crate::module::ComputeCapability;

/// Variable that selects devices, as for NVIDIA's driver.
pub const VISIBLE_DEVICES: &str = "CUDA_VISIBLE_DEVICES";
/// Variable for the number of devices of the machine.
pub const DEVICES: &str = "GPUFLEET_EMULATOR_DEVICES";
/// Variable for the memory of each device: bytes, or a number with `KiB`, `MiB` or `GiB`.
pub const MEMORY: &str = "GPUFLEET_EMULATOR_MEMORY";
/// Variable for the number of slices that divide each device and its memory, as in MIG mode. 0, the default, is a whole
/// device.
pub const SLICES: &str = "GPUFLEET_EMULATOR_SLICES";
/// Variable for the compute capability of each device, as in `8.0`.
pub const COMPUTE_CAPABILITY: &str = "GPUFLEET_EMULATOR_COMPUTE_CAPABILITY";
/// Variable for the number of host threads that run the blocks of one kernel; by default one per core.
pub const THREADS: &str = "GPUFLEET_EMULATOR_THREADS";
/// Variable for the maximum instructions of a launch, counted per warp at backward branches and calls; beyond it the
/// launch ends with `CUDA_ERROR_LAUNCH_TIMEOUT`. Without it an endless kernel ends only with its context or process, as
/// on a GPU.
pub const INSTRUCTIONS_MAX: &str = "GPUFLEET_EMULATOR_INSTRUCTIONS_MAX";
/// Variable for faults to inject in tests, as in `launch:7=illegal-address,alloc:3=out-of-memory`; see [`Rule`].
pub const FAULTS: &str = "GPUFLEET_EMULATOR_FAULTS";
/// Variable for a file whose first eight bytes are the nanoseconds by which the clock of kernels is ahead. Tests use it
/// to end kernels that wait.
pub const CLOCK: &str = "GPUFLEET_EMULATOR_CLOCK";

/// Variable for optional checks, separated by commas, which make kernels several times slower: `races` between threads
/// of a block in shared memory, and reads of `uninitialised` memory. A finding ends the launch with
/// `CUDA_ERROR_LAUNCH_FAILED`.
pub const CHECKS: &str = "GPUFLEET_EMULATOR_CHECKS";

/// Variable that allows memory to be made read-only for kernels, and kernels to be confined to a job's memory; `on` by
/// default. `off` is how a GPU behaves.
pub const PROTECTION: &str = "GPUFLEET_EMULATOR_PROTECTION";

/// All variables of the emulator.
const ALL: [&str; 10] =
    [DEVICES, MEMORY, SLICES, COMPUTE_CAPABILITY, THREADS, INSTRUCTIONS_MAX, FAULTS, CLOCK, CHECKS, PROTECTION];
const PREFIX: &str = "GPUFLEET_EMULATOR_";
/// Variable for the path of this library, which only the worker reads.
const LIBRARY: &str = "GPUFLEET_EMULATOR_LIB";

/// Maximum number of devices; more than any machine has, so that a larger number is probably a typing mistake.
const DEVICES_MAX: u32 = 64;
/// Minimum memory of a device in bytes; less leaves no room for a module's variables beside the data.
const MEMORY_BYTES_MIN: u64 = 1 << 20;
/// Maximum memory of a device in bytes; larger address ranges can't be mapped everywhere.
const MEMORY_BYTES_MAX: u64 = 1 << 40;
const MEMORY_BYTES_DEFAULT: u64 = 2 << 30;
/// Maximum number of threads; a single kernel gains nothing from more.
const THREADS_MAX: u32 = 1024;
/// Maximum number of slices of a GPU.
const SLICES_MAX: u32 = 7;
/// Major compute capabilities whose PTX the emulator reads.
const MAJOR_RANGE: std::ops::RangeInclusive<u32> = 5..=12;

/// The emulated machine as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    pub devices: u32,
    pub slices: u32,
    /// The devices that this process may see (`CUDA_VISIBLE_DEVICES`); all if unset.
    pub visible: Option<String>,
    pub memory_bytes: u64,
    pub compute_capability: ComputeCapability,
    pub threads: usize,
    pub instructions_max: Option<u64>,
    pub checks: Checks,
    pub protects: bool,
    pub faults: Vec<Rule>,
    pub clock: Option<String>,
}

/// A variable with an invalid name or value.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SettingError {
    #[error("failed to read {variable}={value:?}: {expected}")]
    Value { variable: &'static str, value: String, expected: String },
    #[error("failed to use the variable {name}, which the emulator does not know; its variables are {}", ALL.join(", "))]
    Unknown { name: String },
}

impl Settings {
    /// Reads the settings from the process environment.
    pub fn from_environment() -> Result<Self, SettingError> {
        let names = env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        check_names(names)?;
        Self::read(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn read(lookup: impl Fn(&'static str) -> Option<String>) -> Result<Self, SettingError> {
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        Ok(Self {
            devices: setting(&lookup, DEVICES, 1, |text| whole(text, 1, DEVICES_MAX))?,
            slices: setting(&lookup, SLICES, 0, |text| whole(text, 0, SLICES_MAX))?,
            visible: lookup(VISIBLE_DEVICES),
            memory_bytes: setting(&lookup, MEMORY, MEMORY_BYTES_DEFAULT, memory_bytes)?,
            compute_capability: setting(
                &lookup,
                COMPUTE_CAPABILITY,
                ComputeCapability { major: 8, minor: 0 },
                compute_capability,
            )?,
            threads: setting(&lookup, THREADS, cores, |text| whole(text, 1, THREADS_MAX))? as usize,
            instructions_max: setting(&lookup, INSTRUCTIONS_MAX, None, |text| instructions(text).map(Some))?,
            checks: setting(&lookup, CHECKS, Checks::default(), checks)?,
            protects: setting(&lookup, PROTECTION, true, on_or_off)?,
            faults: setting(&lookup, FAULTS, Vec::new(), faults::rules)?,
            clock: lookup(CLOCK),
        })
    }
}

/// Refuses unknown variables, because a mistyped name would silently have no effect.
fn check_names(mut names: impl Iterator<Item = String>) -> Result<(), SettingError> {
    let is_unknown = |name: &String| name.starts_with(PREFIX) && name != LIBRARY && !ALL.contains(&name.as_str());
    names.find(is_unknown).map_or(Ok(()), |name| Err(SettingError::Unknown { name }))
}

fn setting<T>(
    lookup: &impl Fn(&'static str) -> Option<String>,
    variable: &'static str,
    default: T,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, SettingError> {
    let Some(value) = lookup(variable) else { return Ok(default) };
    parse(value.trim()).map_err(|expected| SettingError::Value { variable, value, expected })
}

fn whole(text: &str, least: u32, most: u32) -> Result<u32, String> {
    let in_range = text.parse().ok().filter(|number| (least..=most).contains(number));
    in_range.ok_or_else(|| format!("expected a whole number from {least} to {most}"))
}

fn instructions(text: &str) -> Result<u64, String> {
    let count = text.parse().ok().filter(|count| *count > 0);
    count.ok_or_else(|| "expected a positive whole number, as in 1000000000".to_owned())
}

fn memory_bytes(text: &str) -> Result<u64, String> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];
    let (digits, shift) = units
        .iter()
        .find_map(|(unit, shift)| text.strip_suffix(unit).map(|digits| (digits.trim_end(), *shift)))
        .expect("the empty unit is a suffix of everything");
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
    bytes.filter(|bytes| (MEMORY_BYTES_MIN..=MEMORY_BYTES_MAX).contains(bytes)).ok_or_else(|| {
        "expected bytes, or a number with KiB, MiB or GiB, from 1MiB to 1024GiB, as in 512MiB".to_owned()
    })
}

fn checks(text: &str) -> Result<Checks, String> {
    Checks::parse(text).map_err(|error| format!("expected {}, separated by commas: {error}", NAMES.join(" or ")))
}

fn on_or_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("expected on or off".to_owned()),
    }
}

fn compute_capability(text: &str) -> Result<ComputeCapability, String> {
    let parsed = text
        .split_once('.')
        .and_then(|(major, minor)| Some(ComputeCapability { major: major.parse().ok()?, minor: minor.parse().ok()? }));
    parsed
        .filter(|capability| MAJOR_RANGE.contains(&capability.major) && capability.minor <= 9)
        .ok_or_else(|| "expected a compute capability from 5.0 to 12.9, as in 8.0".to_owned())
}

#[cfg(test)]
impl Default for Settings {
    fn default() -> Self {
        Self::read(|_| None).expect("defaults make sense")
    }
}

#[cfg(test)]
mod tests {
    use super::{
        ALL, CHECKS, COMPUTE_CAPABILITY, DEVICES, FAULTS, INSTRUCTIONS_MAX, MEMORY, PREFIX, PROTECTION, Settings,
        THREADS, check_names,
    };
    use crate::module::ComputeCapability;

    fn read(pairs: &[(&'static str, &str)]) -> Result<Settings, String> {
        let lookup = |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Settings::read(lookup).map_err(|error| error.to_string())
    }

    #[test]
    fn an_empty_environment_gives_one_device_of_two_gibibytes() {
        let settings = read(&[]).unwrap();
        assert_eq!((settings.devices, settings.memory_bytes), (1, 2 << 30));
        assert_eq!(settings.compute_capability, ComputeCapability { major: 8, minor: 0 });
        assert!(settings.threads >= 1);
        assert_eq!(settings.instructions_max, None);
    }

    #[test]
    fn an_unknown_variable_is_named_with_the_known_ones() {
        let check = |name: &str| check_names(std::iter::once(name.to_owned())).map_err(|error| error.to_string());
        let mistyped = format!("{PREFIX}MEMROY");
        let message = check(&mistyped).unwrap_err();
        assert!(message.contains(&mistyped) && message.contains(MEMORY), "{message}");
        for known in ALL.into_iter().chain(["GPUFLEET_EMULATOR_LIB", "PATH", "GPUFLEET_POOL"]) {
            assert_eq!(check(known), Ok(()));
        }
        let asked = std::cell::RefCell::new(Vec::new());
        Settings::read(|name| {
            asked.borrow_mut().push(name);
            None
        })
        .unwrap();
        let asked = asked.into_inner().into_iter().filter(|name| name.starts_with(super::PREFIX));
        assert!(asked.into_iter().all(|name| ALL.contains(&name)), "each variable that is read is in the list");
    }

    #[test]
    fn sizes_take_units() {
        for (text, bytes) in [("1048576", 1 << 20), ("3MiB", 3 << 20), ("1 GiB", 1 << 30), ("2048KiB", 2 << 20)] {
            assert_eq!(read(&[(MEMORY, text)]).unwrap().memory_bytes, bytes, "{text}");
        }
    }

    #[test]
    fn checks_are_off_unless_they_are_named() {
        assert!(!read(&[]).unwrap().checks.any());
        let both = read(&[(CHECKS, "uninitialised, races")]).unwrap().checks;
        assert!(both.races && both.uninitialised);
    }

    #[test]
    fn memory_can_be_protected_unless_that_is_off() {
        assert!(read(&[]).unwrap().protects);
        assert!(!read(&[(PROTECTION, "off")]).unwrap().protects);
    }

    #[test]
    fn a_malformed_value_is_named_with_what_was_expected() {
        for (name, value) in [
            (DEVICES, "0"),
            (DEVICES, "many"),
            (MEMORY, "12"),
            (MEMORY, "99999999999GiB"),
            (MEMORY, "-1MiB"),
            (COMPUTE_CAPABILITY, "8"),
            (COMPUTE_CAPABILITY, "80.0"),
            (THREADS, ""),
            (CHECKS, "race"),
            (CHECKS, "races,"),
            (PROTECTION, "yes"),
            (INSTRUCTIONS_MAX, "0"),
            (FAULTS, "sometimes"),
            (INSTRUCTIONS_MAX, "1e9"),
        ] {
            let message = read(&[(name, value)]).unwrap_err();
            assert!(message.contains(name) && message.contains("expected"), "{message}");
        }
    }
}

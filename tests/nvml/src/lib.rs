//! A substitute for NVIDIA's management library that reports the devices in `NVIDIA_FAKE_NVML`.
//!
//! GPUs are separated by `;`. A GPU is one device, or several devices with commas between them, which are its slices. A
//! device is `UUID=PERCENT/CELSIUS/MILLIWATTS/BYTES`, or its UUID alone if it has no sensors. If
//! `NVIDIA_FAKE_NVML_HANGS` is set, a query for the utilization of a device never returns, as for a GPU that has fallen
//! off the bus.

#![expect(clippy::missing_safety_doc, reason = "the functions and their rules are those of nvml.h")]

use std::{
    env,
    ffi::{c_char, c_int, c_uint, c_ulonglong, c_void},
    sync::LazyLock,
    thread,
};

const SUCCESS: c_int = 0;
const NOT_SUPPORTED: c_int = 3;
const NOT_FOUND: c_int = 6;
const INSUFFICIENT_SIZE: c_int = 7;

/// A GPU or a slice. Its handle is its position in [`MACHINE`], counted from one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Device {
    uuid: String,
    gpu: usize,
    is_slice: bool,
    readings: Option<[u64; 4]>,
}

/// The struct `nvmlMemory_t`.
#[derive(Debug)]
#[repr(C)]
pub struct MemoryInfo {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// The struct `nvmlUtilization_t`.
#[derive(Debug)]
#[repr(C)]
pub struct Utilization {
    gpu: c_uint,
    memory: c_uint,
}

type Handle = *mut c_void;

static MACHINE: LazyLock<Vec<Device>> = LazyLock::new(|| machine(&env::var("NVIDIA_FAKE_NVML").unwrap_or_default()));

/// Parses the devices. Each GPU is followed by its slices.
fn machine(text: &str) -> Vec<Device> {
    let mut devices = Vec::new();
    for (gpu, parts) in text.split(';').filter(|gpu| !gpu.is_empty()).enumerate() {
        let parts: Vec<&str> = parts.split(',').collect();
        let slices = parts.len() > 1;
        if slices {
            let uuid = format!("GPU-whole-{gpu}");
            devices.push(Device { uuid, gpu, is_slice: false, readings: None });
        }
        for part in parts {
            let (uuid, readings) = part.split_once('=').unwrap_or((part, ""));
            let numbers: Vec<u64> = readings.split('/').filter_map(|number| number.parse().ok()).collect();
            devices.push(Device { uuid: uuid.into(), gpu, is_slice: slices, readings: numbers.try_into().ok() });
        }
    }
    devices
}

fn device(handle: Handle) -> Option<&'static Device> {
    MACHINE.get((handle as usize).checked_sub(1)?)
}

fn reading(handle: Handle, which: usize) -> Option<u64> {
    Some(device(handle)?.readings?[which])
}

fn handles(wanted: impl Fn(&Device) -> bool) -> Vec<Handle> {
    (1..)
        .zip(MACHINE.iter())
        .filter(|(_, device)| wanted(device))
        .map(|(place, _): (usize, _)| place as Handle)
        .collect()
}

/// Writes a value to the caller's pointer. If the value is `None`, returns the code `otherwise`.
unsafe fn answer<T>(place: *mut T, value: Option<T>, otherwise: c_int) -> c_int {
    match value {
        Some(value) => {
            // SAFETY: the caller passes a pointer for the result.
            unsafe { place.write(value) };
            SUCCESS
        }
        None => otherwise,
    }
}

#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_int {
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetCount_v2(count: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(count, Some(handles(|device| !device.is_slice).len() as c_uint), NOT_FOUND) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, handle: *mut Handle) -> c_int {
    let found = handles(|device| !device.is_slice).get(index as usize).copied();
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(handle, found, NOT_FOUND) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMaxMigDeviceCount(_device: Handle, count: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(count, Some(7), NOT_FOUND) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(gpu: Handle, index: c_uint, handle: *mut Handle) -> c_int {
    let of = device(gpu).map(|device| device.gpu);
    let found = handles(|device| device.is_slice && Some(device.gpu) == of).get(index as usize).copied();
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(handle, found, NOT_FOUND) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUUID(handle: Handle, text: *mut c_char, room: c_uint) -> c_int {
    let Some(device) = device(handle) else { return NOT_FOUND };
    if device.uuid.len() >= room as usize {
        return INSUFFICIENT_SIZE;
    }
    // SAFETY: the text and its NUL fit into the caller's buffer.
    unsafe {
        text.cast::<u8>().copy_from_nonoverlapping(device.uuid.as_ptr(), device.uuid.len());
        text.add(device.uuid.len()).write(0);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetMemoryInfo(handle: Handle, memory: *mut MemoryInfo) -> c_int {
    let told = reading(handle, 3).map(|used| MemoryInfo { total: 0, free: 0, used });
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(memory, told, NOT_SUPPORTED) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetUtilizationRates(handle: Handle, rates: *mut Utilization) -> c_int {
    while env::var_os("NVIDIA_FAKE_NVML_HANGS").is_some() {
        thread::park();
    }
    let told = reading(handle, 0).map(|percent| Utilization { gpu: percent as c_uint, memory: 0 });
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(rates, told, NOT_SUPPORTED) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetTemperature(handle: Handle, _sensor: c_uint, degrees: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(degrees, reading(handle, 1).map(|degrees| degrees as c_uint), NOT_SUPPORTED) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmlDeviceGetPowerUsage(handle: Handle, milliwatts: *mut c_uint) -> c_int {
    // SAFETY: the caller passes a valid pointer, as NVML requires.
    unsafe { answer(milliwatts, reading(handle, 2).map(|milliwatts| milliwatts as c_uint), NOT_SUPPORTED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_is_read_from_its_text() {
        let devices = machine("GPU-1=41/55/350500/1000;MIG-a,MIG-b=1/2/3/4");
        let uuids: Vec<&str> = devices.iter().map(|device| device.uuid.as_str()).collect();
        assert_eq!(uuids, ["GPU-1", "GPU-whole-1", "MIG-a", "MIG-b"]);
        assert_eq!((devices[0].readings, devices[2].readings), (Some([41, 55, 350_500, 1000]), None));
        assert!(!devices[1].is_slice && devices[3].is_slice);
        assert!(machine("").is_empty());
    }
}

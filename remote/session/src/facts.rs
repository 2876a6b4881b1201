//! The properties of the device that a program gets with the welcome. Its memory is that of the lease, and features that
//! need the device in the program's machine are absent.

use std::ffi::{CStr, c_char};

use gpufleet_remote::greeting::{ATTRIBUTES, Facts};

use crate::native::{Native, NativeError};

/// Bytes of the longest name of a device.
const NAME_BYTES: usize = 256;
/// Attributes (`CU_DEVICE_ATTRIBUTE_*`) that are 0 in a session: mapped host memory, managed memory, access to pageable
/// memory, registered host memory, and memory that other processes can open.
const ABSENT: [i32; 14] = [19, 83, 88, 89, 91, 99, 100, 101, 103, 104, 105, 113, 118, 128];

/// The session's only device, as the driver numbers it.
pub(crate) const DEVICE: i32 = 0;

pub(crate) fn facts(native: &Native, memory: u64) -> Result<Facts, NativeError> {
    let calls = &native.calls;
    let check = |function, code| match code {
        0 => Ok(()),
        code => Err(NativeError::Failed { function, code }),
    };
    let (mut driver_version, mut uuid, mut total) = (0, [0; 16], 0);
    check("cuDriverGetVersion", (calls.version)(&raw mut driver_version))?;
    check("cuDeviceGetUuid", (calls.device_uuid)(&raw mut uuid, DEVICE))?;
    check("cuDeviceTotalMem", (calls.device_memory)(&raw mut total, DEVICE))?;
    let name = text(|room, length| check("cuDeviceGetName", (calls.device_name)(room, length, DEVICE)))?;
    let bus_id = text(|room, length| check("cuDeviceGetPCIBusId", (calls.device_bus_id)(room, length, DEVICE)))?;
    let attribute = |number| {
        let mut value = 0;
        let code = (calls.device_attribute)(&raw mut value, number, DEVICE);
        (code == 0).then_some(if ABSENT.contains(&number) { 0 } else { value })
    };
    let attributes = (0..ATTRIBUTES).map(attribute).collect();
    let memory = memory.min(total as u64);
    Ok(Facts { driver_version, name, uuid, bus_id, memory, attributes, is_emulated: native.is_emulated() })
}

fn text(fill: impl FnOnce(*mut c_char, i32) -> Result<(), NativeError>) -> Result<String, NativeError> {
    let mut room = [0_u8; NAME_BYTES];
    fill(room.as_mut_ptr().cast(), NAME_BYTES as i32)?;
    Ok(CStr::from_bytes_until_nul(&room).map(|text| text.to_string_lossy().into_owned()).unwrap_or_default())
}

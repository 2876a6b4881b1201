//! The device, of which the session told at its start.

use gpufleet_remote::kinds::{Context, Device};
use gpufleet_surface::{
    argument::{Out, Text, TextRoom},
    status::{Answer, Status},
    structs::device::DeviceProperties,
};

use crate::{
    contexts, rows,
    session::{DEVICE, facts},
};

/// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
const CAPABILITY: [i32; 2] = [75, 76];

fn check(device: Device) -> Answer {
    if device == DEVICE { Ok(()) } else { Err(Status::InvalidDevice) }
}

/// Returns the value of an attribute.
pub(super) fn attribute(number: i32) -> Answer<i32> {
    let number = usize::try_from(number).map_err(|_| Status::InvalidValue)?;
    facts()?.attributes.get(number).copied().flatten().ok_or(Status::InvalidValue)
}

pub(crate) fn cuDeviceGet(device: Out<Device>, ordinal: i32) -> Answer {
    device.fill(|| check(Device(ordinal)).map(|()| DEVICE))
}

pub(crate) fn cuDeviceGetCount(count: Out<i32>) -> Answer {
    count.fill(|| Ok(1))
}

pub(crate) fn cuDeviceGetName(name: TextRoom, room: i32, device: Device) -> Answer {
    check(device)?;
    text(name, room, &facts()?.name)
}

pub(crate) fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: Device) -> Answer {
    uuid.fill(|| {
        check(device)?;
        Ok(facts()?.uuid)
    })
}

pub(crate) fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: Device) -> Answer {
    cuDeviceGetUuid(uuid, device)
}

pub(crate) fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: Device) -> Answer {
    bytes.fill(|| {
        check(device)?;
        Ok(facts()?.memory as usize)
    })
}

pub(crate) fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: Device) -> Answer {
    value.fill(|| {
        check(device)?;
        self::attribute(attribute)
    })
}

pub(crate) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: Device) -> Answer {
    check(device)?;
    major.fill(|| attribute(CAPABILITY[0]))?;
    minor.fill(|| attribute(CAPABILITY[1]))
}

pub(crate) fn cuDeviceGetProperties(properties: Out<DeviceProperties>, device: Device) -> Answer {
    properties.fill(|| {
        check(device)?;
        Ok(DeviceProperties {
            block_threads_max: attribute(1)?,
            block_max: [attribute(2)?, attribute(3)?, attribute(4)?],
            grid_max: [attribute(5)?, attribute(6)?, attribute(7)?],
            shared_bytes: attribute(8)?,
            constant_bytes: attribute(9)?,
            warp_threads: attribute(10)?,
            pitch_max: attribute(11)?,
            registers: attribute(12)?,
            clock_khz: attribute(13)?,
            texture_alignment: attribute(14)?,
        })
    })
}

pub(crate) fn cuDeviceGetPCIBusId(place: TextRoom, room: i32, device: Device) -> Answer {
    check(device)?;
    text(place, room, &facts()?.bus_id)
}

pub(crate) fn cuDeviceGetByPCIBusId(device: Out<Device>, id: Text) -> Answer {
    let is_ours = facts()?.bus_id.as_bytes().eq_ignore_ascii_case(id.bytes()?);
    device.fill(|| if is_ours { Ok(DEVICE) } else { Err(Status::InvalidValue) })
}

pub(crate) fn cuDeviceCanAccessPeer(can: Out<i32>, device: Device, peer: Device) -> Answer {
    check(device)?;
    check(peer)?;
    can.fill(|| Ok(0))
}

pub(crate) fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, source: Device, target: Device) -> Answer {
    let _ = attribute;
    cuDeviceCanAccessPeer(value, source, target)
}

pub(crate) fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, kind: u32, device: Device) -> Answer {
    let _ = kind;
    check(device)?;
    supported.fill(|| Ok(0))
}

pub(crate) fn cuDevicePrimaryCtxRetain(context: Out<Context>, device: Device) -> Answer {
    context.fill(|| {
        let mut primary = Context(0);
        // SAFETY: the place lives until the call has ended.
        rows::cuDevicePrimaryCtxRetain(unsafe { Out::from_pointer(&raw mut primary) }, device)?;
        contexts::add(primary.0);
        Ok(primary)
    })
}

fn text(place: TextRoom, room: i32, text: &str) -> Answer {
    let room = usize::try_from(room).map_err(|_| Status::InvalidValue)?;
    place.write(text.as_bytes(), room).map(drop)
}

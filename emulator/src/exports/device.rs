//! C functions for devices and their primary contexts (`cuDevice*`).

use gpufleet_surface::{
    argument::{In, Out, Text, TextRoom},
    structs::device::DeviceProperties,
};

use super::context::check_flags;
use crate::driver::{
    driver,
    handle::Handle,
    pool::pools,
    primary,
    status::{Answer, Status},
};

pub(super) fn cuDeviceGet(device: Out<i32>, ordinal: i32) -> Answer {
    device.fill(|| Ok(driver()?.device(ordinal)?.ordinal))
}

pub(super) fn cuDeviceGetCount(count: Out<i32>) -> Answer {
    count.fill(|| Ok(driver()?.devices.len() as i32))
}

pub(super) fn cuDeviceGetName(name: TextRoom, room: i32, device: i32) -> Answer {
    text(name, room, &driver()?.device(device)?.name())
}

pub(super) fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) -> Answer {
    uuid.fill(|| Ok(driver()?.device(device)?.part.whole().uuid()))
}

pub(super) fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) -> Answer {
    uuid.fill(|| Ok(driver()?.device(device)?.part.uuid()))
}

pub(super) fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) -> Answer {
    bytes.fill(|| Ok(driver()?.device(device)?.memory.info().1 as usize))
}

pub(super) fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) -> Answer {
    value.fill(|| driver()?.device(device)?.attribute(attribute))
}

pub(super) fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) -> Answer {
    let capability = driver()?.device(device)?.capability;
    major.fill(|| Ok(capability.major.cast_signed()))?;
    minor.fill(|| Ok(capability.minor.cast_signed()))
}

pub(super) fn cuDeviceGetProperties(properties: Out<DeviceProperties>, device: i32) -> Answer {
    properties.fill(|| self::properties(device))
}

pub(super) fn cuDeviceGetPCIBusId(text: TextRoom, room: i32, device: i32) -> Answer {
    self::text(text, room, &driver()?.device(device)?.pci_bus_id())
}

pub(super) fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) -> Answer {
    let id = id.bytes()?;
    let found = driver()?.devices.iter().find(|device| device.pci_bus_id().as_bytes().eq_ignore_ascii_case(id));
    device.fill(|| found.map(|device| device.ordinal).ok_or(Status::InvalidValue))
}

pub(super) fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) -> Answer {
    let driver = driver()?;
    driver.device(device)?;
    driver.device(peer)?;
    can.fill(|| Ok(0))
}

pub(super) fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, source: i32, target: i32) -> Answer {
    let _ = attribute;
    let driver = driver()?;
    driver.device(source)?;
    driver.device(target)?;
    value.fill(|| Ok(0))
}

pub(super) fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, kind: u32, device: i32) -> Answer {
    let _ = kind;
    driver()?.device(device)?;
    supported.fill(|| Ok(0))
}

pub(super) fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) -> Answer {
    value.fill(|| driver()?.device(device)?.graph_bytes.attribute(attribute))
}

pub(super) fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: In<u64>) -> Answer {
    driver()?.device(device)?.graph_bytes.reset(attribute, value.get()?)
}

/// Does nothing, because no graph memory is cached.
pub(super) fn cuDeviceGraphMemTrim(device: i32) -> Answer {
    driver()?.device(device).map(drop)
}

pub(super) fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) -> Answer {
    context.fill(|| Ok(primary::retain(driver()?.device(device)?)?.handle))
}

pub(super) fn cuDevicePrimaryCtxRelease_v2(device: i32) -> Answer {
    primary::release(driver()?.device(device)?)
}

pub(super) fn cuDevicePrimaryCtxReset_v2(device: i32) -> Answer {
    primary::reset(driver()?.device(device)?)
}

pub(super) fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) -> Answer {
    check_flags(flags)?;
    primary::set_flags(driver()?.device(device)?, flags);
    Ok(())
}

pub(super) fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) -> Answer {
    let state = primary::state(driver()?.device(device)?);
    flags.fill(|| Ok(state.flags))?;
    active.fill(|| Ok(i32::from(state.active)))
}

pub(super) fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) -> Answer {
    pool.fill(|| Ok(driver()?.device(device)?.default_pool))
}

pub(super) fn cuDeviceGetMemPool(pool: Out<Handle>, device: i32) -> Answer {
    pool.fill(|| Ok(driver()?.device(device)?.current_pool()))
}

pub(super) fn cuDeviceSetMemPool(device: i32, pool: Handle) -> Answer {
    let driver = driver()?;
    let device = driver.device(device)?;
    if pools()?.get(pool)?.device != device.ordinal {
        return Err(Status::InvalidValue);
    }
    device.set_current_pool(pool);
    Ok(())
}

fn text(place: TextRoom, room: i32, text: &str) -> Answer {
    let room = usize::try_from(room).map_err(|_| Status::InvalidValue)?;
    place.write(text.as_bytes(), room).map(drop)
}

fn properties(device: i32) -> Answer<DeviceProperties> {
    let device = driver()?.device(device)?;
    let value = |number| device.attribute(number);
    Ok(DeviceProperties {
        block_threads_max: value(1)?,
        block_max: [value(2)?, value(3)?, value(4)?],
        grid_max: [value(5)?, value(6)?, value(7)?],
        shared_bytes: value(8)?,
        constant_bytes: value(9)?,
        warp_threads: value(10)?,
        pitch_max: value(11)?,
        registers: value(12)?,
        clock_khz: value(13)?,
        texture_alignment: value(14)?,
    })
}

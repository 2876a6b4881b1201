//! C functions for devices and their primary contexts (`cuDevice*`).

use gpufleet_surface::argument::{In, Out, Text, TextRoom};

use super::{context::check_flags, exports};
use crate::driver::{
    driver,
    handle::Handle,
    pool::pools,
    primary,
    status::{Answer, Status},
};

/// `CUdevprop`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Properties {
    block_threads_max: i32,
    block_max: [i32; 3],
    grid_max: [i32; 3],
    shared_bytes: i32,
    constant_bytes: i32,
    warp_threads: i32,
    pitch_max: i32,
    registers: i32,
    clock_khz: i32,
    texture_alignment: i32,
}

exports! {
    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        device.fill(|| Ok(driver()?.device(ordinal)?.ordinal))
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        count.fill(|| Ok(driver()?.devices.len() as i32))
    }

    fn cuDeviceGetName(name: TextRoom, room: i32, device: i32) {
        text(name, room, &driver()?.device(device)?.name())
    }

    fn cuDeviceGetUuid(uuid: Out<[u8; 16]>, device: i32) {
        uuid.fill(|| Ok(driver()?.device(device)?.part.whole().uuid()))
    }

    fn cuDeviceGetUuid_v2(uuid: Out<[u8; 16]>, device: i32) {
        uuid.fill(|| Ok(driver()?.device(device)?.part.uuid()))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        bytes.fill(|| Ok(driver()?.device(device)?.memory.info().1 as usize))
    }

    fn cuDeviceGetAttribute(value: Out<i32>, attribute: i32, device: i32) {
        value.fill(|| driver()?.device(device)?.attribute(attribute))
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        let capability = driver()?.device(device)?.capability;
        major.fill(|| Ok(capability.major.cast_signed()))?;
        minor.fill(|| Ok(capability.minor.cast_signed()))
    }

    fn cuDeviceGetProperties(properties: Out<Properties>, device: i32) {
        properties.fill(|| self::properties(device))
    }

    fn cuDeviceGetPCIBusId(text: TextRoom, room: i32, device: i32) {
        self::text(text, room, &driver()?.device(device)?.pci_bus_id())
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, id: Text) {
        let id = id.bytes()?;
        let found = driver()?.devices.iter().find(|device| device.pci_bus_id().as_bytes().eq_ignore_ascii_case(id));
        device.fill(|| found.map(|device| device.ordinal).ok_or(Status::InvalidValue))
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        let driver = driver()?;
        driver.device(device)?;
        driver.device(peer)?;
        can.fill(|| Ok(0))
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, source: i32, target: i32) {
        let _ = attribute;
        let driver = driver()?;
        driver.device(source)?;
        driver.device(target)?;
        value.fill(|| Ok(0))
    }

    fn cuDeviceGetExecAffinitySupport(supported: Out<i32>, kind: u32, device: i32) {
        let _ = kind;
        driver()?.device(device)?;
        supported.fill(|| Ok(0))
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) {
        value.fill(|| driver()?.device(device)?.graph_bytes.attribute(attribute))
    }

    fn cuDeviceSetGraphMemAttribute(device: i32, attribute: u32, value: In<u64>) {
        driver()?.device(device)?.graph_bytes.reset(attribute, value.get()?)
    }

    /// Does nothing, because no graph memory is cached.
    fn cuDeviceGraphMemTrim(device: i32) {
        driver()?.device(device).map(drop)
    }

    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) {
        context.fill(|| Ok(primary::retain(driver()?.device(device)?)?.handle))
    }

    fn cuDevicePrimaryCtxRelease_v2(device: i32) {
        primary::release(driver()?.device(device)?)
    }

    fn cuDevicePrimaryCtxReset_v2(device: i32) {
        primary::reset(driver()?.device(device)?)
    }

    fn cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        check_flags(flags)?;
        primary::set_flags(driver()?.device(device)?, flags);
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let state = primary::state(driver()?.device(device)?);
        flags.fill(|| Ok(state.flags))?;
        active.fill(|| Ok(i32::from(state.active)))
    }

    fn cuDeviceGetDefaultMemPool(pool: Out<Handle>, device: i32) {
        pool.fill(|| Ok(driver()?.device(device)?.default_pool))
    }

    fn cuDeviceGetMemPool(pool: Out<Handle>, device: i32) {
        pool.fill(|| Ok(driver()?.device(device)?.current_pool()))
    }

    fn cuDeviceSetMemPool(device: i32, pool: Handle) {
        let driver = driver()?;
        let device = driver.device(device)?;
        if pools()?.get(pool)?.device != device.ordinal {
            return Err(Status::InvalidValue);
        }
        device.set_current_pool(pool);
        Ok(())
    }
}

fn text(place: TextRoom, room: i32, text: &str) -> Answer {
    let room = usize::try_from(room).map_err(|_| Status::InvalidValue)?;
    place.write(text.as_bytes(), room).map(drop)
}

fn properties(device: i32) -> Answer<Properties> {
    let device = driver()?.device(device)?;
    let value = |number| device.attribute(number);
    Ok(Properties {
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

//! Pointer attributes (`cuPointerGetAttribute`).

use super::{
    context::contexts,
    current, driver,
    status::{Answer, Status},
    virtual_memory,
};

/// `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`.
const MEMORY_TYPE_HOST: u32 = 1;
const MEMORY_TYPE_DEVICE: u32 = 2;
/// `CU_POINTER_ATTRIBUTE_MAPPED`.
const MAPPED: u32 = 13;
/// `CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE`: kernels may read and write everything.
const ACCESS_READ_WRITE: u32 = 3;

/// The value of an attribute, in the width that the C interface uses for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointerAttribute {
    Byte(u8),
    Word(u32),
    Double(u64),
}

struct Facts {
    context: usize,
    ordinal: i32,
    is_device: bool,
    is_managed: bool,
    base: u64,
    bytes: u64,
    pool: usize,
    access: u32,
    /// Identifies physical memory that may be mapped at several addresses.
    block: u64,
}

/// Returns an attribute by its number in the C headers.
pub fn attribute(number: u32, address: u64) -> Answer<PointerAttribute> {
    use PointerAttribute::{Byte, Double, Word};
    if number == MAPPED && is_unmapped(address)? {
        return Ok(Byte(0));
    }
    let facts = facts(address)?;
    Ok(match number {
        1 => Double(facts.context as u64),
        2 => Word(if facts.is_device { MEMORY_TYPE_DEVICE } else { MEMORY_TYPE_HOST }),
        3 => Double(address),
        4 if !facts.is_device || facts.is_managed => Double(address),
        // No two live ranges start at one address.
        7 => Double(facts.base),
        6 | 10 | 15 => Byte(0),
        8 => Byte(u8::from(facts.is_managed)),
        9 => Word(facts.ordinal.cast_unsigned()),
        11 | 19 => Double(facts.base),
        12 | 18 => Double(facts.bytes),
        MAPPED => Byte(1),
        14 => Double(0),
        16 => Word(facts.access),
        17 => Double(facts.pool as u64),
        20 => Double(facts.block),
        _ => return Err(Status::InvalidValue),
    })
}

fn facts(address: u64) -> Answer<Facts> {
    let driver = driver()?;
    if let Some(block) = driver.host.find(address as usize) {
        let context = contexts()?.get(block.context)?;
        let (base, bytes) = (block.base as u64, block.bytes as u64);
        let ordinal = context.device.ordinal;
        return Ok(Facts {
            context: context.handle,
            ordinal,
            is_device: false,
            is_managed: false,
            base,
            bytes,
            pool: 0,
            access: ACCESS_READ_WRITE,
            block: base,
        });
    }
    let device = driver.device_of(address).ok_or(Status::InvalidValue)?;
    let (base, bytes) = device.memory.find(address).ok_or(Status::InvalidValue)?;
    let allocation = device.allocations.get(base);
    let mapping = virtual_memory::mapping(address);
    Ok(Facts {
        // Variables of modules are in no list, so they count as the calling context's. Mappings belong to no context.
        context: match (allocation, mapping) {
            (Some(allocation), _) => allocation.context,
            (None, Some(_)) => 0,
            (None, None) => current::handle().unwrap_or(0),
        },
        ordinal: device.ordinal,
        is_device: true,
        is_managed: allocation.is_some_and(|allocation| allocation.managed),
        base,
        bytes,
        pool: allocation.and_then(|allocation| allocation.pool).unwrap_or(0),
        access: mapping.map_or(ACCESS_READ_WRITE, |_| virtual_memory::access(device, address)),
        block: mapping.map_or(base, |handle| handle as u64),
    })
}

/// Reports whether an address is reserved but has no mapping.
fn is_unmapped(address: u64) -> Answer<bool> {
    Ok(driver()?.reservations.find(address).is_some() && virtual_memory::mapping(address).is_none())
}

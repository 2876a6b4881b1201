//! C functions that find functions by their names in the C headers (`cuGetProcAddress`).

use std::{collections::HashMap, sync::LazyLock};

use gpufleet_surface::{
    argument::{In, Out, Text},
    look_up::{Found, find},
};

use super::table::addresses;
use crate::driver::status::{Answer, Status};

pub(super) fn cuGetProcAddress(name: Text, address: Out<usize>, version: i32, flags: u64) -> Answer {
    let found = address_of(find(name.bytes()?, version, flags)?);
    address.fill(|| Ok(found))?;
    if found == 0 { Err(Status::NotFound) } else { Ok(()) }
}

/// Unlike the first version, this one succeeds with null if there is no such function.
pub(super) fn cuGetProcAddress_v2(
    name: Text,
    address: Out<usize>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> Answer {
    let found = find(name.bytes()?, version, flags)?;
    status.set(found.number());
    address.fill(|| Ok(address_of(found)))
}

/// Finds nothing: these are undocumented tables that NVIDIA's own libraries exchange.
pub(super) fn cuGetExportTable(table: Out<usize>, id: In<[u8; 16]>) -> Answer {
    let _ = id;
    table.fill(|| Ok(0))?;
    Err(Status::NotSupported)
}

fn address_of(found: Found) -> usize {
    static ADDRESSES: LazyLock<HashMap<&'static str, usize>> = LazyLock::new(addresses);
    match found {
        Found::Symbol(symbol) => ADDRESSES.get(symbol).copied().expect("every row of the table is exported"),
        Found::Nowhere | Found::OnlyLater => 0,
    }
}

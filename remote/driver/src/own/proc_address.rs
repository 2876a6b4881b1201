//! Functions by their names. A function that the session's driver lacks is not found, so that a program can go another
//! way; one that did nothing would compute nothing.

use gpufleet_remote::calls::{calls, index};
use gpufleet_surface::{
    argument::{In, Out, Text},
    look_up::{Found, find},
    status::{Answer, Status},
};

use crate::{exports, messages, session};

/// The table of functions that nvJitLink asks for. It works without.
const OF_NVJITLINK: [u8; 16] =
    [0xda, 0x91, 0x51, 0xd3, 0x3a, 0xe6, 0xcc, 0x41, 0xa5, 0xc0, 0x4f, 0x26, 0xd5, 0x33, 0xe3, 0x28];

pub(crate) fn cuGetProcAddress(name: Text, address: Out<usize>, version: i32, flags: u64) -> Answer {
    let (found, _) = look_up(name, version, flags)?;
    address.fill(|| Ok(found))?;
    if found == 0 { Err(Status::NotFound) } else { Ok(()) }
}

/// Unlike the first version, this one succeeds with null if there is no such function.
pub(crate) fn cuGetProcAddress_v2(
    name: Text,
    address: Out<usize>,
    version: i32,
    flags: u64,
    status: Out<u32>,
) -> Answer {
    let (found, how) = look_up(name, version, flags)?;
    status.set(how.number());
    address.fill(|| Ok(found))
}

/// Returns the error about a table of functions between NVIDIA's libraries. Only CUDA's runtime can't do without.
pub(crate) fn no_export_table(id: In<[u8; 16]>) -> Status {
    match id.get() {
        Ok(OF_NVJITLINK) => Status::NotSupported,
        _ => messages::refuse("cuGetExportTable"),
    }
}

fn look_up(name: Text, version: i32, flags: u64) -> Answer<(usize, Found)> {
    let found = find(name.bytes()?, version, flags)?;
    let Found::Symbol(symbol) = found else { return Ok((0, found)) };
    let base = symbol.trim_end_matches("_ptsz").trim_end_matches("_ptds");
    let has_message = calls().iter().any(|call| call.symbol == base);
    match exports::address(symbol) {
        Some(address) if !has_message || session::has(index(base)) => Ok((address, found)),
        _ => Ok((0, Found::Nowhere)),
    }
}

//! Functions by their names. A function that the session's driver lacks is not found, so that a program can go another
//! way; one that did nothing would compute nothing.

use gpufleet_remote::calls::{calls, index};
use gpufleet_surface::{
    argument::{Out, Text},
    look_up::{Found, find},
    status::{Answer, Status},
};

use crate::{exports, session};

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

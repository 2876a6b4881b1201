//! Matrices of 8 by 8 elements of 16 bits (`ldmatrix`, `stmatrix`, `movmatrix`): a lane has two neighbours of a row, or
//! of a column if the matrix is transposed.

use super::tiles::{self, SIDE, Tile};
use super::{Failed, Span, addresses};
use crate::fault::FaultKind;
use crate::ops::lanes::{FULL, LANES};
use crate::program::matrix::Rows;
use crate::program::memory::Reach;
use crate::simt::access::{Local, Refused, View, resolve, space_of};
use crate::simt::frames::Registers;

const ROW_BYTES: u64 = 16;

fn spread(tile: &Tile<u16>, transposed: bool) -> [u32; LANES] {
    let tile = if transposed { tiles::turned(tile) } else { *tile };
    let mut words = [0; LANES];
    for lane in 0..LANES {
        words[lane] = u32::from(tile[2 * lane]) | u32::from(tile[2 * lane + 1]) << 16;
    }
    words
}

fn collect(words: &[u32; LANES], transposed: bool) -> Tile<u16> {
    let mut tile = [0; SIDE * SIDE];
    for lane in 0..LANES {
        tile[2 * lane] = words[lane] as u16;
        tile[2 * lane + 1] = (words[lane] >> 16) as u16;
    }
    if transposed { tiles::turned(&tile) } else { tile }
}

pub fn transpose(d: u32, a: u32, registers: &mut Registers) {
    let tile = collect(registers.words(a), false);
    *registers.words(d) = spread(&tile, true);
}

pub fn load(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<(), Failed> {
    let pointers = pointers(rows, registers, view, local)?;
    // All rows are read before any register is written, because the address may be in one of them.
    let mut planes = [[0; LANES]; LANES / SIDE];
    for (plane, pointers) in planes.iter_mut().zip(pointers.chunks_exact(SIDE)).take(rows.slots.len()) {
        let mut tile = [0; SIDE * SIDE];
        for (row, pointer) in tile.as_chunks_mut::<SIDE>().0.iter_mut().zip(pointers) {
            // SAFETY: the pointer was checked for a row and is aligned to it.
            *row = unsafe { *(*pointer as *const [u16; SIDE]) };
        }
        *plane = spread(&tile, rows.transposed);
    }
    for (slot, plane) in rows.slots.iter().zip(planes) {
        *registers.words(*slot) = plane;
    }
    Ok(())
}

pub fn store(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<(), Failed> {
    let pointers = pointers(rows, registers, view, local)?;
    for (slot, pointers) in rows.slots.iter().zip(pointers.chunks_exact(SIDE)) {
        let tile = collect(registers.words(*slot), rows.transposed);
        for (row, pointer) in tile.as_chunks::<SIDE>().0.iter().zip(pointers) {
            // SAFETY: the pointer was checked for a row and is aligned to it.
            unsafe { *(*pointer as *mut [u16; SIDE]) = *row };
        }
    }
    Ok(())
}

/// Returns the rows, for the optional checks.
pub fn spans(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<Vec<Span>, Failed> {
    let pointers = pointers(rows, registers, view, local)?;
    let span = |(lane, pointer): (usize, &u64)| Span { lane, pointer: *pointer, bytes: ROW_BYTES };
    Ok(pointers.iter().take(rows.slots.len() * SIDE).enumerate().map(span).collect())
}

/// Resolves the host addresses of the rows, after all checks. Lanes without a row get arbitrary values.
fn pointers(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<[u64; LANES], Failed> {
    let count = rows.slots.len() * SIDE;
    let mask = if count == LANES { FULL } else { (1 << count) - 1 };
    if rows.address.reach == Reach::Generic {
        let addresses = addresses(&rows.address, registers);
        let elsewhere = |address: &u64| space_of(Reach::Generic, *address) != "shared";
        if let Some(lane) = addresses[..count].iter().position(elsewhere) {
            let (address, kind) = (addresses[lane], FaultKind::IllegalAddress);
            let space = space_of(Reach::Generic, address);
            return Err(Refused { lane, address, bytes: ROW_BYTES, space, kind, among: FULL }.into());
        }
    }
    let mut pointers = [0; LANES];
    // SAFETY: lowering hands out slots inside the frame; the view and the local memory are those of the warp.
    unsafe { resolve(&mut pointers, &rows.address, ROW_BYTES, registers.start(), mask, view, local) }?;
    Ok(pointers)
}

//! Matrices of 8 by 8 elements of 16 bits: a lane holds two neighbours of a row, or of a column where the matrix is
//! transposed.

use super::{Failed, Span, addresses};
use crate::fault::FaultKind;
use crate::ops::lanes::{FULL, LANES};
use crate::program::matrix::Rows;
use crate::program::memory::Reach;
use crate::simt::access::{Local, Refused, View, resolve, space_of};
use crate::simt::frames::Registers;

const SIDE: usize = 8;
const ROW_BYTES: u64 = 16;

type Tile = [[u16; SIDE]; SIDE];

/// Row and column of an element of a lane.
fn place(lane: usize, element: usize, transposed: bool) -> (usize, usize) {
    let (outer, inner) = (lane / 4, lane % 4 * 2 + element);
    if transposed { (inner, outer) } else { (outer, inner) }
}

fn spread(tile: &Tile, transposed: bool) -> [u32; LANES] {
    std::array::from_fn(|lane| {
        let [low, high] = [0, 1].map(|element| {
            let (row, column) = place(lane, element, transposed);
            u32::from(tile[row][column])
        });
        low | high << 16
    })
}

fn collect(words: &[u32; LANES], transposed: bool) -> Tile {
    let mut tile = [[0; SIDE]; SIDE];
    for (lane, word) in words.iter().enumerate() {
        for element in 0..2 {
            let (row, column) = place(lane, element, transposed);
            tile[row][column] = (word >> (16 * element)) as u16;
        }
    }
    tile
}

pub fn transpose(d: u32, a: u32, registers: &mut Registers) {
    let tile = collect(registers.words(a), false);
    *registers.words(d) = spread(&tile, true);
}

pub fn load(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<(), Failed> {
    let pointers = pointers(rows, registers, view, local)?;
    // All are read before any register is written: the address may be one of them.
    let mut planes = [[0; LANES]; LANES / SIDE];
    for (plane, pointers) in planes.iter_mut().zip(pointers.chunks_exact(SIDE)).take(rows.slots.len()) {
        let mut tile = [[0; SIDE]; SIDE];
        for (row, pointer) in tile.iter_mut().zip(pointers) {
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
        for (row, pointer) in tile.iter().zip(pointers) {
            // SAFETY: the pointer was checked for a row and is aligned to it.
            unsafe { *(*pointer as *mut [u16; SIDE]) = *row };
        }
    }
    Ok(())
}

/// The rows, for those who watch memory.
pub fn spans(rows: &Rows, registers: &mut Registers, view: &mut View, local: Local) -> Result<Vec<Span>, Failed> {
    let pointers = pointers(rows, registers, view, local)?;
    let span = |(lane, pointer): (usize, &u64)| Span { lane, pointer: *pointer, bytes: ROW_BYTES };
    Ok(pointers.iter().take(rows.slots.len() * SIDE).enumerate().map(span).collect())
}

/// Where the rows lie on the host, after all checks. Lanes without a row may hold anything.
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

//! Moves matrices between memory and registers, line by line (`wmma.load`, `wmma.store`).

use super::tiles::{self, SIDE};
use super::{Failed, Span, addresses};
use crate::fault::FaultKind;
use crate::ops::lanes::{FULL, LANES};
use crate::ops::matrix::layout::{Major, Pattern};
use crate::program::matrix::Transfer;
use crate::simt::access::{Local, Refused, View, host_address, space_of};
use crate::simt::frames::Registers;

/// Maximum number of lines of a matrix.
const LINES_MAX: usize = 32;

/// Maximum alignment of lines in bytes. CUDA requires multiples of 16 bytes, PTX multiples of the fragment's size,
/// which may be larger; the smaller one is enforced.
const LINE_ALIGN_MAX: u64 = 16;

pub fn load(transfer: &Transfer, registers: &mut Registers, view: &View, local: Local) -> Result<(), Failed> {
    let lines = lines(transfer, registers, view, local, false)?;
    match (unit_bits(transfer), transfer.fragment.layout.pattern) {
        (16, Pattern::Rows(_) | Pattern::Columns(_)) => load_tiles::<u16>(transfer, &lines, registers),
        (32, Pattern::Rows(_)) => load_tiles::<u32>(transfer, &lines, registers),
        _ => load_single(transfer, &lines, registers),
    }
    Ok(())
}

/// Loads a matrix element by element.
fn load_single(transfer: &Transfer, lines: &[u64; LINES_MAX], registers: &mut Registers) {
    match unit_bits(transfer) {
        4 => load_lines::<4>(transfer, lines, registers),
        8 => load_lines::<8>(transfer, lines, registers),
        16 => load_lines::<16>(transfer, lines, registers),
        32 => load_lines::<32>(transfer, lines, registers),
        _ => load_lines::<64>(transfer, lines, registers),
    }
}

/// Loads a matrix of tiles.
fn load_tiles<E: Copy + Default + Into<u32>>(transfer: &Transfer, lines: &[u64; LINES_MAX], registers: &mut Registers) {
    for (number, start) in tiles::starts(&transfer.fragment) {
        let (first, position) = position(transfer, start as u16);
        let mut tile = [E::default(); SIDE * SIDE];
        for (part, line) in tile.as_chunks_mut::<SIDE>().0.iter_mut().zip(&lines[first..]) {
            // SAFETY: the line was checked for all its elements.
            *part = unsafe { (*line as *const E).add(position).cast::<[E; SIDE]>().read_unaligned() };
        }
        let tile = if lines_are_lanes(transfer) { tile } else { tiles::turned(&tile) };
        tiles::to_registers(&transfer.fragment, registers, number, &tiles::each(&tile, E::into));
    }
}

/// Reports whether the part of a tile in four lanes is contiguous in a line.
fn lines_are_lanes(transfer: &Transfer) -> bool {
    matches!(transfer.fragment.layout.pattern, Pattern::Rows(_)) == (transfer.major == Major::Row)
}

fn load_lines<const BITS: u32>(transfer: &Transfer, lines: &[u64; LINES_MAX], registers: &mut Registers) {
    let fragment = &transfer.fragment;
    for (slot, numbers) in fragment.slots.iter().zip(fragment.layout.elements.chunks_exact(fragment.per)) {
        let mut plane = [0u64; LANES];
        for (within, number) in numbers.iter().enumerate() {
            for (word, lane) in plane.iter_mut().zip(&fragment.layout.lanes) {
                let (line, position) = position(transfer, lane + number);
                // SAFETY: the line was checked for all its elements.
                *word |= unsafe { element::<BITS>(lines[line], position) } << (within as u32 * BITS);
            }
        }
        if BITS == 64 {
            *registers.doubles(*slot) = plane;
        } else {
            *registers.words(*slot) = plane.map(|word| word as u32);
        }
    }
}

pub fn store(transfer: &Transfer, registers: &mut Registers, view: &View, local: Local) -> Result<(), Failed> {
    let lines = lines(transfer, registers, view, local, true)?;
    match unit_bits(transfer) {
        16 => store_lines::<16>(transfer, &lines, registers),
        32 => store_lines::<32>(transfer, &lines, registers),
        64 => store_lines::<64>(transfer, &lines, registers),
        _ => unreachable!("accumulators have no smaller elements"),
    }
    Ok(())
}

fn store_lines<const BITS: u32>(transfer: &Transfer, lines: &[u64; LINES_MAX], registers: &mut Registers) {
    let fragment = &transfer.fragment;
    for (slot, numbers) in fragment.slots.iter().zip(fragment.layout.elements.chunks_exact(fragment.per)) {
        let plane = if BITS == 64 { *registers.doubles(*slot) } else { registers.words(*slot).map(u64::from) };
        for (within, number) in numbers.iter().enumerate() {
            for (word, lane) in plane.iter().zip(&fragment.layout.lanes) {
                let (line, position) = position(transfer, lane + number);
                // SAFETY: the line was checked for all its elements.
                unsafe { put_element::<BITS>(lines[line], position, word >> (within as u32 * BITS)) };
            }
        }
    }
}

/// Returns the bits of the unit in which the layout counts.
fn unit_bits(transfer: &Transfer) -> u32 {
    transfer.fragment.element.bits() * transfer.fragment.element.per_unit()
}

/// Returns the line of an element, and its position there.
#[inline(always)]
fn position(transfer: &Transfer, index: u16) -> (usize, usize) {
    // The number of columns is a power of two, and indices are row-major.
    let columns = if transfer.major == Major::Row { transfer.length } else { transfer.lines };
    let (row, column) = (index >> columns.trailing_zeros(), u32::from(index) & (columns - 1));
    let (row, column) = (usize::from(row), column as usize);
    if transfer.major == Major::Row { (row, column) } else { (column, row) }
}

/// # Safety
/// The line has an element at the position.
#[inline(always)]
unsafe fn element<const BITS: u32>(line: u64, position: usize) -> u64 {
    let at = line as *const u8;
    // SAFETY: the caller vouches for the element. A concurrent write is the kernel's race, as for every load.
    unsafe {
        match BITS {
            4 => u64::from(*at.add(position / 2) >> (position % 2 * 4) & 15),
            8 => u64::from(*at.add(position)),
            16 => u64::from(at.cast::<u16>().add(position).read_unaligned()),
            32 => u64::from(at.cast::<u32>().add(position).read_unaligned()),
            _ => at.cast::<u64>().add(position).read_unaligned(),
        }
    }
}

/// # Safety
/// The line has an element at the position.
#[inline(always)]
unsafe fn put_element<const BITS: u32>(line: u64, position: usize, value: u64) {
    let at = line as *mut u8;
    // SAFETY: the caller vouches for the element.
    unsafe {
        match BITS {
            16 => at.cast::<u16>().add(position).write_unaligned(value as u16),
            32 => at.cast::<u32>().add(position).write_unaligned(value as u32),
            _ => at.cast::<u64>().add(position).write_unaligned(value),
        }
    }
}

/// Returns the lines, for the optional checks.
pub fn spans(
    transfer: &Transfer,
    registers: &mut Registers,
    view: &View,
    local: Local,
    writes: bool,
) -> Result<Vec<Span>, Failed> {
    let bytes = u64::from(transfer.length) * u64::from(unit_bits(transfer)) / 8;
    let lines = lines(transfer, registers, view, local, writes)?;
    let span = |(number, pointer): (usize, &u64)| Span { lane: number % LANES, pointer: *pointer, bytes };
    Ok(lines.iter().take(transfer.lines as usize).enumerate().map(span).collect())
}

/// Resolves the host addresses of the lines, after all checks.
fn lines(
    transfer: &Transfer,
    registers: &mut Registers,
    view: &View,
    local: Local,
    writes: bool,
) -> Result<[u64; LINES_MAX], Failed> {
    let bits = u64::from(unit_bits(transfer));
    let bytes = u64::from(transfer.length) * bits / 8;
    let start = start(transfer, registers)?;
    let step = step(transfer, registers, bytes, writes)?;
    let reach = transfer.address.reach;
    let space = space_of(reach, start);
    let refused = |address, kind| Refused { lane: 0, address, bytes, space, kind, among: FULL };
    if !matches!(space, "global" | "shared") {
        return Err(refused(start, FaultKind::IllegalAddress).into());
    }
    let whole = step * u64::from(transfer.lines - 1) + bytes;
    let by = |number: u32| u64::from(number) * step;
    match host_address(start, reach, writes, whole, 0, view, local) {
        Ok(first) => Ok(std::array::from_fn(|number| first + by(number as u32))),
        Err(whole) => {
            // Finds the first line that is out of range, for the report.
            for number in 0..transfer.lines {
                let address = start.checked_add(by(number)).ok_or(refused(start, FaultKind::IllegalAddress))?;
                host_address(address, reach, writes, bytes, 0, view, local)?;
            }
            Err(whole.into())
        }
    }
}

/// Returns the address, which has to be equal in all lanes.
fn start(transfer: &Transfer, registers: &mut Registers) -> Result<u64, Failed> {
    let starts = addresses(&transfer.address, registers);
    let start = starts[0];
    if let Some(other) = starts.iter().find(|other| **other != start) {
        let what = format!("lanes with different addresses for one matrix, {start:#x} and {other:#x}");
        return Err(Failed::Operands(FaultKind::IllegalInstruction, what));
    }
    let fragment = fragment_bytes(transfer);
    if !start.is_multiple_of(fragment) {
        let space = space_of(transfer.address.reach, start);
        let kind = FaultKind::MisalignedAddress;
        return Err(Refused { lane: 0, address: start, bytes: fragment, space, kind, among: FULL }.into());
    }
    Ok(start)
}

/// Returns the bytes of a fragment in the registers of one lane.
fn fragment_bytes(transfer: &Transfer) -> u64 {
    transfer.fragment.slots.len() as u64 * if unit_bits(transfer) == 64 { 8 } else { 4 }
}

/// Returns the bytes from one line of `bytes` bytes to the next.
fn step(transfer: &Transfer, registers: &mut Registers, bytes: u64, writes: bool) -> Result<u64, Failed> {
    let Some(slot) = transfer.stride else { return Ok(bytes) };
    let strides = *registers.words(slot);
    let stride = strides[0];
    if let Some(other) = strides.iter().find(|other| **other != stride) {
        let what = format!("lanes with different strides for one matrix, {stride} and {other} elements");
        return Err(Failed::Operands(FaultKind::IllegalInstruction, what));
    }
    let step_bits = u64::from(stride) * u64::from(transfer.fragment.element.bits());
    let align = fragment_bytes(transfer).min(LINE_ALIGN_MAX);
    if !step_bits.is_multiple_of(8 * align) {
        let what = format!("a stride of {stride} elements, which is not a multiple of {align} bytes");
        return Err(Failed::Operands(FaultKind::MisalignedAddress, what));
    }
    let step = step_bits / 8;
    if writes && step < bytes {
        let what = format!("a stride of {stride} elements, which makes the lines of the matrix overlap");
        return Err(Failed::Operands(FaultKind::IllegalInstruction, what));
    }
    Ok(step)
}

//! Values that the machine provides to a frame: constants, kernel parameters, and special registers.

use super::context::{Context, dynamic_start};
use super::frames::Registers;
use crate::ops::lanes::{LANES, fill};
use crate::program::{Function, Special};

impl Context<'_> {
    /// Returns a register file for a frame of function `index` in warp `warp`, whose local memory starts at `local`.
    pub fn registers(&mut self, index: usize, warp: u32, local: u32) -> Registers {
        let function = &self.program.functions[index];
        let mut registers = match self.spare.take(index) {
            Some(registers) => registers,
            None => {
                let mut registers = Registers::new(function.frame_bytes);
                registers.put_constants(&function.constants);
                self.put_uniforms(&mut registers, function);
                registers
            }
        };
        for (slot, offset) in &function.locals {
            registers.put_double(*slot, u64::from(local + offset));
        }
        self.place(&mut registers, function, warp, None);
        registers
    }

    /// Sets the values that stay for a whole launch.
    fn put_uniforms(&self, registers: &mut Registers, function: &Function) {
        for (slot, special) in &function.uniforms {
            match *special {
                Special::DynamicSharedStart => registers.put_double(*slot, dynamic_start(self.entry)),
                Special::GridId => registers.put_double(*slot, 1),
                Special::ZeroDouble => registers.put_double(*slot, 0),
                Special::Parameter { offset, bytes, signed, wide: true } => {
                    registers.put_double(*slot, self.parameter(offset, bytes, signed));
                }
                Special::Lane
                | Special::LanesEqual
                | Special::LanesBelow
                | Special::LanesUpTo
                | Special::LanesAbove
                | Special::LanesFrom => {
                    for (lane, one) in registers.words(*slot).iter_mut().enumerate() {
                        *one = of_lane(*special, lane as u32);
                    }
                }
                _ => registers.put_word(*slot, self.uniform(*special)),
            }
        }
    }

    fn uniform(&self, special: Special) -> u32 {
        match special {
            Special::BlockSize(axis) => self.config.block[usize::from(axis)],
            Special::GridSize(axis) => self.config.grid[usize::from(axis)],
            Special::Warps => self.config.threads().div_ceil(LANES as u32),
            Special::DynamicShared => self.config.shared_bytes,
            Special::TotalShared => self.view.shared_bytes as u32,
            Special::ReservedShared => self.program.reserved_shared,
            Special::Parameter { offset, bytes, signed, .. } => self.parameter(offset, bytes, signed) as u32,
            Special::One => 1,
            Special::Environment(1) => (self.signals.workspace >> 32) as u32,
            Special::Environment(2) => self.signals.workspace as u32,
            _ => 0,
        }
    }

    /// Sets the values that depend on the block and the warp, in registers that belonged to the block and the warp in
    /// `before`.
    pub fn place(&self, registers: &mut Registers, function: &Function, warp: u32, before: Option<([u32; 3], u32)>) {
        let (same_block, same_warp) =
            before.map_or((false, false), |(block, number)| (block == self.block, number == warp));
        for (slot, special) in &function.specials {
            match *special {
                Special::Block(_) if same_block => {}
                Special::Block(axis) => registers.put_word(*slot, self.block[usize::from(axis)]),
                _ if same_warp => {}
                Special::Thread(axis) => self.put_threads(registers.words(*slot), axis, warp),
                _ => registers.put_word(*slot, warp),
            }
        }
    }

    fn put_threads(&self, plane: &mut [u32; LANES], axis: u8, warp: u32) {
        let [x, y, _] = self.config.block;
        let mut place = self.thread(warp, 0);
        if place[0] + LANES as u32 <= x {
            // The whole warp is in one row.
            match axis {
                0 => plane.iter_mut().zip(place[0]..).for_each(|(one, x)| *one = x),
                _ => fill(plane, place[usize::from(axis)]),
            }
            return;
        }
        // Increments from lane to lane, because a division for each lane would take longer than many a kernel.
        for one in plane {
            *one = place[usize::from(axis)];
            place[0] += 1;
            if place[0] == x {
                place = [0, place[1] + 1, place[2]];
            }
            if place[1] == y {
                place = [place[0], 0, place[2] + 1];
            }
        }
    }

    pub fn thread(&self, warp: u32, lane: u32) -> [u32; 3] {
        let [x, y, _] = self.config.block;
        let thread = warp * LANES as u32 + lane;
        // Most blocks are one row, and divisions would take longer than starting the warp.
        if thread < x {
            return [thread, 0, 0];
        }
        [thread % x, thread / x % y, thread / x / y]
    }

    /// Returns a kernel parameter, extended to 64 bits.
    fn parameter(&self, offset: u32, bytes: u32, signed: bool) -> u64 {
        let mut value = [0; 8];
        let (start, bytes) = (offset as usize, bytes as usize);
        if let Some(found) = self.view.params.get(start..start + bytes) {
            value[..bytes].copy_from_slice(found);
        }
        let unused = 64 - 8 * bytes as u32;
        let value = u64::from_le_bytes(value);
        if signed { ((value << unused) as i64 >> unused) as u64 } else { value }
    }
}

fn of_lane(special: Special, lane: u32) -> u32 {
    let (bit, below) = (1u32 << lane, (1u32 << lane) - 1);
    match special {
        Special::LanesEqual => bit,
        Special::LanesBelow => below,
        Special::LanesUpTo => bit | below,
        Special::LanesAbove => !(bit | below),
        Special::LanesFrom => !below,
        _ => lane,
    }
}

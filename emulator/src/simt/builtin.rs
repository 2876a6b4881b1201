//! Built-in functions that kernels call by name: `vprintf`, `__assertfail`, `malloc`, `free`.

use super::access::{Local, Refused, View, host_address};
use super::context::Context;
use super::frames::Registers;
use super::print::format;
use crate::ops::lanes::LANES;
use crate::program::memory::Reach;
use crate::program::{Call, Callee};

/// Maximum bytes of a string that a kernel prints; a longer one is truncated.
const TEXT_BYTES_MAX: u64 = 64 << 10;

/// The reason why a call did not return.
#[derive(Debug)]
pub enum Failed {
    Access(Refused),
    /// A failed assertion: the lane and the message.
    Assertion(u32, String),
}

impl From<Refused> for Failed {
    fn from(refused: Refused) -> Failed {
        Failed::Access(refused)
    }
}

pub fn run(call: &Call, registers: &mut Registers, mask: u32, cx: &mut Context, local: Local) -> Result<(), Failed> {
    for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
        let mut arguments = Arguments { call, registers, lane, next: 0 };
        match call.callee {
            Callee::Print => {
                let (pattern, values) = (arguments.double(), arguments.double());
                let text = read_text(pattern, lane, &cx.view, local)?;
                let (line, count) = format(
                    &text,
                    |offset, bytes| read(values + offset, bytes, lane, &cx.view, local),
                    |address| read_text(address, lane, &cx.view, local),
                )?;
                (cx.options.print)(&line);
                registers.words(call.results[0])[lane] = count;
            }
            Callee::AssertFail => {
                let [message, file] = [arguments.double(), arguments.double()];
                let line = arguments.word();
                let function = arguments.double();
                let [message, file, function] =
                    [message, file, function].map(|address| read_text(address, lane, &cx.view, local));
                let text = |bytes: Result<Vec<u8>, Refused>| bytes.map(|b| String::from_utf8_lossy(&b).into_owned());
                let (message, file, function) = (text(message)?, text(file)?, text(function)?);
                let what = format!("assertion `{message}` failed at {file}:{line} ({function})");
                return Err(Failed::Assertion(lane as u32, what));
            }
            Callee::Allocate => {
                let bytes = arguments.double();
                let address = cx.take_heap(bytes).unwrap_or(0);
                registers.words(call.results[0])[lane] = address as u32;
                registers.words(call.results[1])[lane] = (address >> 32) as u32;
            }
            Callee::Free => {
                let address = arguments.double();
                if address != 0 && !cx.give_heap(address) {
                    let what = format!("free of {address:#x}, which `malloc` did not return");
                    return Err(Failed::Assertion(lane as u32, what));
                }
            }
            Callee::Function(_) | Callee::Register(_) => unreachable!("functions with code are not built in"),
        }
    }
    Ok(())
}

/// Reads the arguments of one lane, word by word.
struct Arguments<'a> {
    call: &'a Call,
    registers: &'a mut Registers,
    lane: usize,
    next: usize,
}

impl Arguments<'_> {
    fn word(&mut self) -> u32 {
        let slot = self.call.arguments[self.next];
        self.next += 1;
        self.registers.words(slot)[self.lane]
    }

    fn double(&mut self) -> u64 {
        let low = self.word();
        u64::from(low) | u64::from(self.word()) << 32
    }
}

/// Reads 4 or 8 bytes at a generic address.
fn read(address: u64, bytes: u64, lane: usize, view: &View, local: Local) -> Result<u64, Refused> {
    let host = host_address(address, Reach::Generic, false, bytes, lane, view, local)?;
    // SAFETY: the address was just checked for these bytes.
    Ok(unsafe {
        if bytes == 8 { (host as *const u64).read_unaligned() } else { (host as *const u32).read_unaligned().into() }
    })
}

/// Reads a NUL-terminated string.
fn read_text(address: u64, lane: usize, view: &View, local: Local) -> Result<Vec<u8>, Refused> {
    let mut text = Vec::new();
    for offset in 0..TEXT_BYTES_MAX {
        let host = host_address(address.wrapping_add(offset), Reach::Generic, false, 1, lane, view, local)?;
        // SAFETY: the address was just checked for one byte.
        match unsafe { *(host as *const u8) } {
            0 => break,
            byte => text.push(byte),
        }
    }
    Ok(text)
}

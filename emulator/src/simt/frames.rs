//! Register files of one warp: a frame for each active call.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::HashMap;
use std::iter;
use std::ptr::NonNull;

use crate::ops::lanes::{LANES, fill};
use crate::program::{Constant, Width};

/// Alignment of frames in bytes: a cache line, which vectors need.
const FRAME_ALIGN: usize = 64;

/// An active call of some lanes.
#[derive(Debug)]
pub struct Frame {
    pub function: usize,
    pub registers: Registers,
    pub caller: Caller,
    /// Callers of lanes that joined from other frames.
    pub joined: Vec<Caller>,
    pub depth: u32,
    /// Lanes that have not returned yet.
    pub lanes: u32,
    /// Start of the frame's local memory; the highest one if it differs between lanes.
    pub local: u32,
    /// Bytes of the stack up to the frame's end.
    pub stack: u32,
}

/// The caller to which lanes of a frame return.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    pub frame: usize,
    /// Place where the caller continues, behind its call.
    pub return_pc: u32,
    pub lanes: u32,
}

impl Frame {
    /// Returns the callers of the lanes that have not returned.
    pub fn callers(&self) -> impl Iterator<Item = Caller> {
        iter::once(self.caller).chain(self.joined.iter().copied())
    }

    /// Moves lanes of another frame of this function into this frame.
    pub fn join(&mut self, other: &Frame, planes: &[Width], mask: u32) {
        self.registers.take_lanes(&other.registers, planes, mask);
        self.lanes |= mask;
        self.local = self.local.max(other.local);
        self.stack = self.stack.max(other.stack);
        for caller in other.callers().filter(|caller| caller.lanes & mask != 0) {
            let lanes = caller.lanes & mask;
            let same = |known: &&mut Caller| (known.frame, known.return_pc) == (caller.frame, caller.return_pc);
            match iter::once(&mut self.caller).chain(&mut self.joined).find(same) {
                Some(known) => known.lanes |= lanes,
                None => self.joined.push(Caller { lanes, ..caller }),
            }
        }
    }

    /// Removes lanes from the frame.
    pub fn leave(&mut self, mask: u32) {
        self.lanes &= !mask;
        self.caller.lanes &= !mask;
        self.joined.iter_mut().for_each(|caller| caller.lanes &= !mask);
        self.joined.retain(|caller| caller.lanes != 0);
    }
}

/// Zeroed, aligned bytes of a frame.
#[derive(Debug)]
pub struct Registers {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the bytes are owned and plain.
unsafe impl Send for Registers {}

impl Registers {
    pub fn new(bytes: u32) -> Registers {
        let layout = Layout::from_size_align(bytes.max(1) as usize, FRAME_ALIGN).expect("frames are small");
        // SAFETY: the layout is not empty.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        Registers { start: start.unwrap_or_else(|| handle_alloc_error(layout)), layout }
    }

    pub fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    pub fn put_constants(&mut self, constants: &[Constant]) {
        for constant in constants {
            match *constant {
                Constant::Word(slot, value) => self.put_word(slot, value),
                Constant::Double(slot, value) => self.put_double(slot, value),
                Constant::Mask(slot, value) => self.put_mask(slot, value),
            }
        }
    }

    pub fn put_word(&mut self, slot: u32, value: u32) {
        fill(self.words(slot), value);
    }

    pub fn put_double(&mut self, slot: u32, value: u64) {
        assert!(slot as usize + LANES * 8 <= self.layout.size(), "slots lie inside their frame");
        // SAFETY: checked above; planes are aligned to their elements.
        unsafe { &mut *self.start().add(slot as usize).cast::<[u64; LANES]>() }.fill(value);
    }

    pub fn put_mask(&mut self, slot: u32, value: u32) {
        assert!(slot as usize + 4 <= self.layout.size(), "slots lie inside their frame");
        // SAFETY: checked above.
        unsafe { *self.start().add(slot as usize).cast::<u32>() = value };
    }

    pub fn words(&mut self, slot: u32) -> &mut [u32; LANES] {
        assert!(slot as usize + LANES * 4 <= self.layout.size(), "slots lie inside their frame");
        // SAFETY: checked above; the borrow is that of the whole file.
        unsafe { &mut *self.start().add(slot as usize).cast::<[u32; LANES]>() }
    }

    pub fn doubles(&mut self, slot: u32) -> &mut [u64; LANES] {
        assert!(slot as usize + LANES * 8 <= self.layout.size(), "slots lie inside their frame");
        // SAFETY: checked above; the borrow is that of the whole file.
        unsafe { &mut *self.start().add(slot as usize).cast::<[u64; LANES]>() }
    }

    /// Copies the lanes of `mask` from another register file of this function; `planes` are its types.
    pub fn take_lanes(&mut self, other: &Registers, planes: &[Width], mask: u32) {
        assert!(planes.len() * LANES * 4 <= self.layout.size().min(other.layout.size()), "both files have the planes");
        let lanes = || (0..LANES).filter(move |lane| mask >> lane & 1 != 0);
        let mut plane = 0;
        while let Some(width) = planes.get(plane) {
            let start = plane * LANES * 4;
            let [target, source] = [self.start(), other.start()];
            // SAFETY: the assertion covers every plane, one of 64 bits counts as two, and planes are aligned to their
            // elements. The two files are different allocations.
            unsafe {
                match width {
                    Width::Word => {
                        let [target, source] = [target, source].map(|start_of| start_of.add(start).cast::<u32>());
                        lanes().for_each(|lane| *target.add(lane) = *source.add(lane));
                    }
                    Width::Double => {
                        let [target, source] = [target, source].map(|start_of| start_of.add(start).cast::<u64>());
                        lanes().for_each(|lane| *target.add(lane) = *source.add(lane));
                    }
                    Width::Mask => {
                        let [target, source] = [target, source].map(|start_of| start_of.add(start).cast::<u32>());
                        for at in 0..LANES {
                            *target.add(at) = *target.add(at) & !mask | *source.add(at) & mask;
                        }
                    }
                }
            }
            plane += if *width == Width::Double { 2 } else { 1 };
        }
    }

    /// Returns the bytes that a store of these planes writes for one lane.
    pub fn stored(&self, slots: &[u32], wide: bool, lane: usize, bytes: u64) -> Vec<u8> {
        let size = bytes as usize / slots.len().max(1);
        let element = |slot: u32| {
            let at = slot as usize + lane * if wide { 8 } else { 4 };
            assert!(at + size <= self.layout.size(), "slots lie inside their frame");
            // SAFETY: checked above; the bytes are initialised, as all of a frame's are.
            unsafe { std::slice::from_raw_parts(self.start().add(at), size) }
        };
        slots.iter().flat_map(|slot| element(*slot).iter().copied()).collect()
    }

    pub fn mask(&self, slot: u32) -> u32 {
        assert!(slot as usize + 4 <= self.layout.size(), "slots lie inside their frame");
        // SAFETY: checked above.
        unsafe { *self.start().add(slot as usize).cast::<u32>() }
    }
}

impl Drop for Registers {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.start(), self.layout) };
    }
}

/// Unused register files, by function. Values that stay for a whole launch are set already.
#[derive(Debug, Default)]
pub struct Spare {
    files: HashMap<usize, Vec<Registers>>,
}

impl Spare {
    pub fn take(&mut self, index: usize) -> Option<Registers> {
        self.files.get_mut(&index)?.pop()
    }

    pub fn give(&mut self, index: usize, registers: Registers) {
        self.files.entry(index).or_default().push(registers);
    }
}

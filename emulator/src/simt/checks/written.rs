//! The written bytes of a block's shared and local memory.

use std::collections::HashMap;
use std::ops::Range;

use crate::ops::lanes::LANES;

#[derive(Debug)]
pub struct Written {
    shared: Vec<bool>,
    /// Local memory by warp; the bytes of each lane are contiguous, as in the warp.
    local: HashMap<u32, Vec<bool>>,
    lane_bytes: u64,
    /// Bytes at the start of shared memory that always count as written.
    reserved: u32,
}

impl Written {
    pub fn new(shared_bytes: u64, lane_bytes: u64, reserved: u32) -> Written {
        Written { shared: vec![false; shared_bytes as usize], local: HashMap::new(), lane_bytes, reserved }
    }

    pub fn start_block(&mut self) {
        self.shared.fill(false);
        self.shared.iter_mut().take(self.reserved as usize).for_each(|byte| *byte = true);
        self.local.values_mut().for_each(|lanes| lanes.fill(false));
    }

    /// Returns the flags of shared memory at these offsets.
    pub fn shared(&mut self, bytes: Range<u64>) -> &mut [bool] {
        &mut self.shared[bytes.start as usize..bytes.end as usize]
    }

    /// Returns the flags of a warp's local memory at these offsets.
    pub fn local(&mut self, warp: u32, bytes: Range<u64>) -> &mut [bool] {
        let size = LANES * self.lane_bytes as usize;
        let lanes = self.local.entry(warp).or_insert_with(|| vec![false; size]);
        &mut lanes[bytes.start as usize..bytes.end as usize]
    }

    pub fn forget_local(&mut self, warp: u32, lanes: u32, start: u64, bytes: u64) {
        let lane_bytes = self.lane_bytes;
        for lane in (0..LANES as u64).filter(|lane| lanes >> lane & 1 != 0) {
            let start = lane * lane_bytes + start;
            self.local(warp, start..start + bytes).fill(false);
        }
    }
}

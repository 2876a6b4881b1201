//! Arguments of kernels, and descriptions of copies.

use std::ffi::c_void;

/// The arguments of the kernels: two pieces of memory with this number of words.
pub struct Arguments {
    pub to: u64,
    pub from: u64,
    pub words: u32,
}

impl Arguments {
    pub fn with(&self, kernel: usize, launch: impl FnOnce(*const *const c_void) -> i32) -> i32 {
        let (flag, scale, value, step) = (1_u8, 0.5_f32, 1000_u32, [1_u32, 2, 3]);
        let (to, from, words) = (&raw const self.to, &raw const self.from, &raw const self.words);
        let pointers: Vec<*const c_void> = match kernel {
            0 => vec![to.cast(), words.cast(), (&raw const value).cast()],
            1 => vec![(&raw const flag).cast(), to.cast(), (&raw const scale).cast(), from.cast(), words.cast()],
            2 => vec![to.cast(), (&raw const step).cast()],
            3 => vec![to.cast()],
            _ => Vec::new(),
        };
        launch(if pointers.is_empty() { std::ptr::null() } else { pointers.as_ptr() })
    }
}

/// `CUDA_MEMCPY2D` between device memory with a pitch of 64 bytes and as much memory of the program.
pub fn flat(device: u64, host: *mut u8, [x, y]: [usize; 2], [width, height]: [usize; 2], to_host: bool) -> [u64; 16] {
    let (host_end, device_end) =
        ([0, 0, 1, host.expose_provenance() as u64, 0, 0, 64], [x as u64, y as u64, 2, 0, device, 0, 64]);
    let (from, to) = if to_host { (device_end, host_end) } else { (host_end, device_end) };
    let mut words = [0; 16];
    words[..7].copy_from_slice(&from);
    words[7..14].copy_from_slice(&to);
    (words[14], words[15]) = (width as u64, height as u64);
    words
}

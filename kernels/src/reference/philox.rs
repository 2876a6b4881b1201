//! Philox 4x32-10, the counter-based random numbers of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3"
//! (2011).
//!
//! A block of four numbers is a pure function of a counter and a key, so any thread can compute any part of the stream.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Returns the four numbers for `counter` and `key`.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..ROUNDS {
        let [a, b] = [0, 1].map(|lane| u64::from(MULTIPLIERS[lane]) * u64::from(counter[2 * lane]));
        let (high, low) = (|product: u64| (product >> 32) as u32, |product: u64| product as u32);
        counter = [high(b) ^ counter[1] ^ key[0], low(b), high(a) ^ counter[3] ^ key[1], low(a)];
        key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
    }
    counter
}

/// Returns block `index` of the stream of `seed`.
pub fn block(seed: u64, index: u64) -> [u32; 4] {
    philox([index as u32, (index >> 32) as u32, 0, 0], [seed as u32, (seed >> 32) as u32])
}

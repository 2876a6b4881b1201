//! Compute-bound kernels.

pub const SOFTENING: f32 = 0.01;
pub const RATE: f32 = 0.02;
pub const VOLATILITY: f32 = 0.3;
pub const SEED: u32 = 7;

pub const STEPS_MAX: u32 = 256;

/// Computes the pull of all bodies on each body. A position is x, y, z and the mass.
pub fn nbody(positions: &[[f32; 4]], pulls: &mut [[f32; 4]]) {
    for (own, pull_on) in positions.iter().zip(pulls) {
        let mut sum = [0f32; 3];
        for other in positions {
            let [x, y, z] = [other[0] - own[0], other[1] - own[1], other[2] - own[2]];
            let square = x.mul_add(x, y.mul_add(y, z.mul_add(z, SOFTENING)));
            let inverse = 1.0 / square.sqrt();
            let pull = other[3] * inverse * inverse * inverse;
            sum = [pull.mul_add(x, sum[0]), pull.mul_add(y, sum[1]), pull.mul_add(z, sum[2])];
        }
        *pull_on = [sum[0], sum[1], sum[2], 0.0];
    }
}

pub fn mandelbrot(out: &mut [u32], side: usize) {
    for (index, out) in out.iter_mut().enumerate() {
        let (px, py) = ((index % side) as f32, (index / side) as f32);
        let (cx, cy) = (px.mul_add(3.0 / 512.0, -2.0), py.mul_add(3.0 / 512.0, -1.5));
        let (mut x, mut y, mut steps) = (0f32, 0f32, 0);
        while steps < STEPS_MAX && x.mul_add(x, y * y) < 4.0 {
            (x, y) = (x.mul_add(x, (-y).mul_add(y, cx)), (2.0 * x).mul_add(y, cy));
            steps += 1;
        }
        *out = steps;
    }
}

/// Counts the random points in the circle: two points for each of `threads` times `rounds` counters.
pub fn philox_pi(threads: u32, rounds: u32) -> u64 {
    let mut hits = 0;
    for thread in 0..threads {
        for round in 0..rounds {
            let [a, b, c, d] = philox([thread, round, 0, 0], [SEED, 0xCAFE]);
            hits += u64::from(is_inside(a, b)) + u64::from(is_inside(c, d));
        }
    }
    hits
}

/// Philox 4x32-10 (Salmon et al., 2011).
fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let a = 0xD251_1F53u64 * u64::from(counter[0]);
        let b = 0xCD9E_8D57u64 * u64::from(counter[2]);
        counter = [(b >> 32) as u32 ^ counter[1] ^ key[0], b as u32, (a >> 32) as u32 ^ counter[3] ^ key[1], a as u32];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

fn is_inside(x: u32, y: u32) -> bool {
    let unit = |bits: u32| (bits >> 8) as f32 * (1.0 / 16_777_216.0);
    let (x, y) = (unit(x), unit(y));
    x.mul_add(x, y * y) < 1.0
}

/// Computes prices of European calls and puts by the Black-Scholes formula.
pub fn black_scholes(spot: &[f32], strike: &[f32], years: &[f32], calls: &mut [f32], puts: &mut [f32]) {
    let market = spot.iter().zip(strike).zip(years);
    for (((spot, strike), years), (call, put)) in market.zip(calls.iter_mut().zip(puts)) {
        let deviation = VOLATILITY * years.sqrt();
        let d1 = ((spot / strike).ln() + (RATE + 0.5 * VOLATILITY * VOLATILITY) * years) / deviation;
        let d2 = d1 - deviation;
        let discounted = strike * (-RATE * years).exp();
        *call = spot * normal_below(d1) - discounted * normal_below(d2);
        *put = discounted * normal_below(-d2) - spot * normal_below(-d1);
    }
}

/// Returns the probability that a standard normal variable is below the bound.
fn normal_below(bound: f32) -> f32 {
    0.5 * libm::erfcf(-std::f32::consts::FRAC_1_SQRT_2 * bound)
}

//! Samples for option prices, random numbers and gravity.

use super::{
    draft::{Draft, Sample},
    noise::Noise,
};
use crate::reference;

pub(super) fn black_scholes() -> Vec<Sample> {
    let sample = |(n, rate, volatility): (usize, f32, f32)| {
        let mut noise = Noise::new(n as u64);
        let (spot, strike) = (noise.uniform(n, 5.0, 150.0), noise.uniform(n, 5.0, 150.0));
        let years = noise.uniform(n, 0.1, 5.0);
        let priced = reference::black_scholes(&spot, &strike, &years, rate, volatility);
        let draft = Draft::new("black_scholes").argument("rate", rate).argument("volatility", volatility);
        let draft = draft.input("spot", &[n], &spot).input("strike", &[n], &strike).input("years", &[n], &years);
        draft.expect("calls", &[n], &priced.calls).expect("puts", &[n], &priced.puts).finish()
    };
    [(1, 0.02, 0.3), (1000, -0.01, 0.15), (2048, 0.05, 0.6)].map(sample).into()
}

pub(super) fn monte_carlo_pi() -> Vec<Sample> {
    let sample = |(samples, seed): (u64, u64)| {
        let hits = reference::monte_carlo_pi(samples, seed);
        let draft = Draft::new("monte_carlo_pi").argument("samples", samples).argument("seed", seed);
        draft.expect("hits", &[1], &[hits]).finish()
    };
    [(1, 0), (10_001, 7), (200_000, 0x0123_4567_89AB_CDEF)].map(sample).into()
}

pub(super) fn nbody_step() -> Vec<Sample> {
    let sample = |(n, dt, softening): (usize, f32, f32)| {
        let mut noise = Noise::new(n as u64);
        let mut bodies = |low: f32, high: f32| -> Vec<[f32; 4]> {
            let coordinates = noise.uniform(3 * n, -1.0, 1.0);
            let fourth = noise.uniform(n, low, high);
            coordinates.chunks_exact(3).zip(fourth).map(|(c, fourth)| [c[0], c[1], c[2], fourth]).collect()
        };
        let (positions, velocities) = (bodies(0.1, 1.0), bodies(0.0, 0.0));
        let (new_positions, new_velocities) = reference::nbody_step(&positions, &velocities, dt, softening);
        let draft = Draft::new("nbody_step").argument("dt", dt).argument("softening", softening);
        let draft = draft.input("positions", &[n, 4], positions.as_flattened());
        let draft = draft.input("velocities", &[n, 4], velocities.as_flattened());
        let draft = draft.expect("new_positions", &[n, 4], new_positions.as_flattened());
        draft.expect("new_velocities", &[n, 4], new_velocities.as_flattened()).finish()
    };
    [(1, 0.01, 0.1), (100, 0.01, 0.05), (300, 0.001, 0.1)].map(sample).into()
}

//! References for the kernels about option prices, random numbers and gravity.

use super::philox;

/// The prices of European options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Priced {
    pub calls: Vec<f32>,
    pub puts: Vec<f32>,
}

/// Computes European call and put prices after Black and Scholes, for one rate and one volatility.
pub fn black_scholes(spot: &[f32], strike: &[f32], years: &[f32], rate: f32, volatility: f32) -> Priced {
    assert!(spot.len() == strike.len() && spot.len() == years.len(), "each option has a spot, a strike and a time");
    let (rate, volatility) = (f64::from(rate), f64::from(volatility));
    let mut priced = Priced::default();
    for ((spot, strike), years) in spot.iter().zip(strike).zip(years) {
        let (spot, strike, years) = (f64::from(*spot), f64::from(*strike), f64::from(*years));
        let deviation = volatility * years.sqrt();
        let d1 = ((spot / strike).ln() + (rate + 0.5 * volatility * volatility) * years) / deviation;
        let d2 = d1 - deviation;
        let discounted = strike * (-rate * years).exp();
        priced.calls.push((spot * normal_below(d1) - discounted * normal_below(d2)) as f32);
        priced.puts.push((discounted * normal_below(-d2) - spot * normal_below(-d1)) as f32);
    }
    priced
}

/// Returns the probability that a standard normal variable is below `bound`.
fn normal_below(bound: f64) -> f64 {
    0.5 * libm::erfc(-bound / std::f64::consts::SQRT_2)
}

/// Counts how many of `samples` random points of the unit square are within the unit circle: about π/4 of them.
///
/// Each block of Philox gives two points. Coordinates are 31-bit integers, so the test whether a point is inside is
/// exact.
pub fn monte_carlo_pi(samples: u64, seed: u64) -> u64 {
    let mut hits = 0;
    for index in 0..samples.div_ceil(2) {
        let [a, b, c, d] = philox::block(seed, index);
        hits += u64::from(is_inside(a, b));
        if 2 * index + 1 < samples {
            hits += u64::from(is_inside(c, d));
        }
    }
    hits
}

fn is_inside(x: u32, y: u32) -> bool {
    let (x, y) = (u64::from(x >> 1), u64::from(y >> 1));
    x * x + y * y < 1 << 62
}

/// Computes one step of `dt` for bodies that attract each other, with the gravitational constant 1.
///
/// A position is x, y, z and the mass. A velocity is x, y, z and a fourth number that does not change. First the
/// velocities change, then the positions by the new velocities (semi-implicit Euler, which keeps orbits from growing).
/// `softening` bounds the acceleration of close bodies.
pub fn nbody_step(
    positions: &[[f32; 4]],
    velocities: &[[f32; 4]],
    dt: f32,
    softening: f32,
) -> (Vec<[f32; 4]>, Vec<[f32; 4]>) {
    assert_eq!(positions.len(), velocities.len(), "each body has a velocity");
    let (dt, softening) = (f64::from(dt), f64::from(softening));
    let step = |(position, velocity): (&[f32; 4], &[f32; 4])| {
        let acceleration = acceleration(position, positions, softening);
        let (mut new_position, mut new_velocity) = (*position, *velocity);
        for axis in 0..3 {
            let changed = f64::from(velocity[axis]) + acceleration[axis] * dt;
            new_velocity[axis] = changed as f32;
            new_position[axis] = (f64::from(position[axis]) + changed * dt) as f32;
        }
        (new_position, new_velocity)
    };
    positions.iter().zip(velocities).map(step).unzip()
}

fn acceleration(at: &[f32; 4], bodies: &[[f32; 4]], softening: f64) -> [f64; 3] {
    let mut sum = [0.0; 3];
    for body in bodies {
        let away = [0, 1, 2].map(|axis| f64::from(body[axis]) - f64::from(at[axis]));
        let square = away.iter().map(|distance| distance * distance).sum::<f64>() + softening * softening;
        let pull = f64::from(body[3]) / (square * square.sqrt());
        for axis in 0..3 {
            sum[axis] += pull * away[axis];
        }
    }
    sum
}

//! Monte Carlo, option prices, the Mandelbrot set: floating-point computations with rounding errors.

use super::builds::study;
use super::close::assert_close;
use super::device::args;

#[test]
fn random_points_fall_into_the_circle() {
    study("montecarlo_pi.cu", include_str!("../../cases/study/montecarlo_pi.cu"), |device, _| {
        const THREADS: u32 = 256;
        let hits = device.upload(&[5u64]);
        device.run("pi_philox", 2, THREADS / 2, args![hits, 42u32, 20i32]);
        let points = (0..THREADS).flat_map(|id| (0..20).flat_map(move |i| philox_points(id, i, 42)));
        assert_counted(device.download(&hits)[0] - 5, points, 1e-6);

        let hits = device.zeros::<u64>(1);
        device.run("pi_xorshift", 2, THREADS / 2, args![hits, 99u64, 30i32]);
        assert_counted(device.download(&hits)[0], (0..THREADS).flat_map(xorshift_points), 1e-15);
    });
}

/// Checks a count; points so near to the circle that rounding decides may count either way.
#[track_caller]
fn assert_counted(count: u64, points: impl Iterator<Item = (f64, f64)>, margin: f64) {
    let radii: Vec<f64> = points.map(|(x, y)| x * x + y * y).collect();
    let within = |limit: f64| radii.iter().filter(|r| **r <= limit).count() as u64;
    let (least, most) = (within(1.0 - margin), within(1.0 + margin));
    assert!(least + 3 >= most, "the margin is small enough to say something");
    assert!((least..=most).contains(&count), "{count} hits, not {least} to {most}");
}

fn philox_points(id: u32, i: u32, seed: u32) -> [(f64, f64); 2] {
    let (mut c, mut k) = ([id, i, 0, 0], [seed, 0xCAFE]);
    for _ in 0..10 {
        let (a, b) = (u64::from(c[0]) * 0xD251_1F53, u64::from(c[2]) * 0xCD9E_8D57);
        c = [(b >> 32) as u32 ^ c[1] ^ k[0], b as u32, (a >> 32) as u32 ^ c[3] ^ k[1], a as u32];
        k = [k[0].wrapping_add(0x9E37_79B9), k[1].wrapping_add(0xBB67_AE85)];
    }
    // In single precision, as in the kernel.
    let scaled = |word: u32| f64::from(word as f32 * 2.328_306_4e-10);
    let shifted = |word: u32| f64::from(word >> 8) / 16_777_216.0;
    [(scaled(c[0]), scaled(c[1])), (shifted(c[2]), shifted(c[3]))]
}

fn xorshift_points(id: u32) -> impl Iterator<Item = (f64, f64)> {
    let mut s = 99u64.wrapping_add(0x9E37_79B9_7F4A_7C15u64.wrapping_mul(1 + u64::from(id)));
    (0..30).map(move |_| {
        s ^= s >> 12;
        s ^= s << 25;
        s ^= s >> 27;
        let r = s.wrapping_mul(0x2545_F491_4F6C_DD1D);
        (f64::from((r >> 32) as u32) / 4_294_967_296.0, f64::from(r as u32) / 4_294_967_296.0)
    })
}

#[test]
fn option_prices_follow_the_closed_form() {
    study("blackscholes.cu", include_str!("../../cases/study/blackscholes.cu"), |device, build| {
        const N: usize = 500;
        let spot: Vec<f32> = (0..N).map(|i| 5.0 + (i % 50) as f32 * 0.6).collect();
        let strike: Vec<f32> = (0..N).map(|i| 1.0 + (i % 73) as f32).collect();
        let years: Vec<f32> = (0..N).map(|i| 0.25 + (i % 31) as f32 * 0.3).collect();
        let (rate, volatility) = (0.02f32, 0.3f32);
        let (call, put) = (device.zeros::<f32>(N), device.zeros::<f32>(N));
        let [s, x, t] = [&spot, &strike, &years].map(|values| device.upload(values));
        device.run("blackscholes", 4, 128, args![s, x, t, call, put, rate, volatility, N as i32]);
        let prices: Vec<[f64; 2]> = (0..N)
            .map(|i| price(spot[i].into(), strike[i].into(), years[i].into(), rate.into(), volatility.into()))
            .collect();
        // Relative to spot and strike, because a price is their difference.
        let absolute = build.choose(5e-5, 5e-4);
        assert_close(&device.download(&call), &prices.iter().map(|p| p[0]).collect::<Vec<_>>(), 1e-5, absolute);
        assert_close(&device.download(&put), &prices.iter().map(|p| p[1]).collect::<Vec<_>>(), 1e-5, absolute);
    });
}

fn price(s: f64, x: f64, t: f64, r: f64, v: f64) -> [f64; 2] {
    let normal = |d: f64| 0.5 * libm::erfc(-d / 2f64.sqrt());
    let d1 = ((s / x).ln() + (r + 0.5 * v * v) * t) / (v * t.sqrt());
    let (d2, e) = (d1 - v * t.sqrt(), (-r * t).exp());
    [s * normal(d1) - x * e * normal(d2), x * e * normal(-d2) - s * normal(-d1)]
}

#[test]
fn a_mix_of_functions_is_near_to_that_of_double_precision() {
    study("blackscholes.cu", include_str!("../../cases/study/blackscholes.cu"), |device, build| {
        let x: Vec<f32> = (-150..150).map(|i| i as f32 * 0.021 + 0.007).collect();
        let out = device.zeros::<f32>(x.len());
        device.run("mathmix", 3, 128, args![device.upload(&x), out, x.len() as i32]);
        let expected: Vec<f64> = x.iter().map(|v| mix(*v)).collect();
        // Thirty terms of up to 25. `tanh.approx`, which fast math uses, alone is off by 5e-4.
        assert_close(&device.download(&out), &expected, 2e-6, build.choose(3e-5, 2e-3));
        let odd = device.upload(&[f32::NAN]);
        device.run("mathmix", 1, 32, args![odd, out, 1i32]);
        assert!(device.download(&out)[0].is_nan());
    });
}

fn mix(single: f32) -> f64 {
    let x = f64::from(single);
    let saturated = x.clamp(0.0, 1.0);
    let flipped = f64::from(f32::from_bits(single.to_bits() ^ 1));
    // Rust's `round` rounds halves away from zero, as C's does.
    (x.abs() + 1.0).powf(1.7)
        + x.tanh()
        + x.atan2(2.0)
        + (x.abs() + 1.0).log2()
        + (-x).exp2()
        + x.cbrt()
        + x.floor()
        + x.ceil()
        + x.trunc()
        + x.round()
        + x.round_ties_even()
        + x % 3.0
        + 1f64.copysign(x)
        + x / 3.0
        + x.exp()
        + (x.abs() + 1.0).ln()
        + x.sin()
        + x.cos()
        + 1.0 / x.cbrt()
        + x.sin()
        + saturated
        + x * 3.0
        + 1.0 / x
        + flipped
        + x.round_ties_even()
        + x.trunc().max(0.0)
}

#[test]
fn lanes_escape_from_the_mandelbrot_set_on_their_own() {
    study("mandelbrot.cu", include_str!("../../cases/study/mandelbrot.cu"), |device, _| {
        const W: usize = 90;
        const H: usize = 50;
        let steps = |i: usize| {
            let (cx, cy) = ((i % W) as f64 * 0.03125 - 2.0, (i / W) as f64 * 0.0625 - 1.5);
            let (mut x, mut y, mut count) = (0f64, 0f64, 0u32);
            while count < 60 && x * x + y * y < 4.0 {
                (x, y) = (x * x - y * y + cx, 2.0 * x * y + cy);
                count += 1;
            }
            count
        };
        let expected: Vec<u32> = (0..W * H).map(steps).collect();
        let agree = |got: Vec<u32>| got.iter().zip(&expected).filter(|(got, want)| got == want).count();
        let out = device.zeros::<u32>(W * H);
        let size = (W as i32, H as i32);
        device.run(
            "mandelbrot",
            [6, 7],
            [16, 8],
            args![out, size.0, size.1, -2f32, -1.5f32, 0.03125f32, 0.0625f32, 60i32],
        );
        // Near the border of the set, a rounding error in the 24th bit grows until it decides.
        assert!(agree(device.download(&out)) >= W * H * 99 / 100);
        let out = device.zeros::<u32>(W * H);
        device.run(
            "mandelbrot_f64",
            [6, 7],
            [16, 8],
            args![out, size.0, size.1, -2f64, -1.5f64, 0.03125f64, 0.0625f64, 60i32],
        );
        assert!(agree(device.download(&out)) >= W * H * 999 / 1000);
    });
}

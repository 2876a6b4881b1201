//! Compares the references with published values, and with facts that hold for every implementation.

use proptest::prelude::{any, prop_assert_eq, proptest};

use super::{
    MandelbrotView, black_scholes, convolve_2d, histogram, mandelbrot, matmul_tiled, monte_carlo_pi, nbody_step,
    philox::philox, reduce_sum, saxpy, scan_inclusive, sobel, transpose, vector_add,
};

#[test]
fn philox_returns_the_published_known_answers() {
    // The three known answers for philox4x32 with 10 rounds in the Random123 distribution.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    let pi = ([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]);
    assert_eq!(philox(pi.0, pi.1), [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]);
}

#[test]
fn monte_carlo_approximates_pi_and_is_reproducible() {
    let samples = 1_000_000;
    let pi = 4.0 * monte_carlo_pi(samples, 42) as f64 / samples as f64;
    // The error is within four standard deviations of the mean of a million points.
    assert!((pi - std::f64::consts::PI).abs() < 4.0 * 1.642e-3, "{pi}");
    assert_eq!(monte_carlo_pi(10_001, 1), monte_carlo_pi(10_001, 1));
    assert_ne!(monte_carlo_pi(10_001, 1), monte_carlo_pi(10_001, 2));
}

#[test]
fn one_more_sample_adds_at_most_one_hit() {
    let hits: Vec<u64> = (0..50).map(|samples| monte_carlo_pi(samples, 3)).collect();
    assert_eq!(hits[0], 0);
    assert!(hits.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1), "{hits:?}");
}

#[test]
fn option_prices_match_the_textbook() {
    let priced = black_scholes(&[100.0, 42.0], &[100.0, 40.0], &[1.0, 0.5], 0.05, 0.2);
    // Spot and strike 100, a year, 5 %, 20 %: 10.4506 and 5.5735 in every table.
    assert!((priced.calls[0] - 10.4506).abs() < 1e-4 && (priced.puts[0] - 5.5735).abs() < 1e-4, "{priced:?}");
    // Hull, "Options, futures and other derivatives": 42, 40, half a year, 10 %, 20 %: 4.76 and 0.81.
    let hull = black_scholes(&[42.0], &[40.0], &[0.5], 0.1, 0.2);
    assert!((hull.calls[0] - 4.76).abs() < 5e-3 && (hull.puts[0] - 0.81).abs() < 5e-3, "{hull:?}");
}

#[test]
fn a_call_less_a_put_is_the_spot_less_the_discounted_strike() {
    for (spot, strike, years) in [(5.0_f32, 150.0_f32, 0.1_f32), (150.0, 5.0, 5.0), (80.0, 81.0, 2.5)] {
        let priced = black_scholes(&[spot], &[strike], &[years], 0.03, 0.4);
        let forward = f64::from(spot) - f64::from(strike) * (-f64::from(0.03_f32) * f64::from(years)).exp();
        let difference = f64::from(priced.calls[0]) - f64::from(priced.puts[0]);
        assert!((difference - forward).abs() < 1e-4, "{difference} is not {forward}");
    }
}

#[test]
fn saxpy_rounds_once() {
    let mut y = [-1.0_f32];
    let x = 1.0 + f32::EPSILON;
    saxpy(x, &[x], &mut y);
    // (1 + e)² - 1 = 2e + e²; rounding the product first would lose e².
    assert_eq!(y, [2.0 * f32::EPSILON + f32::EPSILON * f32::EPSILON]);
    assert_eq!(vector_add(&[1.0, 2.0], &[0.5, -2.0]), [1.5, 0.0]);
}

#[test]
fn a_product_with_the_unit_matrix_and_a_product_by_hand() {
    let matrix: Vec<f32> = (0..12_u8).map(f32::from).collect();
    let unit = |n: usize| -> Vec<f32> { (0..n * n).map(|at| f32::from(u8::from(at % (n + 1) == 0))).collect() };
    assert_eq!(matmul_tiled(&unit(3), &matrix, [3, 3, 4]), matrix);
    assert_eq!(matmul_tiled(&matrix, &unit(4), [3, 4, 4]), matrix);
    assert_eq!(matmul_tiled(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0], [1, 3, 1]), [32.0]);
    assert_eq!(matmul_tiled(&[1.0, 2.0], &[3.0, 4.0], [2, 1, 2]), [3.0, 4.0, 6.0, 8.0]);
}

#[test]
fn an_impulse_convolved_with_a_filter_is_the_filter() {
    let filter = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0];
    let mut image = [0.0; 25];
    image[12] = 1.0;
    let result = convolve_2d(&image, [5, 5], &filter, [3, 3]);
    let middle: Vec<f32> = (1..4).flat_map(|y| result[y * 5 + 1..y * 5 + 4].to_vec()).collect();
    assert_eq!(middle, filter);
    assert_eq!(result.iter().sum::<f32>(), 45.0);
}

#[test]
fn a_flat_image_stays_flat_up_to_its_border() {
    let result = convolve_2d(&[2.0; 12], [3, 4], &[0.25; 15], [5, 3]);
    assert_eq!(result, [7.5; 12]);
    assert_eq!(sobel(&[77; 12], [3, 4]), [0; 12]);
}

#[test]
fn sobel_sees_an_edge_from_either_side_and_saturates() {
    let step: Vec<u8> = (0..4).flat_map(|_| [10, 10, 30, 30]).collect();
    // Four times the step of 20, on both sides of the step and in no other column.
    assert_eq!(sobel(&step, [4, 4]), [[0, 80, 80, 0]; 4].concat());
    assert_eq!(sobel(&transpose_bytes(&step, 4), [4, 4]), [[0; 4], [80; 4], [80; 4], [0; 4]].concat());
    assert_eq!(sobel(&[0, 255], [1, 2]), [255, 255]);
}

fn transpose_bytes(image: &[u8], extent: usize) -> Vec<u8> {
    (0..extent * extent).map(|at| image[at % extent * extent + at / extent]).collect()
}

#[test]
fn known_points_escape_after_the_right_number_of_iterations() {
    let at = |x: f32, y: f32| {
        let view = MandelbrotView { width: 1, height: 1, centre_x: x, centre_y: y, step: 1.0 };
        mandelbrot(view, 1000)[0]
    };
    // 0 and -1 have periodic orbits, and -2 ends in the fixed point 2.
    assert_eq!([at(0.0, 0.0), at(-1.0, 0.0), at(-2.0, 0.0)], [1000; 3]);
    // From 3, the first step leaves the circle. From 1, the third one does: 0, 1, 2, 5.
    assert_eq!([at(3.0, 0.0), at(1.0, 0.0)], [1, 3]);
}

#[test]
fn the_mandelbrot_set_is_symmetric_and_has_its_known_area() {
    let view = MandelbrotView { width: 300, height: 250, centre_x: -0.5, centre_y: 0.0, step: 0.01 };
    let picture = mandelbrot(view, 200);
    let rows: Vec<&[u32]> = picture.chunks(300).collect();
    assert!(rows.iter().zip(rows.iter().rev()).all(|(above, below)| above == below));
    let area = picture.iter().filter(|count| **count == 200).count() as f64 * 1e-4;
    // The area is 1.5066. Pixels near the border that have not escaped yet make the result a little larger.
    assert!((1.50..1.55).contains(&area), "{area}");
}

#[test]
fn bodies_without_outer_forces_keep_their_momentum() {
    let positions = [[0.0, 0.0, 0.0, 1.0], [1.0, 0.5, 0.0, 2.0], [-0.5, 1.0, 0.25, 0.5]];
    let velocities = [[0.1, 0.0, 0.0, 7.0], [0.0, -0.2, 0.0, 8.0], [0.0, 0.0, 0.3, 9.0]];
    let momentum = |velocities: &[[f32; 4]]| {
        [0, 1, 2].map(|axis| positions.iter().zip(velocities).map(|(p, v)| p[3] * v[axis]).sum::<f32>())
    };
    let (new_positions, new_velocities) = nbody_step(&positions, &velocities, 0.01, 0.1);
    for (before, after) in momentum(&velocities).into_iter().zip(momentum(&new_velocities)) {
        assert!((before - after).abs() < 1e-6, "{before} became {after}");
    }
    assert_eq!(new_positions.map_axis(3), positions.map_axis(3));
    assert_eq!(new_velocities.map_axis(3), velocities.map_axis(3));
}

trait MapAxis {
    fn map_axis(&self, axis: usize) -> Vec<f32>;
}

impl<T: AsRef<[[f32; 4]]>> MapAxis for T {
    fn map_axis(&self, axis: usize) -> Vec<f32> {
        self.as_ref().iter().map(|body| body[axis]).collect()
    }
}

#[test]
fn a_body_falls_towards_another_by_newtons_law() {
    let positions = [[0.0, 0.0, 0.0, 0.0], [2.0, 0.0, 0.0, 8.0]];
    let (new_positions, new_velocities) = nbody_step(&positions, &[[0.0; 4]; 2], 0.5, 0.0001);
    // Mass over distance squared is 2. In half a time unit that gives a velocity of 1 and a distance of 0.5.
    assert!((new_velocities[0][0] - 1.0).abs() < 1e-6 && (new_positions[0][0] - 0.5).abs() < 1e-6);
    assert_eq!((new_positions[1], new_velocities[1]), (positions[1], [0.0; 4]));
}

proptest! {
    #[test]
    fn a_scan_has_the_sum_of_every_prefix(values: Vec<u32>) {
        let sums = scan_inclusive(&values);
        let naive: Vec<u32> = (1..=values.len())
            .map(|end| values[..end].iter().map(|value| u64::from(*value)).sum::<u64>() as u32)
            .collect();
        prop_assert_eq!(sums, naive);
    }

    #[test]
    fn a_histogram_counts_everything_once(data: Vec<u8>, probe in any::<u8>()) {
        let bins = histogram(&data);
        prop_assert_eq!(bins.iter().sum::<u32>() as usize, data.len());
        prop_assert_eq!(bins[usize::from(probe)] as usize, data.iter().filter(|value| **value == probe).count());
    }

    #[test]
    fn transposing_twice_changes_nothing(rows in 1_usize..20, columns in 1_usize..20) {
        let matrix: Vec<f32> = (0..rows * columns).map(|at| at as f32).collect();
        let turned = transpose(&matrix, [rows, columns]);
        prop_assert_eq!(turned[rows * columns - 1], matrix[rows * columns - 1]);
        prop_assert_eq!(transpose(&turned, [columns, rows]), matrix);
    }

    #[test]
    fn whole_numbers_are_summed_exactly(values in proptest::collection::vec(-1000_i16..1000, 0..500)) {
        let floats: Vec<f32> = values.iter().map(|value| f32::from(*value)).collect();
        prop_assert_eq!(reduce_sum(&floats), values.iter().map(|value| i32::from(*value)).sum::<i32>() as f32);
    }
}

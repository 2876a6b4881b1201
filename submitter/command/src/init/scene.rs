//! A picture to find edges in: an evening by a mountain lake, painted by arithmetic.

/// Red, green and blue, each from 0 to 1.
#[derive(Debug, Clone, Copy)]
struct Colour(f32, f32, f32);

/// Where the water begins, as a part of the height.
const SHORE: f32 = 0.62;
const SUN: (f32, f32) = (0.74, 0.19);
const SUN_RADIUS: f32 = 0.05;
const GOLD: Colour = Colour(1.0, 0.72, 0.35);
const DUSK: Colour = Colour(0.16, 0.22, 0.42);
/// Each ridge: height above the shore, roughness, where its noise starts, how far away it is.
const RIDGES: [(f32, f32, f32, f32); 3] = [(0.30, 3.0, 11.0, 0.75), (0.20, 5.0, 47.0, 0.45), (0.10, 9.0, 83.0, 0.15)];

/// Three bytes a pixel, the top row first. The same every time.
pub fn render(width: u32, height: u32) -> Vec<u8> {
    let aspect = width as f32 / height as f32;
    let pixel = |x: u32, y: u32| {
        let (u, v) = (x as f32 / width as f32, y as f32 / height as f32);
        let grain = (noise(x as f32 * 7.3, y as f32 * 5.1) - 0.5) * 0.03;
        let away = ((u - 0.5).powi(2) + (v - 0.5).powi(2)) * 0.5;
        let Colour(red, green, blue) = view(u, v, aspect);
        [red, green, blue].map(|part| ((part * (1.0 - away) + grain).clamp(0.0, 1.0) * 255.0) as u8)
    };
    (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect()
}

fn view(u: f32, v: f32, aspect: f32) -> Colour {
    if let Some(colour) = boat(u * aspect, v, aspect) {
        return colour;
    }
    if v < SHORE {
        return above_water(u, v, aspect);
    }
    // The lake mirrors what is above it, and its ripples grow towards us.
    let depth = (v - SHORE) / (1.0 - SHORE);
    let ripple = (smooth_noise(u * 30.0, v * 220.0) - 0.5) * 0.05 * (0.3 + depth);
    let mirrored = above_water(u + ripple, SHORE - (v - SHORE) * 0.9 - ripple.abs(), aspect);
    mix(mirrored, Colour(0.05, 0.14, 0.22), 0.35 + 0.35 * depth)
}

fn above_water(u: f32, v: f32, aspect: f32) -> Colour {
    for (height, roughness, start, distance) in RIDGES.into_iter().rev() {
        let top = SHORE - height * (0.45 + 0.9 * fractal_noise(u * roughness + start, start));
        if v > top {
            let snow = distance > 0.5 && v < top + 0.05 * fractal_noise(u * 40.0, 3.0);
            let rock = Colour(0.10, 0.13, 0.16);
            let rough = (fractal_noise(u * 90.0, v * 90.0 + start) - 0.5) * 0.10;
            let colour =
                if snow { Colour(0.92, 0.90, 0.95) } else { Colour(rock.0 + rough, rock.1 + rough, rock.2 + rough) };
            return mix(colour, haze(v), distance * if snow { 0.2 } else { 0.7 });
        }
    }
    sky(u, v, aspect)
}

fn sky(u: f32, v: f32, aspect: f32) -> Colour {
    let distance = (((u - SUN.0) * aspect).powi(2) + (v - SUN.1).powi(2)).sqrt();
    if distance < SUN_RADIUS {
        return Colour(1.0, 0.96, 0.82);
    }
    let glow = (-6.0 * (distance - SUN_RADIUS)).exp() * 0.6;
    let cloud = ((fractal_noise(u * 4.0 + 5.0, v * 14.0) - 0.55) * 3.0).clamp(0.0, 0.6);
    mix(mix(haze(v), Colour(1.0, 0.85, 0.6), glow), Colour(0.95, 0.75, 0.68), cloud)
}

/// The air at that height, dusky above and golden below.
fn haze(v: f32) -> Colour {
    mix(DUSK, GOLD, (v / SHORE).clamp(0.0, 1.0).powf(1.6))
}

/// A sailing boat: a hull, two sails, a mast.
fn boat(x: f32, v: f32, aspect: f32) -> Option<Colour> {
    let (x, y) = (x - 0.27 * aspect, v - 0.74);
    let within = |from: f32, to: f32| x > from && x < to;
    if (0.0..0.028).contains(&y) && within(-0.10 + y, 0.11 - 2.0 * y) {
        return Some(Colour(0.45, 0.16, 0.12));
    }
    let up = -y / 0.26;
    if (0.0..1.0).contains(&up) {
        if within(-0.003, 0.003) {
            return Some(Colour(0.25, 0.18, 0.12));
        }
        if within(0.003, 0.10 * (1.0 - up)) {
            return Some(Colour(0.97, 0.94, 0.86));
        }
        if within(-0.07 * (1.0 - up * 1.15), -0.003) {
            return Some(Colour(0.86, 0.82, 0.76));
        }
    }
    None
}

fn mix(from: Colour, to: Colour, part: f32) -> Colour {
    let blend = |a: f32, b: f32| a + (b - a) * part;
    Colour(blend(from.0, to.0), blend(from.1, to.1), blend(from.2, to.2))
}

/// Several octaves of smooth noise, from 0 to 1.
fn fractal_noise(x: f32, y: f32) -> f32 {
    let octave = |n: i32| smooth_noise(x * 2.0_f32.powi(n), y * 2.0_f32.powi(n)) * 0.5_f32.powi(n + 1);
    (0..4).map(octave).sum()
}

/// Noise between the whole numbers, blended from theirs.
fn smooth_noise(x: f32, y: f32) -> f32 {
    let (left, top) = (x.floor(), y.floor());
    let ease = |t: f32| t * t * (3.0 - 2.0 * t);
    let (across, down) = (ease(x - left), ease(y - top));
    let row = |y: f32| noise(left, y) * (1.0 - across) + noise(left + 1.0, y) * across;
    row(top) * (1.0 - down) + row(top + 1.0) * down
}

/// A number from 0 to 1 that looks random and depends on the place alone.
fn noise(x: f32, y: f32) -> f32 {
    let mut hash = (x.floor() as i32).cast_unsigned().wrapping_mul(0x9E37_79B1)
        ^ (y.floor() as i32).cast_unsigned().wrapping_mul(0x85EB_CA77);
    hash = (hash ^ (hash >> 15)).wrapping_mul(0x2C1B_3C6D);
    hash = (hash ^ (hash >> 12)).wrapping_mul(0x297A_2D39);
    ((hash ^ (hash >> 15)) & 0xFFFF) as f32 / 65_535.0
}

//! Atomics of every width, scope and memory order.

use half::{bf16, f16};

use super::builds::{HEAVY, check};
use super::device::{Device, args};

#[test]
fn atomics_of_every_width_and_scope_add_up() {
    check("atomics.cu", include_str!("../../cases/study/atomics.cu"), &HEAVY, |device, build| {
        narrow(device);
        scoped(device);
        ordered(device);
        references(device);
        if build.capability.major >= 9 {
            wide(device);
        }
    });
}

fn narrow(device: &Device) {
    let (counter, won) = (device.upload(&[65_500u16, 0]), device.zeros::<u16>(2));
    let (h, b) = (device.zeros::<f16>(2), device.zeros::<bf16>(2));
    let (h2, b2) = (device.zeros::<f16>(2), device.zeros::<bf16>(2));
    device.run("narrow", 1, 32, args![counter, won, h, b, h2, b2]);
    let (counter, won) = (device.download(&counter), device.download(&won));
    assert_eq!((counter[0], won[1]), (65_500u16.wrapping_add(96), 0));
    assert!((1..=32).contains(&won[0]) && counter[1] == won[0]);
    assert_eq!(device.download(&h), [16.0, 0.0].map(f16::from_f32));
    assert_eq!(device.download(&b), [32.0, 0.0].map(bf16::from_f32));
    assert_eq!(device.download(&h2), [32.0, 8.0].map(f16::from_f32));
    assert_eq!(device.download(&b2), [32.0, -16.0].map(bf16::from_f32));
}

fn scoped(device: &Device) {
    let (block, system, d) = (device.zeros::<i32>(1), device.upload(&[5i32]), device.zeros::<f64>(1));
    let wide = device.upload(&[9, u64::MAX, 0, 5000, 0, 0, -1000i64 as u64]);
    device.run("scoped", 3, 64, args![block, system, wide, d]);
    assert_eq!(device.download(&block), [192]);
    assert_eq!(device.download(&system), [5 + 3 * 128]);
    assert_eq!(device.download(&d), [48.0]);
    let most = 9 ^ 63 << 40;
    assert_eq!(device.download(&wide), [most, 0, u64::MAX, 937, 77, -63i64 as u64, -37i64 as u64]);
}

fn ordered(device: &Device) {
    let (data, flags) = (device.upload(&[1, 0, 0, 0, 0, 0, 0i32]), device.upload(&[1, 0, 0, 0, 0, 0, 0i32]));
    device.run("ordered", 6, 32, args![data, flags, 6i32]);
    assert_eq!(device.download(&data), [1, 3, 7, 15, 31, 63, 127]);
}

fn references(device: &Device) {
    let (bytes, shorts) = (device.upload(&[1u8, 200, 3, 4]), device.upload(&[1i16, -32_700]));
    let (words, f) = (device.upload(&[0x1234u32, 0, 7]), device.zeros::<f32>(1));
    device.run("references", 1, 96, args![bytes, shorts, words, f]);
    assert_eq!(device.download(&bytes), [1, 200u8.wrapping_add(96), 3, 4]);
    assert_eq!(device.download(&shorts), [1, (-32_700i16).wrapping_sub(192)]);
    assert_eq!(device.download(&words), [!0x1234, u32::MAX, 100]);
    assert_eq!(device.download(&f), [48.0]);
}

fn wide(device: &Device) {
    let pairs = device.upload(&[0u128, 0x77 << 64 | 0x99, 0]);
    let (v2, v4) = (device.zeros::<f32>(2), device.zeros::<f32>(4));
    device.run("wide", 1, 64, args![pairs, v2, v4]);
    assert_eq!(device.download(&pairs), [128 << 64 | 64, 6 << 64 | 5, 0x77 << 64 | 0x99]);
    assert_eq!(device.download(&v2), [64.0, 128.0]);
    assert_eq!(device.download(&v4), [64.0, 128.0, 192.0, 256.0]);
}

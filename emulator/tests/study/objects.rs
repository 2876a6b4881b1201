//! C++ features other than functions: heap objects, virtual calls, layouts, jumps, tables, formats.

use super::builds::study;
use super::device::args;

const OBJECTS: &str = include_str!("../../cases/study/objects.cu");

#[test]
fn objects_live_on_the_heap() {
    study("objects.cu", OBJECTS, |device, _| {
        let kinds: Vec<i32> = (0..70).map(|i| i * 3 % 17).collect();
        let out = device.zeros::<f32>(70);
        device.run("virtuals", 2, 64, args![device.upload(&kinds), out, 70i32]);
        let area = |k: &i32| if k & 1 == 1 { 2 * k + 4000 } else { 3 * k * k } as f32;
        assert_eq!(device.download(&out), kinds.iter().map(area).collect::<Vec<_>>());

        let out = device.zeros::<i32>(32);
        device.run("lists", 1, 32, args![out, 12i32]);
        let sum = |t: i32| (0..12).rev().fold(0i32, |sum, i| sum.wrapping_mul(3).wrapping_add(i * t));
        assert_eq!(device.download(&out), (0..32).map(sum).collect::<Vec<_>>());
    });
}

#[test]
fn unions_and_bit_fields_are_laid_out_as_on_the_host() {
    study("objects.cu", OBJECTS, |device, _| {
        let values: Vec<u32> = (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
        let out = device.zeros::<u32>(256);
        device.run("layouts", 1, 64, args![device.upload(&values), out]);
        for (t, (got, v)) in device.download(&out).chunks(4).zip(values).enumerate() {
            let fields = (v & 7).wrapping_add((v >> 3 & 0x7ff) * 8).wrapping_add(((v as i32) << 25 >> 25) as u32);
            let wide = ((u64::from(v) << 20 & ((1 << 40) - 1)) >> 16) as u32;
            let [x, y, z] = [[v, 2, 3], [2, 3, v], [3, v, 2]][t % 3];
            let triple = x.wrapping_add(y.wrapping_mul(100)).wrapping_add(z.wrapping_mul(10_000));
            assert_eq!(got, [v ^ 0x5a00, fields, wide, triple], "of {v:#x}");
        }
    });
}

#[test]
fn switches_tables_of_functions_and_jumps_go_where_they_should() {
    study("objects.cu", OBJECTS, |device, _| {
        let values: Vec<i32> = (0..64)
            .map(|i| if i < 32 { i * 2 / 3 - 2 } else { [100, 1000, 37, 5000][i as usize % 4] + i % 3 })
            .collect();
        let (out, count) = (device.zeros::<i32>(64), device.zeros::<i32>(1));
        device.run("jumps", 1, 64, args![device.upload(&values), out, 64i32]);
        assert_eq!(device.download(&out), values.iter().map(|v| jumps(*v)).collect::<Vec<_>>());
        device.run("counted", 1, 1, args![count]);
        assert_eq!(device.download(&count), [164]);

        let text: Vec<u8> = (0..50).map(|i| (i * 29 + 7) as u8).collect();
        let out = device.zeros::<u32>(32);
        device.run("checksums", 1, 32, args![device.upload(&text), out, 50i32]);
        assert_eq!(device.download(&out), (0..32).map(|t| crc(&text[t..])).collect::<Vec<_>>());
    });
}

fn jumps(v: i32) -> i32 {
    let mut r = match v {
        0 => 5,
        1 => -7,
        2 => 11,
        3 => 13 * v,
        4 => v << 9,
        5 => !v,
        6 => v % 4,
        7 => 77,
        8 => 1 - v,
        9 => v * v,
        10 => 1010,
        11 => 3,
        12 => -12,
        100 => 1,
        1000 => 2,
        _ => v / 2,
    };
    let mut turns = 0;
    loop {
        r = match (r + turns) as u32 % 3 {
            0 => r + 1,
            1 => r * 2,
            _ => r ^ 21,
        };
        turns += 1;
        if turns >= v & 7 {
            break;
        }
    }
    let captured = f64::from(r);
    loop {
        r -= 3;
        turns += if r & 8 == 0 { 2 } else { 0 };
        if r <= 50 {
            return (captured + f64::from(turns)) as i32 + (captured + 0.5) as i32;
        }
    }
}

fn crc(text: &[u8]) -> u32 {
    !text.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

#[test]
fn every_conversion_of_printf_is_that_of_c() {
    study("objects.cu", OBJECTS, |device, _| {
        device.run("formats", 1, 1, args![1234.5678f64]);
        let expected = "-42|   42|42   |00042|+42|4000000000|beef|BEEF|0xff|10|z|text|%\n\
            1234.567800|1234.57|  1234.568|1234.6    |1.234568e+03|1234.57|1E-10|-5000000000|18446744073709551615|10000000000|-3\n   \
            ab|ab   |ab|     7\n";
        assert_eq!(device.take_printed(), expected);
    });
}

#[test]
fn built_in_functions_work_on_local_memory() {
    study("objects.cu", OBJECTS, |device, _| {
        let values: Vec<u32> = (0..64u32).map(|i| i.wrapping_mul(0x0137_79b9) >> (i % 31)).collect();
        let out = device.zeros::<u32>(256);
        device.run("builtins", 1, 64, args![device.upload(&values), out]);
        for (got, v) in device.download(&out).chunks(4).zip(values) {
            let mut bytes = [v as u8; 24];
            bytes[16..].fill(7);
            bytes[12..22].fill(v as u8);
            bytes[5] = (v >> 8) as u8;
            let sum = bytes.iter().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(u32::from(*byte)));
            let found = if v == 0 { 0 } else { v.trailing_zeros() + 1 };
            let bits = v.count_ones() + 100 * v.leading_zeros() + 10_000 * found;
            assert_eq!(got, [sum, bits, v.swap_bytes(), v.saturating_sub(9)], "of {v:#x}");
        }
    });
}

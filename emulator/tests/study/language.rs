//! Language features other than arithmetic: calls, recursion, function pointers, structures, printing.

use super::builds::study;
use super::device::args;

#[test]
fn threads_print_in_the_format_of_c() {
    study("printf.cu", include_str!("../../cases/study/printf.cu"), |device, _| {
        let x = device.upload(&[0.5f32, -1.25, 1e9, 0.0, 3.0]);
        device.run("hello", 2, 4, args![x, 5i32]);
        let printed = device.take_printed();
        let mut lines: Vec<&str> = printed.lines().collect();
        lines.sort_unstable();
        let expected = [
            "thread 0 of block 0: x=0.500000 ok",
            "thread 0 of block 1: x=3.000000 ok",
            "thread 1 of block 0: x=-1.250000 ok",
            "thread 2 of block 0: x=1000000000.000000 ok",
            "thread 3 of block 0: x=0.000000 ok",
        ];
        assert_eq!(lines, expected);
    });
}

#[test]
fn functions_are_called_by_name_by_pointer_and_by_themselves() {
    study("calls.cu", include_str!("../../cases/study/calls.cu"), |device, _| {
        // struct { float a; int n; double s; unsigned char tag; float3 v; }
        let mut params = Vec::new();
        params.extend(1.5f32.to_le_bytes());
        params.extend(40i32.to_le_bytes());
        params.extend(2.25f64.to_le_bytes());
        params.extend([200, 0, 0, 0]);
        [9f32, 0.5, 9.0].iter().for_each(|v| params.extend(v.to_le_bytes()));
        let out = device.upload(&[-1f32; 64]);
        device.run("struct_args", 2, 32, args![params[..], out]);
        // Few bits, so nothing is rounded, whether operations are fused or not.
        let poly = |x: f32, c: f32| ((x + c) * x + 3.0) * x - c;
        let expected = |i: u32| if i < 40 { poly(1.5 * i as f32, 0.5) + 2.25 + 200.0 } else { -1.0 };
        assert_eq!(device.download(&out), (0..64).map(expected).collect::<Vec<_>>());

        fn fibonacci(n: i32) -> i32 {
            if n < 2 { n } else { fibonacci(n - 1) + fibonacci(n - 2) }
        }
        let out = device.upload(&[-1; 32]);
        device.run("recursion", 1, 32, args![out, 17i32]);
        let expected = |i| if i < 17 { fibonacci(i) } else { -1 };
        assert_eq!(device.download(&out), (0..32).map(expected).collect::<Vec<_>>());

        for (which, expected) in [(0, 5.0), (1, 6.0)] {
            let out = device.upload(&[3f32; 32]);
            device.run("fnptr", 1, 32, args![out, which]);
            assert_eq!(device.download(&out), [expected; 32]);
        }

        let out = device.zeros::<i32>(48);
        device.run("local_array", 1, 48, args![out, 37i32, 5i32]);
        assert_eq!(device.download(&out), (0..48).map(|t| local_array(t, 37, 5)).collect::<Vec<_>>());

        let values: Vec<i32> = (-50..50).map(|i| i * 12_345).collect();
        let out = device.zeros::<i32>(100);
        device.run("switcher", 4, 32, args![device.upload(&values), out, 100i32]);
        assert_eq!(device.download(&out), values.iter().map(|v| switch(*v, 100)).collect::<Vec<_>>());
    });
}

fn local_array(thread: i32, n: i32, k: i32) -> i32 {
    let mut values: Vec<i32> = (0..16).map(|i| (i * 7 + thread) & 15).collect();
    for i in 0..n {
        let j = values[((k + i) & 15) as usize];
        values[((j + i) & 15) as usize] ^= j;
    }
    values[(k & 15) as usize]
}

fn switch(v: i32, n: i32) -> i32 {
    match v & 7 {
        0 => v * 3,
        1 => v + n,
        2 => v ^ 0x55,
        3 => v >> 2,
        4 => v.count_ones() as i32,
        5 => v / (n + 1),
        6 => -v,
        _ => v % (n + 3),
    }
}

//! Functions: recursion, pointers, arguments, local memory, printing.

use super::harness::{Arg, Device};

#[test]
fn functions_that_call_themselves_return_to_the_right_place() {
    let device = Device::programs();
    let out = device.upload(&[0i32; 64]);
    device.launch("recursion", [1; 3], [64, 1, 1], &[Arg::U64(out)]).unwrap();
    let numbers = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89];
    let expected: Vec<i32> = (0..64).map(|i| numbers[i % 12]).collect();
    assert_eq!(device.download::<i32>(out, 64), expected);
}

#[test]
fn each_lane_calls_the_function_that_it_points_to() {
    let device = Device::programs();
    let out = device.upload(&[0i32; 64]);
    device.launch("pointers", [1; 3], [64, 1, 1], &[Arg::U64(out)]).unwrap();
    let expected: Vec<i32> = (0..64).map(|i| [i + 10, i * 10, i - 10][i as usize % 3]).collect();
    assert_eq!(device.download::<i32>(out, 64), expected);
}

#[test]
fn a_structure_arrives_field_by_field() {
    let device = Device::programs();
    let out = device.upload(&[0f64; 40]);
    let mut params = vec![0u8; 40];
    params[0] = 3;
    params[2..4].copy_from_slice(&(-200i16).to_le_bytes());
    params[8..16].copy_from_slice(&1.25f64.to_le_bytes());
    params[24..28].copy_from_slice(&77i32.to_le_bytes());
    params[32..40].copy_from_slice(&out.to_le_bytes());
    assert_eq!(device.module.entry("options").unwrap().params_bytes, 40);
    device.launch_bytes("options", [1; 3], [40, 1, 1], 0, &params).unwrap();
    let expected: Vec<f64> = (0..40).map(|i| 1.25 * f64::from(i) - 200.0 + 3.0 + 77.0).collect();
    assert_eq!(device.download::<f64>(out, 40), expected);
}

#[test]
fn every_thread_has_local_memory_of_its_own() {
    let device = Device::programs();
    let out = device.upload(&[0i32; 70]);
    device.launch("scratch", [1; 3], [70, 1, 1], &[Arg::U64(out), Arg::I32(3)]).unwrap();
    let expected: Vec<i32> = (0..70)
        .map(|thread: i32| {
            let mut table: Vec<i32> = (0..16).map(|i| i * i + thread).collect();
            for i in 0..32 {
                let j = table[(3 + i) & 15] & 15;
                table[j as usize] = table[j as usize].wrapping_add(table[(j as usize + i) & 15]);
            }
            table[(3 + thread as usize) & 15]
        })
        .collect();
    assert_eq!(device.download::<i32>(out, 70), expected);
}

#[test]
fn kernels_print_what_they_are_told() {
    let device = Device::programs();
    device.launch("greet", [1; 3], [32, 1, 1], &[Arg::I32(2)]).unwrap();
    let expected = "thread 0 of block 0: 0.00 ok\nthread 1 of block 0: 0.50 ok\n";
    assert_eq!(*device.printed.lock().unwrap(), expected);
}

#[test]
fn variables_start_with_their_values_and_keep_them_between_launches() {
    let device = Device::programs();
    let out = device.upload(&[0f32; 8]);
    for _ in 0..2 {
        device.launch("constants", [1; 3], [8, 1, 1], &[Arg::U64(out)]).unwrap();
    }
    assert_eq!(device.download::<f32>(out, 8), [0.5, 1.5, -2.0, 4.0, 0.5, 1.5, -2.0, 4.0]);
    let (address, bytes) = device.module.global("calls").unwrap();
    assert_eq!((bytes, device.download::<i32>(address, 1)), (4, vec![9]));
}

#[test]
fn endless_recursion_is_a_stack_overflow() {
    let text = ".version 7.8\n.target sm_80\n.address_size 64\n\
        .func deeper(.param .b32 n) {\n.reg .b32 %r<3>;\nld.param.u32 %r0, [n];\nadd.u32 %r1, %r0, 1;\n\
        {\n.param .b32 a;\nst.param.b32 [a], %r1;\ncall.uni deeper, (a);\n}\nret;\n}\n\
        .visible .entry kernel() {\n{\n.param .b32 a;\nst.param.b32 [a], 0;\ncall.uni deeper, (a);\n}\nret;\n}\n";
    let fault = Device::new(text).launch("kernel", [1; 3], [1; 3], &[]).unwrap_err();
    assert!(fault.report.contains("stack overflow"), "{}", fault.report);
    assert!(fault.report.contains("function `deeper`"), "{}", fault.report);
    assert!(fault.report.contains("a thread's stack has 1024 bytes"), "{}", fault.report);
}

#[test]
fn recursion_ends_by_the_bytes_of_the_stack() {
    // Each call has 208 bytes of its own.
    let text = ".version 7.8\n.target sm_80\n.address_size 64\n\
        .func deeper(.param .b32 n) {\n.local .align 16 .b8 l[208];\n.reg .pred %p;\n.reg .b32 %r<3>;\n\
        ld.param.u32 %r0, [n];\nst.local.u32 [l], %r0;\nsetp.eq.u32 %p, %r0, 0;\n@%p ret;\nsub.u32 %r1, %r0, 1;\n\
        {\n.param .b32 a;\nst.param.b32 [a], %r1;\ncall.uni deeper, (a);\n}\nret;\n}\n\
        .visible .entry kernel(.param .u32 n) {\n.reg .b32 %r;\nld.param.u32 %r, [n];\n\
        {\n.param .b32 a;\nst.param.b32 [a], %r;\ncall.uni deeper, (a);\n}\nret;\n}\n";
    let mut device = Device::new(text);
    let deep = |device: &Device, calls: u32| device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U32(calls)]);
    deep(&device, 4).unwrap();
    let fault = deep(&device, 6).unwrap_err();
    assert!(fault.report.contains("stack overflow at a depth of 6 calls"), "{}", fault.report);
    device.limits.stack_bytes = 64 << 10;
    deep(&device, 250).unwrap();
}

#[test]
fn what_a_kernel_does_not_free_stays_taken() {
    let malloc = "{\n.param .b64 n;\nst.param.b64 [n], 3000000;\n.param .b64 r;\ncall.uni (r), malloc, (n);\n\
                  ld.param.b64 %d1, [r];\n}\nst.global.u64 [%d0], %d1;";
    let device = Device::new(&heap_kernel(malloc));
    let out = device.upload(&[0u64]);
    let address = || {
        device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
        device.download::<u64>(out, 1)[0]
    };
    // Two of three million bytes fit into the heap of 8 MiB.
    let addresses = [address(), address(), address()];
    assert!(addresses[0] != 0 && addresses[1] != 0 && addresses[2] == 0, "{addresses:x?}");
    device.memory.clear_heap();
    assert_ne!(address(), 0);
}

#[test]
fn every_thread_may_allocate_and_free_until_the_heap_is_used_up() {
    let text = |bytes: u64| {
        format!(
            ".version 7.8\n.target sm_80\n.address_size 64\n\
             .extern .func (.param .b64 r) malloc(.param .b64 n);\n.extern .func free(.param .b64 a);\n\
             .visible .entry kernel(.param .u64 out) {{\n.reg .pred %p<2>;\n.reg .b64 %d<5>;\n.reg .b32 %r<3>;\n\
             ld.param.u64 %d0, [out];\nmov.u32 %r0, %tid.x;\nmad.wide.u32 %d1, %r0, 4, %d0;\n\
             {{\n.param .b64 n;\nst.param.b64 [n], {bytes};\n.param .b64 r;\ncall.uni (r), malloc, (n);\n\
             ld.param.b64 %d2, [r];\n}}\nsetp.eq.u64 %p0, %d2, 0;\n@%p0 ret;\n\
             st.u32 [%d2+{last}], %r0;\nbar.warp.sync -1;\nld.u32 %r1, [%d2+{last}];\nadd.u32 %r1, %r1, 1;\n\
             st.global.u32 [%d1], %r1;\n\
             {{\n.param .b64 a;\nst.param.b64 [a], %d2;\ncall.uni free, (a);\n}}\nret;\n}}\n",
            last = bytes - 4,
        )
    };
    let device = Device::new(&text(64));
    let out = device.upload(&[0u32; 64]);
    let before = device.memory.info();
    device.launch("kernel", [1; 3], [64, 1, 1], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 64), (1..=64).collect::<Vec<_>>());
    assert_eq!(device.memory.info(), before);
    // The heap of 8 MiB has room for two allocations of three million bytes; `malloc` returns null to the other lanes.
    let device = Device::new(&text(3_000_000));
    let out = device.upload(&[0u32; 32]);
    device.launch("kernel", [1; 3], [32, 1, 1], &[Arg::U64(out)]).unwrap();
    let got = device.download::<u32>(out, 32);
    assert_eq!((&got[..2], got[2..].iter().sum::<u32>()), (&[1, 2][..], 0));
}

/// Returns a kernel of one thread that calls heap functions.
fn heap_kernel(body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n.extern .func (.param .b64 r) malloc(.param .b64 n);\n\
         .extern .func free(.param .b64 a);\n.visible .entry kernel(.param .u64 out) {{\n.reg .pred %p<2>;\n\
         .reg .b64 %d<5>;\n.reg .b32 %r<3>;\nld.param.u64 %d0, [out];\n{body}\nret;\n}}\n"
    )
}

const FREE: &str = "{\n.param .b64 a;\nst.param.b64 [a], %d1;\ncall.uni free, (a);\n}";

#[test]
fn freed_memory_returns_to_the_heap() {
    let malloc = "{\n.param .b64 n;\nst.param.b64 [n], 1024;\n.param .b64 r;\ncall.uni (r), malloc, (n);\n\
                  ld.param.b64 %d1, [r];\n}";
    let body = format!(
        "mov.u32 %r0, 0;\nAGAIN:\n{malloc}\nsetp.eq.u64 %p0, %d1, 0;\n@%p0 bra END;\nst.global.u32 [%d1], %r0;\n\
         {FREE}\nadd.u32 %r0, %r0, 1;\nsetp.lt.u32 %p0, %r0, 10000;\n@%p0 bra AGAIN;\nEND:\nst.global.u32 [%d0], %r0;"
    );
    let device = Device::new(&heap_kernel(&body));
    let out = device.upload(&[0u32]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [10_000]);
}

#[test]
fn a_kernel_frees_only_what_malloc_returned() {
    let device = Device::new(&heap_kernel(&format!("mov.u64 %d1, %d0;\n{FREE}")));
    let out = device.upload(&[7u32]);
    let fault = device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap_err();
    assert!(fault.report.contains("which `malloc` did not return"), "{}", fault.report);
    assert_eq!(device.download::<u32>(out, 1), [7]);
}

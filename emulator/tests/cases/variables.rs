//! Variables: initial values of every kind, external and shared variables, and aliases.

use gpufleet_emulator::module::LoadErrorKind;

use super::harness::{Arg, Device, kernel};

/// Returns the bytes of a variable with this declaration.
fn bytes(declaration: &str, name: &str) -> Vec<u8> {
    let device = Device::new(&format!(".version 8.0\n.target sm_80\n.address_size 64\n{declaration}\n"));
    let (address, bytes) = device.module.global(name).unwrap();
    device.download(address, bytes as usize)
}

fn words(declaration: &str) -> Vec<u32> {
    let bytes = bytes(&format!(".global .align 16 {declaration};"), "v");
    bytes.chunks(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

#[test]
fn rows_that_are_too_short_leave_zeros_behind() {
    // The second is an example of the PTX ISA.
    assert_eq!(words(".u32 v[4] = {1, 2}"), [1, 2, 0, 0]);
    assert_eq!(words(".s32 v[3][2] = {{1, 2}, {3}}"), [1, 2, 3, 0, 0, 0]);
    assert_eq!(words(".s32 v[][2] = {{1}, {2}, {3}}"), [1, 0, 2, 0, 3, 0]);
    assert_eq!(words(".u32 v[2][2][2] = {{{1}, {2, 3}}, {{4}}}"), [1, 0, 2, 3, 4, 0, 0, 0]);
    assert_eq!(words(".u32 v[2][3] = {1, 2, 3, 4}"), [1, 2, 3, 4, 0, 0]);
    assert_eq!(words(".v2 .u32 v[2] = {{1}, {2, 3}}"), [1, 0, 2, 3]);
    assert_eq!(words(".s32 v[2] = {-1, -2147483648}"), [u32::MAX, 1 << 31]);
    assert_eq!(words(".f32 v[3] = {0f3F800000, -0.5, 2}"), [1f32.to_bits(), (-0.5f32).to_bits(), 2f32.to_bits()]);
    assert_eq!(words(".u32 v = 7"), [7]);
}

#[test]
fn addresses_are_written_whole_and_byte_by_byte() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.func f() {\nret;\n}\n.global .u32 a[4];\n\
        .global .u64 p[4] = {a, generic(a)+8, a+4, f};\n\
        .global .align 8 .b8 q[11] = {1, 0xFF(generic(a)+4), 0xFF00(generic(a)+4), 0xFF0000(generic(a)+4), \
        0xFF000000(generic(a)+4), 0xFF00000000(generic(a)+4), 0xFF0000000000(generic(a)+4), \
        0xFF000000000000(generic(a)+4), 0xFF00000000000000(generic(a)+4), 0xFF(131187), 0xFF00(131187)};\n";
    let device = Device::new(text);
    let at = |name: &str| device.module.global(name).unwrap().0;
    let a = at("a");
    let p = device.download::<u64>(at("p"), 4);
    assert_eq!(p[..3], [a, a + 8, a + 4]);
    assert_ne!(p[3], 0);
    let q = device.download::<u8>(at("q"), 11);
    assert_eq!((q[0], u64::from_le_bytes(q[1..9].try_into().unwrap())), (1, a + 4));
    assert_eq!(q[9..], [131_187u32.to_le_bytes()[0], 131_187u32.to_le_bytes()[1]]);
}

#[test]
fn initial_values_that_fit_nothing_are_refused() {
    for declaration in [
        ".u32 v[2] = {1, 2, 3}",
        ".u32 v[2][2] = {{1, 2, 3}}",
        ".u64 v = nowhere",
        ".u32 v = generic(v)",
        ".b8 v = 0xF0(v)",
        ".b8 v = 0x0(v)",
        ".u32 v[2][100000000] = {{1}, {2}}",
    ] {
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n.global {declaration};\n");
        assert_eq!(Device::try_new(&text).unwrap_err().line, 4, "{declaration}");
    }
}

#[test]
fn all_external_shared_variables_begin_where_the_dynamic_memory_does() {
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 4 .b8 open[];\n\
                .extern .shared .align 4 .b8 sized[64];\n";
    let body = "mov.u32 %r1, open;\nmov.u32 %r2, sized;\nsub.u32 %r3, %r2, %r1;\nst.global.u32 [%d1], %r3;\n\
                st.shared.u32 [%r2+200], 5;";
    let text = kernel(body).replace(".version 7.8\n.target sm_80\n.address_size 64\n", head);
    let device = Device::new(&text);
    let out = device.upload(&[9u32]);
    let params = device.params("kernel", &[Arg::U64(out)]);
    device.launch_bytes("kernel", [1; 3], [1; 3], 204, &params).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [0]);
    assert!(device.launch_bytes("kernel", [1; 3], [1; 3], 200, &params).is_err());
}

#[test]
fn an_alias_is_the_function_that_it_stands_for() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .func (.param .b32 r) five();\n\
        .func (.param .b32 r) number() {\n.reg .b32 %r<2>;\nmov.u32 %r1, 5;\nst.param.b32 [r], %r1;\nret;\n}\n\
        .alias five, number;\n.visible .entry kernel(.param .u64 out) .explicitcluster .reqnctapercluster 1, 1, 1 {\n\
        .reg .b32 %r<2>;\n.reg .b64 %d<2>;\n.reg .pred %p<2>;\nld.param.u64 %d1, [out];\n{\n.param .b32 r;\n\
        call.uni (r), five;\nld.param.b32 %r1, [r];\n}\nmov.pred %p1, %is_explicit_cluster;\n@%p1 add.u32 %r1, %r1, 10;\n\
        st.global.u32 [%d1], %r1;\nret;\n}\n";
    let device = Device::new(text);
    let out = device.upload(&[0u32]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [15]);
    let error = Device::try_new(&text.replace("number;", "lost;")).unwrap_err();
    assert_eq!(error.kind, LoadErrorKind::Unresolved);
    let error = Device::try_new(&text.replace("cluster 1, 1, 1", "cluster 2, 1, 1")).unwrap_err();
    assert_eq!((error.kind, error.line), (LoadErrorKind::UnsupportedDirective, 12));
}

#[test]
fn an_alignment_beyond_that_of_every_allocation_is_kept() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n.global .align 8192 .u32 a = 5;\n\
        .const .align 4 .u32 first = 6;\n.const .align 4096 .u32 second = 7;\n\
        .visible .entry kernel(.param .u64 out) {\n.reg .b64 %d0;\n.reg .b32 %r<3>;\nld.param.u64 %d0, [out];\n\
        ld.const.u32 %r0, [first];\nld.const.u32 %r1, [second];\nst.global.v2.u32 [%d0], {%r0, %r1};\nret;\n}\n";
    let device = Device::new(text);
    let at = |name: &str| device.module.global(name).unwrap().0;
    assert_eq!((at("a") % 8192, at("second") % 4096), (0, 0));
    assert_eq!(device.download::<u32>(at("a"), 1), [5]);
    let out = device.upload(&[0u32; 2]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 2), [6, 7]);
}

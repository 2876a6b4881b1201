//! Textures and surfaces in PTX kernels: invalid accesses, and unsupported forms.

use std::sync::Arc;

use gpufleet_emulator::fault::{Fault, FaultKind};
use gpufleet_emulator::memory::{Memory, Owner};
use gpufleet_emulator::module::ReferenceKind;
use gpufleet_emulator::texture::Texture;
use gpufleet_emulator::texture::format::{Channel, Format};
use gpufleet_emulator::texture::image::{Extent, Image};
use gpufleet_emulator::texture::registry::Object;
use gpufleet_emulator::texture::sampler::{AddressMode, Filter, Sampler};

use super::harness::{Arg, Device};

const FORMAT: Format = Format { channel: Channel::F32, channels: 1 };

/// Returns a kernel over a handle, whose threads write one word each.
fn kernel(declarations: &str, body: &str) -> String {
    format!(
        ".version 7.8\n.target sm_80\n.address_size 64\n{declarations}\n\
         .visible .entry kernel(.param .u64 out, .param .u64 handle)\n{{\n\
         .reg .pred %p<4>;\n.reg .b16 %h<16>;\n.reg .b32 %r<16>;\n.reg .f32 %f<16>;\n.reg .b64 %d<16>;\n\
         ld.param.u64 %d0, [out];\nld.param.u64 %d2, [handle];\nmov.u32 %r0, %tid.x;\n\
         mad.wide.u32 %d1, %r0, 4, %d0;\n{body}\nret;\n}}\n"
    )
}

/// Makes an image of 4 by 2 texels with the values 0, 1, 2 and so on.
fn plane(memory: &Memory) -> Image {
    let extent = Extent { width: 4, height: 2, depth: 0, is_layered: false, is_cube: false };
    let image = Image::array(FORMAT, extent, 1, memory.alloc(32).unwrap());
    let texels: [f32; 8] = std::array::from_fn(|index| index as f32);
    // SAFETY: the array is as large as what is copied.
    unsafe { memory.copy_in(image.range().0, texels.as_ptr().cast(), 32).unwrap() };
    image
}

fn surface(device: &Device) -> u64 {
    device.memory.textures().add(Object::Surface(Arc::new(plane(&device.memory))))
}

fn texture(device: &Device, sampler: Sampler) -> u64 {
    device.memory.textures().add(Object::Texture(Arc::new(Texture { image: plane(&device.memory), sampler })))
}

fn run(device: &Device, handle: u64, threads: u32) -> Result<Vec<u32>, Fault> {
    let out = device.upload(&vec![0u32; threads as usize]);
    device.launch("kernel", [1; 3], [threads, 1, 1], &[Arg::U64(out), Arg::U64(handle)])?;
    Ok(device.download(out, threads as usize))
}

const FETCH: &str = "tex.2d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%d2, {%r0, 1}];\nst.global.f32 [%d1], %f0;";
const LOAD: &str = "mul.lo.u32 %r1, %r0, 4;\nsuld.b.2d.b32.trap {%r2}, [%d2, {%r1, 1}];\nst.global.u32 [%d1], %r2;";

#[test]
fn a_guarded_fetch_leaves_other_lanes_as_they_were() {
    let body = format!("mov.f32 %f0, 0f41100000;\nsetp.lt.u32 %p0, %r0, 2;\n@%p0 {FETCH}");
    let device = Device::new(&kernel("", &body));
    let handle = texture(&device, Sampler::default());
    let floats: Vec<f32> = run(&device, handle, 4).unwrap().into_iter().map(f32::from_bits).collect();
    assert_eq!(floats, [4.0, 5.0, 9.0, 9.0]);
}

#[test]
fn a_surface_access_outside_traps_with_its_place() {
    let device = Device::new(&kernel("", LOAD));
    let handle = surface(&device);
    assert_eq!(run(&device, handle, 4).unwrap(), [4.0f32, 5.0, 6.0, 7.0].map(f32::to_bits));
    let fault = run(&device, handle, 5).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    let lines: Vec<&str> = fault.report.lines().collect();
    assert_eq!(lines[0], "illegal access of 4 bytes at (16, 1) of a surface in kernel `kernel`");
    assert_eq!(lines[1], "  at PTX line 17, `suld.b.2d.b32.trap`");
    assert_eq!(lines[2], "  block (0, 0, 0), thread (4, 0, 0)");
    assert_eq!(lines[3], "  the surface has 4 by 2 texels, in rows of 16 bytes");
}

#[test]
fn a_surface_access_between_elements_is_misaligned() {
    let device = Device::new(&kernel("", "suld.b.2d.b32.zero {%r2}, [%d2, {%r0, 0}];"));
    let handle = surface(&device);
    let fault = run(&device, handle, 2).unwrap_err();
    assert_eq!(fault.kind, FaultKind::MisalignedAddress);
    assert!(fault.report.contains("at (1, 0) of a surface"), "{fault}");
}

#[test]
fn handles_that_are_wrong_are_illegal_accesses() {
    let device = Device::new(&kernel("", FETCH));
    let refused = |handle: u64, reason: &str| {
        let fault = run(&device, handle, 1).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert!(fault.report.contains(&format!("handle {handle:#x}")), "{fault}");
        assert!(fault.report.contains("tex.2d.v4.f32.s32"), "{fault}");
        assert!(fault.report.contains(reason), "{fault}");
    };
    refused(0, "no texture or surface object has this handle");
    refused(surface(&device), "not that of a texture");
    let destroyed = texture(&device, Sampler::default());
    device.memory.textures().remove(destroyed);
    refused(destroyed, "was destroyed");
    let freed = plane(&device.memory);
    device.memory.free(freed.range().0).unwrap();
    let sampler = Sampler::default();
    let freed = device.memory.textures().add(Object::Texture(Arc::new(Texture { image: freed, sampler })));
    refused(freed, "its memory was freed");
    let extent = Extent { width: 2, height: 2, depth: 2, is_layered: false, is_cube: false };
    let image = Image::array(FORMAT, extent, 1, device.memory.alloc(32).unwrap());
    let volume = device.memory.textures().add(Object::Texture(Arc::new(Texture { image, sampler })));
    refused(volume, "the texture has 2 by 2 by 2 texels, which an instruction with `.2d` can't read");
}

#[test]
fn a_kernel_with_a_missing_form_is_refused_when_it_is_launched() {
    let missing = ".func ask(.param .u64 s) {\n.reg .b64 %d; .reg .pred %p;\nld.param.u64 %d, [s];\n\
                   istypep.texref %p, %d;\nret;\n}\n";
    let other = ".visible .entry other(.param .u64 out) {\n.reg .b64 %d;\nld.param.u64 %d, [out];\n\
                 st.global.u32 [%d], 7;\nret;\n}\n";
    let body = "{ .param .u64 s; st.param.u64 [s], %d2; call ask, (s); }";
    let device = Device::new(&kernel(&format!("{missing}{other}"), body));
    let fault = run(&device, 0, 1).unwrap_err();
    assert_eq!(fault.report, "kernel `kernel` can't run: line 7: unsupported opcode `istypep.texref`");
    let out = device.upload(&[0u32]);
    device.launch("other", [1; 3], [1; 3], &[Arg::U64(out)]).unwrap();
    assert_eq!(device.download::<u32>(out, 1), [7]);
}

#[test]
fn a_missing_form_behind_a_pointer_is_a_fault_when_it_is_reached() {
    let missing = ".func ask() {\n.reg .b64 %d; .reg .pred %p;\nmov.u64 %d, 0;\nistypep.texref %p, %d;\nret;\n}\n";
    let body = "mov.u64 %d3, ask;\n{ PROTO: .callprototype _ ();\ncall %d3, (), PROTO; }";
    let device = Device::new(&kernel(missing, body));
    let fault = run(&device, 0, 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalInstruction);
    assert!(fault.report.starts_with("unsupported instruction in kernel `kernel`, function `ask`"), "{fault}");
    assert!(fault.report.contains("PTX line 7, `istypep.texref`"), "{fault}");
}

#[test]
fn variables_of_a_module_stand_for_textures_and_samplers() {
    let declarations = ".global .texref picture;\n.global .surfref canvas;\n\
                        .global .samplerref smooth = { addr_mode_0 = clamp_to_border, filter_mode = linear };";
    let body = "cvt.rn.f32.u32 %f4, %r0;\ntex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [picture, smooth, {%f4, 0f3F000000}];\n\
                st.global.f32 [%d1], %f0;";
    let device = Device::new(&kernel(declarations, body));
    let reference = device.module.reference("picture").unwrap();
    assert_eq!(reference.kind, ReferenceKind::Texture);
    assert_eq!(device.module.reference("canvas").unwrap().kind, ReferenceKind::Surface);
    assert_eq!(device.module.reference("smooth").unwrap().kind, ReferenceKind::Sampler);
    let fault = run(&device, 0, 1).unwrap_err();
    assert!(fault.report.contains("bound to nothing"), "{fault}");
    let sampler = Sampler { address: [AddressMode::Wrap; 3], filter: Filter::Point, ..Sampler::default() };
    let bound = Object::Texture(Arc::new(Texture { image: plane(&device.memory), sampler }));
    assert!(device.memory.textures().bind(reference.handle, bound));
    let floats: Vec<f32> = run(&device, 0, 6).unwrap().into_iter().map(f32::from_bits).collect();
    assert_eq!(floats, [0.0, 0.5, 1.5, 2.5, 1.5, 0.0]);
}

/// Makes two cube maps with four levels; the texels of each level contain its number.
fn cubes(memory: &Memory, is_layered: bool) -> Image {
    let extent = Extent { width: 8, height: 8, depth: if is_layered { 12 } else { 6 }, is_layered, is_cube: true };
    let bytes = Image::array_bytes(FORMAT, extent, 4).unwrap();
    let image = Image::array(FORMAT, extent, 4, memory.alloc(bytes).unwrap());
    for (number, level) in image.levels.iter().enumerate() {
        let texels = vec![number as f32; (level.width * level.height * level.depth) as usize];
        // SAFETY: the level is as large as what is copied.
        unsafe { memory.copy_in(level.address, texels.as_ptr().cast(), 4 * texels.len() as u64).unwrap() };
    }
    image
}

#[test]
fn gradients_of_a_cube_map_are_steps_on_the_face() {
    // A face has 8 texels from -1 to 1 in the direction (1, s, t), so a step of one half is two texels, which is level
    // 1.
    let half = "0f3F000000";
    let cases = [
        (["0f3F800000", "0f00000000", "0f00000000"], ["0f00000000", half, "0f00000000"], 1.0f32),
        (["0f3F800000", "0f00000000", "0f00000000"], ["0f00000000", "0f00000000", "0f3F800000"], 2.0),
        // Away from the centre of the cube: nothing changes on the face.
        (["0f00000000", "0fC0000000", "0f00000000"], ["0f00000000", half, "0f00000000"], 0.0),
        // The direction is four times as long as in the first case.
        (["0f00000000", "0f00000000", "0fC0800000"], ["0f40000000", "0f00000000", "0f00000000"], 1.0),
        // At the edge of a face, a step along the major axis moves along the face too.
        (["0f3F800000", "0f3F800000", "0f00000000"], [half, "0f00000000", "0f00000000"], 1.0),
    ];
    for (geometry, layer) in [("cube", ""), ("acube", "%r1, ")] {
        for (direction, step, level) in cases {
            let [x, y, z] = direction;
            let [step_x, step_y, step_z] = step;
            let last = if layer.is_empty() { ", 0f00000000" } else { "" };
            let body = format!(
                "mov.u32 %r1, 1;\nmov.f32 %f4, {x};\nmov.f32 %f5, {y};\nmov.f32 %f6, {z};\n\
                 tex.grad.{geometry}.v4.f32.f32 {{%f0, %f1, %f2, %f3}}, [%d2, {{{layer}%f4, %f5, %f6{last}}}], \
                 {{{step_x}, {step_y}, {step_z}, 0f00000000}}, \
                 {{0f00000000, 0f00000000, 0f00000000, 0f00000000}};\nst.global.f32 [%d1], %f0;"
            );
            let device = Device::new(&kernel("", &body));
            let sampler = Sampler { level_max: 9.0, mipmap_filter: Filter::Linear, ..Sampler::default() };
            let image = cubes(&device.memory, !layer.is_empty());
            let handle = device.memory.textures().add(Object::Texture(Arc::new(Texture { image, sampler })));
            assert_eq!(run(&device, handle, 1).unwrap(), [level.to_bits()], "{geometry} {direction:?} {step:?}");
        }
    }
}

#[test]
fn the_variables_of_a_module_end_with_it() {
    let device = Device::new(&kernel(".global .texref picture;", FETCH));
    let handle = device.module.reference("picture").unwrap().handle;
    let memory = Arc::clone(&device.memory);
    assert!(memory.textures().get(handle).is_some());
    drop(device);
    assert!(memory.textures().get(handle).is_none());
}

#[test]
fn properties_of_textures_and_samplers_are_told() {
    let body = "txq.filter_mode.b32 %r1, [%d2];\ntxq.addr_mode_1.b32 %r2, [%d2];\ntxq.normalized_coords.b32 %r3, [%d2];\n\
                st.global.v2.u32 [%d0], {%r1, %r2};\nst.global.u32 [%d0+8], %r3;";
    let device = Device::new(&kernel("", body));
    let address = [AddressMode::Wrap, AddressMode::Mirror, AddressMode::Border];
    let sampler = Sampler { filter: Filter::Linear, address, is_normalized: true, ..Sampler::default() };
    let handle = texture(&device, sampler);
    let out = device.upload(&[9u32; 3]);
    device.launch("kernel", [1; 3], [1; 3], &[Arg::U64(out), Arg::U64(handle)]).unwrap();
    assert_eq!(device.download::<u32>(out, 3), [1, 1, 1]);
}

#[test]
fn a_formatted_store_keeps_integers_in_range_and_rounds_floats() {
    let stored = |channel: Channel, value: u32| {
        let device = Device::new(&kernel("", &format!("sust.p.2d.b32.trap [%d2, {{0, 0}}], {{{value}}};")));
        let extent = Extent { width: 4, height: 1, depth: 0, is_layered: false, is_cube: false };
        let format = Format { channel, channels: 1 };
        let image = Image::array(format, extent, 1, device.memory.alloc(16).unwrap());
        let (address, bytes) = (image.range().0, format.texel_bytes() as usize);
        let handle = device.memory.textures().add(Object::Surface(Arc::new(image)));
        run(&device, handle, 1).unwrap();
        let texel = device.download::<u8>(address, bytes);
        texel.iter().rev().fold(0u32, |word, byte| word << 8 | u32::from(*byte))
    };
    assert_eq!(stored(Channel::U8, 300), 255);
    assert_eq!(stored(Channel::S16, -40_000i32 as u32), 0x8000);
    assert_eq!(stored(Channel::U16, 7), 7);
    assert_eq!(stored(Channel::F16, 1.0f32.to_bits()), 0x3c00);
}

/// Makes a surface of one row; returns the address of its memory and its handle.
fn row(device: &Device, format: Format, width: u64) -> (u64, u64) {
    let extent = Extent { width, height: 0, depth: 0, is_layered: false, is_cube: false };
    let bytes = width * u64::from(format.texel_bytes());
    let image = Image::array(format, extent, 1, device.memory.alloc(bytes).unwrap());
    let address = image.range().0;
    (address, device.memory.textures().add(Object::Surface(Arc::new(image))))
}

#[test]
fn blocks_count_in_a_surface() {
    let body = "and.b32 %r1, %r0, 3;\nsured.p.add.1d.b32.trap [%d2, {%r1}], 1;\nshl.b32 %r1, %r1, 2;\n\
                sured.b.max.1d.u32.trap [%d2, {16}], %r0;\nsured.b.or.1d.b32.zero [%d2, {64}], %r0;";
    let device = Device::new(&kernel("", body));
    let (address, handle) = row(&device, Format { channel: Channel::U32, channels: 1 }, 5);
    let out = device.upload(&[0u32]);
    device.launch("kernel", [64, 1, 1], [256, 1, 1], &[Arg::U64(out), Arg::U64(handle)]).unwrap();
    assert_eq!(device.download::<u32>(address, 5), [4096, 4096, 4096, 4096, 255]);
}

#[test]
fn a_reduction_of_texels_needs_integers() {
    let device = Device::new(&kernel("", "sured.p.add.1d.b32.trap [%d2, {0}], 1;"));
    for (channel, channels) in [(Channel::F32, 1), (Channel::U32, 2), (Channel::U16, 2)] {
        let (_, handle) = row(&device, Format { channel, channels }, 4);
        let fault = run(&device, handle, 1).unwrap_err();
        assert_eq!(fault.kind, FaultKind::IllegalAddress);
        assert!(fault.report.contains("a reduction needs one of 32-bit integers"), "{fault}");
    }
    let (_, handle) = row(&device, Format { channel: Channel::S32, channels: 1 }, 4);
    run(&device, handle, 1).unwrap();
}

#[test]
fn a_reduction_outside_traps_with_its_place() {
    let device = Device::new(&kernel("", "sured.b.add.1d.u64.trap [%d2, {16}], 1;"));
    let (_, handle) = row(&device, Format { channel: Channel::U32, channels: 1 }, 4);
    let fault = run(&device, handle, 1).unwrap_err();
    assert!(fault.report.starts_with("illegal access of 8 bytes at (16) of a surface"), "{fault}");
}

#[test]
fn an_integer_border_has_the_bits_of_its_floats() {
    let body = "tex.2d.v4.u32.s32 {%r1, %r2, %r3, %r4}, [%d2, {-1, 0}];\nst.global.u32 [%d1], %r1;";
    let device = Device::new(&kernel("", body));
    let format = Format { channel: Channel::U32, channels: 1 };
    let image = Image { format, ..plane(&device.memory) };
    let border = [f32::from_bits(77), 0.0, 0.0, 0.0];
    let address = [AddressMode::Border; 3];
    let sampler = Sampler { address, border, reads_integers: true, ..Sampler::default() };
    let handle = device.memory.textures().add(Object::Texture(Arc::new(Texture { image, sampler })));
    assert_eq!(run(&device, handle, 1).unwrap(), [77]);
}

#[test]
fn a_plain_access_to_an_array_is_illegal() {
    let device = Device::new(&kernel("", "ld.global.u32 %r1, [%d2];\nst.global.u32 [%d1], %r1;"));
    let array = device.memory.alloc_for(Owner::Image, 32).unwrap();
    let fault = run(&device, array, 1).unwrap_err();
    assert_eq!(fault.kind, FaultKind::IllegalAddress);
    assert!(fault.report.contains("array at") && fault.report.contains("only textures and surfaces reach"), "{fault}");
    assert!(device.memory.free(array).is_err());
    device.memory.free_of(Owner::Image, array).unwrap();
}

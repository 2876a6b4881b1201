//! Instructions that the emulator refuses by name: rare forms of texture and surface instructions, tensor copies,
//! instructions of single architectures, and video instructions that compilers no longer emit. One legal form of each
//! mnemonic represents all of them.

use super::Grammar;
use crate::{kind::Kind::*, recipe::form};

pub fn add(g: &mut Grammar) {
    let registers = ".reg .b32 %x<8>;\n.reg .b64 %y<4>;\n.reg .pred %z;\n.reg .f32 %f<8>;\n.reg .b16 %h<4>;\n";
    for (text, operands, sm, ptx) in [
        ("tex.2d.v4.f16.f32", "{%h0, %h1, %h2, %h3}, [%y0, {%f4, %f5}]", 70, 70),
        ("tex.2d.v2.f16x2.f32", "{%x0, %x1}, [%y0, {%f4, %f5}]", 70, 70),
        ("tex.2dms.v4.f32.s32", "{%f0, %f1, %f2, %f3}, [%y0, {%x0, %x1, %x2, %x3}]", 70, 70),
        ("tex.a2dms.v4.f32.s32", "{%f0, %f1, %f2, %f3}, [%y0, {%x0, %x1, %x2, %x3}]", 70, 70),
        ("txq.channel_data_type.b32", "%x0, [%y0]", 70, 70),
        ("txq.channel_order.b32", "%x0, [%y0]", 70, 70),
        ("txq.num_samples.b32", "%x0, [%y0]", 70, 70),
        ("suq.channel_data_type.b32", "%x0, [%y0]", 70, 70),
        ("suq.channel_order.b32", "%x0, [%y0]", 70, 70),
        ("suq.memory_layout.b32", "%x0, [%y0]", 70, 70),
        ("sured.p.min.1d.b64.trap", "[%y0, {%x1}], %y1", 70, 81),
        ("istypep.texref", "%z, %y0", 70, 70),
        ("vadd.s32.s32.s32", "%x0, %x1, %x2", 70, 70),
        ("vsub.s32.s32.s32", "%x0, %x1, %x2", 70, 70),
        ("vabsdiff.s32.s32.s32", "%x0, %x1, %x2", 70, 70),
        ("vmin.s32.s32.s32", "%x0, %x1, %x2", 70, 70),
        ("vmax.s32.s32.s32", "%x0, %x1, %x2", 70, 70),
        ("vshl.s32.s32.u32.clamp", "%x0, %x1, %x2", 70, 70),
        ("vshr.s32.s32.u32.clamp", "%x0, %x1, %x2", 70, 70),
        ("vmad.s32.s32.s32", "%x0, %x1, %x2, %x3", 70, 70),
        ("vset.s32.s32.eq", "%x0, %x1, %x2", 70, 70),
        ("vadd2.s32.s32.s32", "%x0, %x1, %x2, %x3", 70, 70),
        ("vset4.s32.s32.eq", "%x0, %x1, %x2, %x3", 70, 70),
        ("multimem.ld_reduce.global.add.f32", "%f0, [%y0]", 90, 81),
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster",
            "[%y0], [%y1], 16, [%y2], %h0",
            90,
            80,
        ),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32", "[%y0], [%y1], 16", 90, 80),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group", "[%y0, {%x0}], [%y1]", 90, 80),
        ("alloca.u64", "%y0, 16", 70, 73),
        ("stacksave.u64", "%y0", 70, 73),
        ("stackrestore.u64", "%y0", 70, 73),
    ] {
        g.add(form(text, U32, &[U32], |_| 0).code(format!("{registers}{text} {operands};")).needs(sm, ptx).open());
    }
}

//! Integer instructions, one at a time.

use super::single::{D, DOUBLES, H, HALVES, P, R, WORDS, check, word};

#[test]
fn integer_arithmetic_wraps() {
    let (a, b) = (|v: &[u64]| v[0] as u32, |v: &[u64]| v[1] as u32);
    check("add.s32", R, &[R, R], &WORDS, |v| a(v).wrapping_add(b(v)).into());
    check("sub.u32", R, &[R, R], &WORDS, |v| a(v).wrapping_sub(b(v)).into());
    check("mul.lo.s32", R, &[R, R], &WORDS, |v| a(v).wrapping_mul(b(v)).into());
    check("mul.hi.u32", R, &[R, R], &WORDS, |v| (v[0] * v[1]) >> 32);
    check("mul.hi.s32", R, &[R, R], &WORDS, |v| {
        ((i64::from(a(v) as i32) * i64::from(b(v) as i32)) >> 32) as u32 as u64
    });
    check("mul.wide.s32", D, &[R, R], &WORDS, |v| (i64::from(a(v) as i32) * i64::from(b(v) as i32)) as u64);
    check("mul.wide.u32", D, &[R, R], &WORDS, |v| v[0] * v[1]);
    check("mul.wide.u16", R, &[H, H], &HALVES, |v| (v[0] * v[1]) & 0xffff_ffff);
    check("add.s64", D, &[D, D], &DOUBLES, |v| v[0].wrapping_add(v[1]));
    check("mul.hi.u64", D, &[D, D], &DOUBLES, |v| ((u128::from(v[0]) * u128::from(v[1])) >> 64) as u64);
    check("mad.lo.s32", R, &[R, R, R], &WORDS, |v| a(v).wrapping_mul(b(v)).wrapping_add(v[2] as u32).into());
    check("sub.s16", H, &[H, H], &HALVES, |v| (v[0] as u16).wrapping_sub(v[1] as u16).into());
    check("add.sat.s32", R, &[R, R], &WORDS, |v| word((a(v) as i32).saturating_add(b(v) as i32)));
    check("neg.s32", R, &[R], &WORDS, |v| word((v[0] as i32).wrapping_neg()));
    check("abs.s32", R, &[R], &WORDS, |v| word((v[0] as i32).wrapping_abs()));
    check("sad.s32", R, &[R, R, R], &WORDS, |v| {
        u64::from((a(v) as i32).abs_diff(b(v) as i32).wrapping_add(v[2] as u32))
    });
    check("min.s32", R, &[R, R], &WORDS, |v| word((a(v) as i32).min(b(v) as i32)));
    check("max.u64", D, &[D, D], &DOUBLES, |v| v[0].max(v[1]));
}

#[test]
fn division_never_traps() {
    check("div.u32", R, &[R, R], &WORDS, |v| v[0].checked_div(v[1]).unwrap_or(0xffff_ffff));
    check("rem.u32", R, &[R, R], &WORDS, |v| v[0].checked_rem(v[1]).unwrap_or(0xffff_ffff));
    check("rem.u16", H, &[H, H], &HALVES, |v| v[0].checked_rem(v[1]).unwrap_or(0xffff));
    check("div.s32", R, &[R, R], &WORDS, |v| {
        let (a, b) = (v[0] as i32, v[1] as i32);
        word(if b == 0 { -1 } else { a.wrapping_div(b) })
    });
    check("rem.s64", D, &[D, D], &DOUBLES, |v| {
        let (a, b) = (v[0] as i64, v[1] as i64);
        (if b == 0 { -1 } else { a.wrapping_rem(b) }) as u64
    });
}

#[test]
fn shifts_beyond_the_width_clamp() {
    check("shl.b32", R, &[R, R], &WORDS, |v| if v[1] < 32 { (v[0] << v[1]) & 0xffff_ffff } else { 0 });
    check("shr.u32", R, &[R, R], &WORDS, |v| if v[1] < 32 { v[0] >> v[1] } else { 0 });
    check("shr.s32", R, &[R, R], &WORDS, |v| word((v[0] as i32) >> v[1].min(31)));
    check("shr.s64", D, &[D, R], &DOUBLES, |v| ((v[0] as i64) >> (v[1] & 0xffff_ffff).min(63)) as u64);
    check("shl.b64", D, &[D, R], &DOUBLES, |v| {
        let by = v[1] & 0xffff_ffff;
        if by < 64 { v[0] << by } else { 0 }
    });
    check("shf.l.wrap.b32", R, &[R, R, R], &WORDS, |v| ((v[1] << 32 | v[0]) << (v[2] & 31)) >> 32);
    check("shf.r.clamp.b32", R, &[R, R, R], &WORDS, |v| ((v[1] << 32 | v[0]) >> v[2].min(32)) & 0xffff_ffff);
}

#[test]
fn bits_are_counted_found_and_moved() {
    check("popc.b32", R, &[R], &WORDS, |v| v[0].count_ones().into());
    check("clz.b32", R, &[R], &WORDS, |v| (v[0] as u32).leading_zeros().into());
    check("clz.b64", R, &[D], &DOUBLES, |v| v[0].leading_zeros().into());
    check("brev.b32", R, &[R], &WORDS, |v| (v[0] as u32).reverse_bits().into());
    check("bfind.u32", R, &[R], &WORDS, |v| if v[0] == 0 { 0xffff_ffff } else { v[0].ilog2().into() });
    check("bfind.s32", R, &[R], &WORDS, |v| {
        let value = if (v[0] as i32) < 0 { !(v[0] as u32) } else { v[0] as u32 };
        if value == 0 { 0xffff_ffff } else { value.ilog2().into() }
    });
    check("bfind.shiftamt.u32", R, &[R], &WORDS, |v| {
        if v[0] == 0 { 0xffff_ffff } else { (v[0] as u32).leading_zeros().into() }
    });
    check("not.b32", R, &[R], &WORDS, |v| !v[0] & 0xffff_ffff);
    check("prmt.b32", R, &[R, R, R], &[0, 0x8123_4567, 0x7654_3210, 0xfedc_ba98, 0x0f0e_0102], |v| {
        let bytes = (v[1] << 32 | v[0]).to_le_bytes();
        (0..4).fold(0, |sum, i| {
            let selector = v[2] >> (4 * i) & 15;
            let byte = u64::from(bytes[(selector & 7) as usize]);
            let byte = if selector & 8 == 0 { byte } else { 0xff * (byte >> 7) };
            sum | byte << (8 * i)
        })
    });
}

#[test]
fn fields_are_taken_bit_by_bit() {
    let values = [0, 1, 5, 31, 32, 40, 0x8765_4321, 0x7fff_ffff];
    let field = |v: &[u64], signed: bool| {
        let (at, length) = (v[1] & 0xff, v[2] & 0xff);
        let bit = |i: u64| v[0] >> i.min(31) & 1;
        let sign = if signed && length > 0 { bit((at + length - 1).min(31)) } else { 0 };
        (0..32).fold(0, |sum, i| sum | (if i < length && at + i < 32 { bit(at + i) } else { sign }) << i)
    };
    check("bfe.u32", R, &[R, R, R], &values, |v| field(v, false));
    check("bfe.s32", R, &[R, R, R], &values, |v| field(v, true));
    check("bfi.b32 %rz, %ra, %rb, %rc, 9; // ", R, &[R, R, R], &values, |v| {
        let at = v[2] & 0xff;
        (0..32).fold(v[1] & 0xffff_ffff, |sum, i| {
            if i < 9 && at + i < 32 { sum & !(1 << (at + i)) | (v[0] >> i & 1) << (at + i) } else { sum }
        })
    });
    check("lop3.b32 %rz, %ra, %rb, %rc, 0xca; // ", R, &[R, R, R], &WORDS, |v| v[0] & v[1] | !v[0] & v[2]);
    check("dp4a.s32.u32", R, &[R, R, R], &WORDS, |v| {
        let sum = (0..4).map(|i| i64::from((v[0] >> (8 * i)) as i8) * (v[1] >> (8 * i) & 0xff) as i64).sum::<i64>();
        (sum as u32).wrapping_add(v[2] as u32).into()
    });
}

#[test]
fn carries_pass_from_one_instruction_to_the_next() {
    check("add.cc.u32 %rz, %ra, %rb; addc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        (v[2] + (v[0] + v[1] > 0xffff_ffff) as u64) & 0xffff_ffff
    });
    check("sub.cc.u32 %rz, %ra, %rb; subc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        v[2].wrapping_sub((v[0] < v[1]) as u64) & 0xffff_ffff
    });
    check("mad.lo.cc.u32 %rz, %ra, %rb, %rc; madc.hi.u32 %rz, %ra, %rb, 7; // ", R, &[R, R, R], &WORDS, |v| {
        ((((u128::from(v[0]) * u128::from(v[1]) + u128::from(v[2])) >> 32) + 7) & 0xffff_ffff) as u64
    });
}

/// NVRTC's own division of 128-bit integers reads the carry of a subtraction like this.
#[test]
fn the_carry_of_a_subtraction_is_set_where_nothing_is_borrowed() {
    check("sub.cc.u32 %rz, %ra, %rb; addc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        (v[2] + u64::from(v[0] >= v[1])) & 0xffff_ffff
    });
    check("add.cc.u32 %rz, %ra, %rb; subc.u32 %rz, %rc, 0; // ", R, &[R, R, R], &WORDS, |v| {
        v[2].wrapping_sub(u64::from(v[0] + v[1] <= 0xffff_ffff)) & 0xffff_ffff
    });
    check("sub.cc.u32 %rz, %ra, %rb; subc.cc.u32 %rz, %rc, 0; addc.u32 %rz, 0, 0; // ", R, &[R, R, R], &WORDS, |v| {
        u64::from(v[2] >= u64::from(v[0] < v[1]))
    });
}

#[test]
fn registers_are_packed_and_unpacked() {
    check("mov.b64 %dz, {%ra, %rb}; // ", D, &[R, R], &WORDS, |v| v[0] | v[1] << 32);
    check("mov.b64 {%ra, %rz}, %da; // ", R, &[D], &DOUBLES, |v| v[0] >> 32);
    check("mov.b32 %rz, {%hb, %ha}; // ", R, &[H, H], &HALVES, |v| v[1] | v[0] << 16);
    check("mov.b64 %dz, {%ha, %hb, %hc, %ha}; // ", D, &[H, H, H], &HALVES, |v| {
        v[0] | v[1] << 16 | v[2] << 32 | v[0] << 48
    });
    check("mov.b64 {%hc, _, %hb, %hz}, %da; // ", H, &[D], &DOUBLES, |v| v[0] >> 48);
    let bytes = ".reg .b8 %q<4>;\nmov.b32 {%q0, %q1, %q2, %q3}, %ra;\n";
    check(&format!("{bytes} mov.b32 %rz, {{%q3, %q2, %q1, %q0}}; // "), R, &[R], &WORDS, |v| {
        (v[0] as u32).swap_bytes().into()
    });
    let bytes = ".reg .b8 %q<4>;\nmov.b16 {%q0, %q1}, %ha;\n";
    check(&format!("{bytes} mov.b16 %hz, {{%q1, %q0}}; // "), H, &[H], &HALVES, |v| (v[0] as u16).swap_bytes().into());
    check("mov.b32 {%hb, %ha}, %ra; cvt.u32.u16 %rz, %ha; // ", R, &[R], &WORDS, |v| v[0] >> 16);
    check("slct.u32.s32", R, &[R, R, R], &WORDS, |v| if v[2] as i32 >= 0 { v[0] } else { v[1] });
}

#[test]
fn pairs_of_integers_are_handled_each_for_itself() {
    let values = [0, 0x0001_ffff, 0x7fff_8000, 0x8000_7fff, 0xffff_0001, 0x1234_fedc];
    let both = |v: &[u64], f: fn(i16, i16) -> i16| {
        let part = |by: u64| u64::from(f((v[0] >> by) as i16, (v[1] >> by) as i16) as u16);
        part(0) | part(16) << 16
    };
    for ty in ["u16x2", "s16x2"] {
        check(&format!("add.{ty}"), R, &[R, R], &values, |v| both(v, i16::wrapping_add));
    }
    check("min.s16x2", R, &[R, R], &values, |v| both(v, i16::min));
    check("max.s16x2", R, &[R, R], &values, |v| both(v, i16::max));
    check("min.u16x2", R, &[R, R], &values, |v| both(v, |a, b| (a as u16).min(b as u16) as i16));
    check("max.u16x2", R, &[R, R], &values, |v| both(v, |a, b| (a as u16).max(b as u16) as i16));
    check("min.relu.s16x2", R, &[R, R], &values, |v| both(v, |a, b| a.min(b).max(0)));
    check("max.relu.s16x2", R, &[R, R], &values, |v| both(v, |a, b| a.max(b).max(0)));
    check("min.relu.s32", R, &[R, R], &WORDS, |v| word((v[0] as i32).min(v[1] as i32).max(0)));
    check("max.relu.s32", R, &[R, R], &WORDS, |v| word((v[0] as i32).max(v[1] as i32).max(0)));
}

#[test]
fn products_of_24_bits_take_the_low_or_the_high_part() {
    let values = [0, 1, 0x0080_0000, 0x007f_ffff, 0x00ff_ffff, 0xff12_3456, 0xffff_ffff];
    let product = |v: &[u64]| i64::from((v[0] as i32) << 8 >> 8) * i64::from((v[1] as i32) << 8 >> 8);
    check("mul24.lo.u32", R, &[R, R], &values, |v| ((v[0] & 0xff_ffff) * (v[1] & 0xff_ffff)) & 0xffff_ffff);
    check("mul24.hi.u32", R, &[R, R], &values, |v| ((v[0] & 0xff_ffff) * (v[1] & 0xff_ffff)) >> 16);
    check("mul24.lo.s32", R, &[R, R], &values, |v| u64::from(product(v) as u32));
    check("mul24.hi.s32", R, &[R, R], &values, |v| u64::from((product(v) >> 16) as u32));
    check("mad24.lo.s32", R, &[R, R, R], &values, |v| u64::from((product(v) as u32).wrapping_add(v[2] as u32)));
    check("mad24.hi.sat.s32", R, &[R, R, R], &[values[1], values[3], values[4], 0x7fff_ffff, 0x8000_0000], |v| {
        let sum = (product(v) >> 16) as i32 as i64 + i64::from(v[2] as i32);
        word(sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    });
    check("mad.hi.sat.s32", R, &[R, R, R], &WORDS, |v| {
        let sum = ((i64::from(v[0] as i32) * i64::from(v[1] as i32)) >> 32) + i64::from(v[2] as i32);
        word(sum.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    });
}

#[test]
fn set_bits_are_found_by_number() {
    let values = [0, 1, 3, 7, 31, 0xaaaa_aaaa, 0xffff_ffff, 0x8000_0001, 0xffff_fffe];
    check("fns.b32", R, &[R, R, R], &values[..7], |v| {
        let (mask, base, offset) = (v[0], (v[1] & 31) as i64, v[2] as i32);
        if v[1] > 31 {
            return 0xffff_ffff;
        }
        if offset == 0 {
            return if mask >> base & 1 != 0 { base as u64 } else { 0xffff_ffff };
        }
        let up = base..32;
        let down = (0..=base).rev();
        let bits: Box<dyn Iterator<Item = i64>> = if offset > 0 { Box::new(up) } else { Box::new(down) };
        let mut set = bits.filter(|bit| mask >> bit & 1 != 0);
        set.nth(offset.unsigned_abs() as usize - 1).map_or(0xffff_ffff, |bit| bit as u64)
    });
    let spans = [0, 1, 5, 31, 32, 33, 64, 0xffff_ffff];
    check("bmsk.clamp.b32", R, &[R, R], &spans, |v| {
        (0..32).filter(|bit| *bit >= v[0] && *bit - v[0] < v[1]).fold(0, |sum, bit| sum | 1 << bit)
    });
    check("bmsk.wrap.b32", R, &[R, R], &spans, |v| {
        let (at, length) = (v[0] & 31, v[1] & 31);
        (0..32).filter(|bit| *bit >= at && *bit - at < length).fold(0, |sum, bit| sum | 1 << bit)
    });
    for mode in ["clamp", "wrap"] {
        let length = |v: &[u64]| if mode == "wrap" { v[1] & 31 } else { v[1].min(32) };
        let low = move |v: &[u64]| v[0] & ((1 << length(v)) - 1);
        let rows = [0, 1, 5, 31, 32, 33, 0x8765_4321, 0xffff_ffff];
        check(&format!("szext.{mode}.u32"), R, &[R, R], &rows, |v| low(v));
        check(&format!("szext.{mode}.s32"), R, &[R, R], &rows, |v| {
            let n = length(v);
            if n > 0 && low(v) >> (n - 1) & 1 != 0 { (low(v) | u64::MAX << n) & 0xffff_ffff } else { low(v) }
        });
    }
}

#[test]
fn a_table_may_be_joined_with_a_predicate() {
    for (function, join) in [("and", (|a, b| a && b) as fn(bool, bool) -> bool), ("or", |a, b| a || b)] {
        for not in ["", "!"] {
            let text = format!("lop3.{function}.b32 %rz|%pz, %ra, %rb, %rb, 0x60, {not}%pc; // ");
            let expect = move |v: &[u64]| {
                let bits = (0..32).fold(0, |sum, i| {
                    let row = (v[0] >> i & 1) << 2 | (v[1] >> i & 1) << 1 | (v[1] >> i & 1);
                    sum | (0x60 >> row & 1) << i
                });
                join(bits != 0, (v[2] != 0) == not.is_empty()).into()
            };
            check(&text, P, &[R, R, P], &[0, 1, 3, 0xffff_0000], expect);
        }
    }
    check("lop3.or.b32 _|%pz, %ra, %rb, %rb, 0xc0, 0; // ", P, &[R, R], &WORDS, |v| (v[0] & v[1] != 0).into());
}

#[test]
fn carries_pass_in_every_width_and_sign() {
    check(
        "add.cc.s64 %dz, %da, %db; addc.cc.u64 %dz, %da, %dc; addc.s64 %dz, 0, 0; // ",
        D,
        &[D, D, D],
        &DOUBLES,
        |v| {
            let first = u128::from(v[0]) + u128::from(v[1]);
            ((u128::from(v[0]) + u128::from(v[2]) + (first >> 64)) >> 64) as u64
        },
    );
    check(
        "sub.cc.u64 %dz, %da, %db; subc.cc.s64 %dz, %da, %dc; subc.u64 %dz, 0, 0; // ",
        D,
        &[D, D, D],
        &DOUBLES,
        |v| {
            let borrow = i128::from(v[0] < v[1]);
            if i128::from(v[0]) - i128::from(v[2]) - borrow < 0 { u64::MAX } else { 0 }
        },
    );
    check("mad.hi.cc.s32 %rz, %ra, %rb, %rc; addc.u32 %rz, 0, 0; // ", R, &[R, R, R], &WORDS, |v| {
        let high = ((i64::from(v[0] as i32) * i64::from(v[1] as i32)) >> 32) as u32;
        high.checked_add(v[2] as u32).is_none().into()
    });
    check("mad.lo.cc.u64 %dz, %da, %db, %dc; madc.hi.s64 %dz, %da, %db, 5; // ", D, &[D, D, D], &DOUBLES, |v| {
        let carry = v[0].wrapping_mul(v[1]).checked_add(v[2]).is_none();
        let high = ((i128::from(v[0] as i64) * i128::from(v[1] as i64)) >> 64) as u64;
        high.wrapping_add(5).wrapping_add(carry.into())
    });
}

#[test]
fn differences_of_parts_lie_side_by_side_or_are_summed() {
    for (name, bits) in [("vabsdiff4", 8), ("vabsdiff2", 16)] {
        let differences = move |v: &[u64]| {
            let part = move |value: u64, i: u64| value >> (i * bits) & ((1 << bits) - 1);
            (0..32 / bits).map(|i| part(v[0], i).abs_diff(part(v[1], i))).collect::<Vec<_>>()
        };
        let values = [0, 1, 0x80ff_7f01, 0x00ff_ff00, 0xffff_ffff, 0x1234_fedc];
        check(&format!("{name}.u32.u32.u32"), R, &[R, R, R], &values, |v| {
            differences(v).iter().rev().fold(0, |sum, part| sum << bits | part)
        });
        check(&format!("{name}.u32.u32.u32.add"), R, &[R, R, R], &values, |v| {
            (differences(v).iter().sum::<u64>() + v[2]) & 0xffff_ffff
        });
    }
}

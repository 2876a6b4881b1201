//! Logic, shifts and byte permutations.

use super::Grammar;
use crate::{
    kind::Kind::*,
    recipe::{form, forms},
    scalar::integer::{int, wrap},
};

pub fn add(g: &mut Grammar) {
    for k in [Pred, B16, B32, B64] {
        g.add(form(format!("and.{k}"), k, &[k, k], |x| x[0] & x[1]));
        g.add(form(format!("or.{k}"), k, &[k, k], |x| x[0] | x[1]));
        g.add(form(format!("xor.{k}"), k, &[k, k], |x| x[0] ^ x[1]));
        g.add(form(format!("not.{k}"), k, &[k], move |x| !x[0] & k.mask()));
        if k != Pred {
            g.add(form(format!("cnot.{k}"), k, &[k], |x| (x[0] == 0).into()));
        }
    }
    shifts(g);
    tables(g);
    permutations(g);
}

fn shifts(g: &mut Grammar) {
    for k in [B16, B32, B64] {
        g.add(form(format!("shl.{k}"), k, &[k, U32], move |x| {
            if x[1] >= u64::from(k.bits()) { 0 } else { x[0] << x[1] & k.mask() }
        }));
    }
    for k in [B16, B32, B64, U16, U32, U64, S16, S32, S64] {
        // Amounts past the width yield the sign, or zero.
        g.add(form(format!("shr.{k}"), k, &[k, U32], move |x| wrap(k, int(k, x[0]) >> x[1].min(u64::from(k.bits())))));
    }
    for (mode, limit) in [("clamp", 0), ("wrap", 31)] {
        let amount = move |x: u64| if limit == 31 { x & 31 } else { x.min(32) };
        g.add(form(format!("shf.l.{mode}.b32"), B32, &[B32, B32, U32], move |x| {
            (x[1] << 32 | x[0]) << amount(x[2]) >> 32
        }));
        g.add(form(format!("shf.r.{mode}.b32"), B32, &[B32, B32, U32], move |x| {
            (x[1] << 32 | x[0]) >> amount(x[2]) & 0xffff_ffff
        }));
    }
}

fn tables(g: &mut Grammar) {
    let look_up = |table: u64, x: &[u64]| {
        (0..32).fold(0, |value, bit| {
            let index = (x[0] >> bit & 1) << 2 | (x[1] >> bit & 1) << 1 | x[2] >> bit & 1;
            value | (table >> index & 1) << bit
        })
    };
    for table in [0x00u64, 0xff, 0xf0, 0xcc, 0xaa, 0x80, 0xfe, 0x96, 0x1b, 0xe8] {
        let code = format!("lop3.b32 %d, %a, %b, %c, {table:#x};");
        g.add(
            form("lop3.b32", B32, &[B32; 3], move |x| look_up(table, x))
                .code(code)
                .plain()
                .file(format!("b32.{table:02x}"))
                .count(16),
        );
    }
    for (name, joined) in [("or", (|a, b| a || b) as fn(bool, bool) -> bool), ("and", |a, b| a && b)] {
        let text = format!("lop3.{name}.b32");
        let made = forms(text.clone(), &[B32, Pred], &[B32, B32, B32, Pred], move |x| {
            let value = look_up(0x96, x);
            vec![value, joined(value != 0, x[3] != 0).into()]
        });
        g.add(made.code(format!("{text} %d|%q, %a, %b, %c, 0x96, %e;")).plain().needs(70, 82));
    }
}

/// Returns which of the eight bytes goes to the i-th position, by the selector.
type Index = fn(u64, u64) -> u64;

fn permutations(g: &mut Grammar) {
    let byte = |x: &[u64], index: u64| (x[1] << 32 | x[0]) >> (8 * index) & 0xff;
    let join = |bytes: [u64; 4]| bytes.iter().rev().fold(0, |value, byte| value << 8 | byte);
    g.add(form("prmt.b32", B32, &[B32, B32, B32], move |x| {
        join([0, 1, 2, 3].map(|i| {
            let choice = x[2] >> (4 * i) & 0xf;
            let value = byte(x, choice & 7);
            // The fourth bit asks for eight copies of the byte's sign.
            if choice & 8 == 0 { value } else { (value >> 7) * 0xff }
        }))
    }));
    let modes: [(&str, Index); 6] = [
        ("f4e", |n, i| n + i),
        ("b4e", |n, i| (n + 8 - i) & 7),
        ("rc8", |n, _| n),
        ("ecl", |n, i| i.max(n)),
        ("ecr", |n, i| i.min(n)),
        ("rc16", |n, i| (n & 1) * 2 + (i & 1)),
    ];
    for (mode, index) in modes {
        g.add(form(format!("prmt.b32.{mode}"), B32, &[B32, B32, B32], move |x| {
            let n = x[2] & 3;
            join([0, 1, 2, 3].map(|i| byte(x, index(n, i) & 7)))
        }));
    }
}

//! `ldmatrix`, `stmatrix` and `movmatrix`, element by element.

use super::{refusal, registers, run};

/// Returns a distinct value for element `(row, column)` of matrix `number`.
fn value(number: usize, row: usize, column: usize) -> u32 {
    (number * 64 + row * 8 + column + 0x1200) as u32
}

/// Returns the two elements of a lane: neighbours in its group's row, or column if transposed.
fn pair(number: usize, lane: usize, transposed: bool) -> u32 {
    let (group, thread) = (lane / 4, lane % 4);
    if transposed {
        value(number, thread * 2, group) | value(number, thread * 2 + 1, group) << 16
    } else {
        value(number, group, thread * 2) | value(number, group, thread * 2 + 1) << 16
    }
}

/// Returns the offset of a row in the tile: rows are 48 bytes apart, the last ones first.
fn row_offset(number: usize, row: usize) -> usize {
    (31 - number * 8 - row) * 48
}

/// Copies words from global memory to the shared tile, 16 for each thread.
const FILL: &str = "mad.wide.u32 %d62, %r150, 64, %d60;\nmov.u32 %r149, tile;\nmad.lo.u32 %r148, %r150, 64, %r149;\n";

fn fill() -> String {
    let mut text = FILL.to_owned();
    for word in 0..16 {
        let at = word * 4;
        text += &format!("ld.global.u32 %r140, [%d62+{at}];\nst.shared.u32 [%r148+{at}], %r140;\n");
    }
    text + "bar.warp.sync -1;\n"
}

/// PTX that computes the address of lane `l`'s row: `(31 - l) * 48` in the tile.
const ADDRESS: &str = "sub.u32 %r147, 31, %r150;\nmad.lo.u32 %r147, %r147, 48, %r149;\n";

fn tile(count: usize) -> Vec<u32> {
    let mut words = vec![0; 512];
    for number in 0..count {
        for row in 0..8 {
            for column in 0..8 {
                let byte = row_offset(number, row) + column * 2;
                words[byte / 4] |= value(number, row, column) << (byte % 4 * 8);
            }
        }
    }
    words
}

#[test]
fn matrices_are_loaded_row_by_row_and_transposed() {
    for (count, transposed, space) in
        [(1, "", ".shared"), (2, ".trans", ".shared::cta"), (4, "", ""), (4, ".trans", ".shared"), (1, ".trans", "")]
    {
        let address = if space.is_empty() {
            // The generic address of that row.
            "cvt.u64.u32 %d59, %r147;\ncvta.shared.u64 %d59, %d59;\n"
        } else {
            ""
        };
        let place = if space.is_empty() { "%d59" } else { "%r147" };
        let list = registers(0, count);
        let mut body = format!(
            "{}{ADDRESS}{address}ldmatrix.sync.aligned.m8n8.x{count}{transposed}{space}.b16 {list}, [{place}];\n\
             mad.wide.u32 %d63, %r150, 4, %d61;\n",
            fill()
        );
        for number in 0..count {
            body += &format!("st.global.u32 [%d63+{}], %r{number};\n", number * 128);
        }
        let mut out = vec![0; count * 32];
        run(&body, &tile(count), &mut out).unwrap();
        for (index, got) in out.into_iter().enumerate() {
            let want = pair(index / 32, index % 32, !transposed.is_empty());
            assert_eq!(got, want, "x{count}{transposed}{space} matrix {} lane {}", index / 32, index % 32);
        }
    }
}

#[test]
fn addresses_of_lanes_without_a_row_do_not_count() {
    let body = format!(
        "{}{ADDRESS}setp.gt.u32 %p1, %r150, 7;\n@%p1 mov.u32 %r147, -3;\n\
         ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r0}}, [%r147];\n\
         mad.wide.u32 %d63, %r150, 4, %d61;\nst.global.u32 [%d63], %r0;\n",
        fill()
    );
    let mut out = vec![0; 32];
    run(&body, &tile(1), &mut out).unwrap();
    assert_eq!(out, (0..32).map(|lane| pair(0, lane, false)).collect::<Vec<_>>());
}

#[test]
fn matrices_are_stored_row_by_row_and_transposed() {
    for (count, transposed) in [(1, ""), (2, ""), (4, ""), (1, ".trans"), (4, ".trans")] {
        let mut input = vec![0; 512];
        for number in 0..count {
            for lane in 0..32 {
                input[number * 32 + lane] = pair(number, lane, !transposed.is_empty());
            }
        }
        let mut body = "mad.wide.u32 %d62, %r150, 4, %d60;\nmov.u32 %r149, tile;\n".to_owned() + ADDRESS;
        for number in 0..count {
            body += &format!("ld.global.u32 %r{number}, [%d62+{}];\n", number * 128);
        }
        body += &format!(
            "stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 [%r147], {};\nbar.warp.sync -1;\n\
             mad.lo.u32 %r148, %r150, 64, %r149;\nmad.wide.u32 %d63, %r150, 64, %d61;\n",
            registers(0, count)
        );
        for word in 0..16 {
            let at = word * 4;
            body += &format!("ld.shared.u32 %r140, [%r148+{at}];\nst.global.u32 [%d63+{at}], %r140;\n");
        }
        let mut out = vec![0; 512];
        run(&body, &input, &mut out).unwrap();
        assert_eq!(out, tile(count), "x{count}{transposed}");
    }
}

#[test]
fn a_matrix_in_registers_is_transposed() {
    let body = "mad.wide.u32 %d62, %r150, 4, %d60;\nmad.wide.u32 %d63, %r150, 4, %d61;\n\
                ld.global.u32 %r1, [%d62];\nmovmatrix.sync.aligned.m8n8.trans.b16 %r0, %r1;\n\
                movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r1;\nst.global.u32 [%d63], %r0;\n\
                st.global.u32 [%d63+128], %r1;";
    let input: Vec<u32> = (0..32).map(|lane| pair(0, lane, false)).collect();
    let mut out = vec![0; 64];
    run(body, &input, &mut out).unwrap();
    let want: Vec<u32> = (0..64).map(|lane| pair(0, lane % 32, true)).collect();
    assert_eq!(out, want);
}

#[test]
fn rows_have_to_be_aligned_and_in_shared_memory() {
    let fault = |setup: &str, place: &str| {
        let body = format!(
            "mov.u32 %r149, tile;\n{ADDRESS}{setup}\nldmatrix.sync.aligned.m8n8.x2.b16 {{%r0, %r1}}, [{place}];"
        );
        run(&body, &[0], &mut [0; 32]).unwrap_err().report
    };
    let report = fault("cvt.u64.u32 %d59, %r147;\ncvta.shared.u64 %d59, %d59;", "%d59+8");
    assert!(report.contains("misaligned access of 16 bytes"), "{report}");
    assert!(report.contains("`ldmatrix.sync.aligned.m8n8.x2.b16`") && report.contains("thread (0, 0, 0)"), "{report}");
    let report = fault("mov.u64 %d59, %d61;", "%d59");
    assert!(report.contains("illegal access of 16 bytes") && report.contains("in global memory"), "{report}");
    let report = fault("setp.eq.u32 %p1, %r150, 15;\n@%p1 mov.u32 %r147, 8192;", "%r147");
    assert!(report.contains("illegal access"), "{report}");
}

#[test]
fn other_shapes_are_refused() {
    for (body, why) in [
        ("ldmatrix.sync.aligned.m16n16.x1.trans.shared.b8 {%r0, %r1}, [tile];", "only m8n8 matrices"),
        ("ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {%r0}, [tile];", "only m8n8 matrices"),
        ("stmatrix.sync.aligned.m16n8.x1.trans.shared.b8 [tile], {%r0};", "only m8n8 matrices"),
        ("ldmatrix.sync.aligned.m8n8.x3.shared.b16 {%r0}, [tile];", "unsupported opcode"),
        ("ldmatrix.sync.aligned.m8n8.x2.global.b16 {%r0, %r1}, [%d60];", "unsupported opcode"),
        ("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r0}, [tile];", "expected 2 registers, found 1"),
        ("ldmatrix.sync.aligned.m8n8.x1.shared.b16 %r0, [tile];", "braces"),
        ("movmatrix.sync.aligned.m8n8.b16 %r0, %r1;", "unsupported opcode"),
    ] {
        let message = refusal(body);
        assert!(message.contains(why), "{body}: {message}");
    }
}

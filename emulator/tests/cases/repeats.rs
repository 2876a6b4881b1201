//! Several accesses by one address register: the pattern of its addresses may be reused only while they are unchanged,
//! and only for the lanes for which it was found.

use super::harness::words;

const LANES: u32 = 32;

/// The lanes' words in shared memory, at `%d2`: 10 times the lane in the first row, and more in the next ones.
const TABLE: &str = "\
    .shared .align 8 .b8 table[512];\n\
    mul.wide.u32 %d3, %r0, 4;\nmov.u64 %d2, table;\nadd.s64 %d2, %d2, %d3;\n\
    mul.lo.u32 %r1, %r0, 10;\nst.shared.u32 [%d2], %r1;\n\
    add.u32 %r2, %r1, 1000;\nst.shared.u32 [%d2+128], %r2;\n\
    add.u32 %r2, %r1, 2000;\nst.shared.u32 [%d2+256], %r2;\n\
    add.u32 %r2, %r1, 3000;\nst.shared.u32 [%d2+384], %r2;\n";

fn check(body: &str, expected: impl Fn(u32) -> u32) {
    let expected: Vec<u32> = (0..LANES).map(expected).collect();
    assert_eq!(words(&format!("{TABLE}{body}"), LANES), expected, "{body}");
}

#[test]
fn offsets_from_one_register_are_offsets_from_the_same_row() {
    let body = "ld.shared.u32 %r3, [%d2];\nld.shared.u32 %r4, [%d2+384];\nld.shared.u32 %r5, [%d2+128];\n\
                add.u32 %r3, %r3, %r4;\nadd.u32 %r3, %r3, %r5;\nst.global.u32 [%d1], %r3;";
    check(body, |lane| 4000 + 30 * lane);
}

#[test]
fn an_address_that_was_changed_is_looked_at_anew() {
    let body = "ld.shared.u32 %r3, [%d2];\nadd.s64 %d2, %d2, 128;\nld.shared.u32 %r4, [%d2];\n\
                sub.u32 %r3, %r4, %r3;\nst.global.u32 [%d1], %r3;";
    check(body, |_| 1000);
    // From rows to an element that all lanes read, and back.
    let body = "ld.shared.u32 %r3, [%d2];\nmov.u64 %d4, %d2;\nmov.u64 %d2, table;\nld.shared.u32 %r4, [%d2+12];\n\
                mov.u64 %d2, %d4;\nld.shared.u32 %r5, [%d2+128];\nadd.u32 %r3, %r3, %r4;\nadd.u32 %r3, %r3, %r5;\n\
                st.global.u32 [%d1], %r3;";
    check(body, |lane| 1030 + 20 * lane);
}

#[test]
fn a_load_may_replace_its_own_address() {
    // Each lane's 64-bit word points to that of the opposite lane.
    let body = "mul.wide.u32 %d3, %r0, 8;\nmov.u64 %d2, table;\nadd.s64 %d2, %d2, %d3;\nmov.u64 %d7, %d2;\n\
                sub.u32 %r1, 31, %r0;\nmul.wide.u32 %d5, %r1, 8;\nmov.u64 %d4, table;\nadd.s64 %d4, %d4, %d5;\n\
                st.shared.u64 [%d2], %d4;\nld.shared.u64 %d2, [%d2];\nst.shared.u64 [%d2], %d3;\n\
                ld.shared.u64 %d6, [%d7];\ncvt.u32.u64 %r2, %d6;\nst.global.u32 [%d1], %r2;";
    check(body, |lane| 8 * (31 - lane));
}

#[test]
fn what_only_some_lanes_looked_at_is_not_for_all() {
    for guard in ["setp.lt.u32 %p1, %r0, 7", "setp.gt.u32 %p1, %r0, 40", "setp.eq.u32 %p1, %r0, 31"] {
        let body = format!(
            "mov.u32 %r3, 0;\n{guard};\n@%p1 ld.shared.u32 %r3, [%d2];\nld.shared.u32 %r4, [%d2+128];\n\
             @%p1 ld.shared.u32 %r5, [%d2+256];\n@!%p1 ld.shared.u32 %r5, [%d2+384];\n\
             add.u32 %r4, %r4, %r5;\nst.global.u32 [%d1], %r4;"
        );
        let is_on = |lane: u32| match guard.split(' ').next() {
            Some("setp.lt.u32") => lane < 7,
            Some("setp.eq.u32") => lane == 31,
            _ => false,
        };
        check(&body, |lane| 1000 + 20 * lane + if is_on(lane) { 2000 } else { 3000 });
    }
}

#[test]
fn jumps_into_the_middle_forget() {
    let body = "mov.u32 %r3, 0;\nmov.u32 %r6, 0;\nld.shared.u32 %r4, [%d2];\n\
                AGAIN:\nld.shared.u32 %r5, [%d2];\nadd.u32 %r3, %r3, %r5;\nadd.s64 %d2, %d2, 128;\n\
                add.u32 %r6, %r6, 1;\nsetp.lt.u32 %p1, %r6, 4;\n@%p1 bra AGAIN;\nst.global.u32 [%d1], %r3;";
    check(body, |lane| 6000 + 40 * lane);
    // Half of the lanes reach the second load on another path, with another address.
    let body = "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra OTHER;\nld.shared.u32 %r4, [%d2];\nbra BOTH;\n\
                OTHER:\nadd.s64 %d2, %d2, 256;\nld.shared.u32 %r4, [%d2];\n\
                BOTH:\nld.shared.u32 %r5, [%d2+128];\nadd.u32 %r4, %r4, %r5;\nst.global.u32 [%d1], %r4;";
    check(body, |lane| 20 * lane + if lane < 16 { 5000 } else { 1000 });
}

#[test]
fn a_barrier_lets_other_warps_look_at_theirs() {
    // Two warps, whose words are a row apart.
    let body = ".shared .align 8 .b8 rows[256];\nmul.wide.u32 %d3, %r0, 4;\nmov.u64 %d2, rows;\nadd.s64 %d2, %d2, %d3;\n\
                st.shared.u32 [%d2], %r0;\nbar.sync 0;\nld.shared.u32 %r3, [%d2];\nst.global.u32 [%d1], %r3;";
    assert_eq!(words(body, 64), (0..64).collect::<Vec<u32>>());
}

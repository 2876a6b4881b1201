//! Lanes that diverge and reconverge.

use super::harness::{Arg, Device, words};

#[test]
fn lanes_leave_a_loop_at_their_own_time() {
    let device = Device::programs();
    let out = device.upload(&[0u32; 1000]);
    device.launch("collatz", [8, 1, 1], [128, 1, 1], &[Arg::U64(out), Arg::U32(1000)]).unwrap();
    let expected: Vec<u32> = (1..=1000u64)
        .map(|start| {
            let (mut value, mut steps) = (start, 0);
            while value != 1 {
                value = if value % 2 == 1 { 3 * value + 1 } else { value / 2 };
                steps += 1;
            }
            steps
        })
        .collect();
    assert_eq!(device.download::<u32>(out, 1000), expected);
}

#[test]
fn nested_loops_with_breaks_and_returns_agree_with_rust() {
    fn nested(i: i32) -> i32 {
        let mut sum = 0;
        for a in 0..=i % 7 {
            if a == 5 {
                continue;
            }
            for b in a..i {
                if (a * b + i) % 11 == 0 {
                    break;
                }
                if sum > 1000 {
                    return -sum;
                }
                sum += a ^ b;
            }
        }
        sum
    }
    for vector in [true, false] {
        let mut device = Device::programs();
        device.vector = vector;
        let out = device.upload(&[0i32; 300]);
        device.launch("nested", [3, 1, 1], [100, 1, 1], &[Arg::U64(out), Arg::I32(300)]).unwrap();
        assert_eq!(device.download::<i32>(out, 300), (0..300).map(nested).collect::<Vec<_>>());
    }
}

#[test]
fn lanes_meet_again_where_their_paths_join() {
    let body = "and.b32 %r1, %r0, 3;\nsetp.eq.u32 %p1, %r1, 2;\n@%p1 bra A;\nsetp.eq.u32 %p2, %r1, 1;\n@!%p2 bra B;\n\
                mov.u32 %r2, 5;\nbra B;\nA:\nmov.u32 %r2, 6;\nB:\nactivemask.b32 %r3;\nst.global.u32 [%d1], %r3;";
    assert_eq!(words(body, 32), [u32::MAX; 32]);
}

#[test]
fn guards_switch_single_lanes() {
    let body = "setp.lt.u32 %p1, %r0, 10;\nmov.u32 %r2, 1;\n@%p1 mov.u32 %r2, 2;\n@!%p1 add.u32 %r2, %r2, 7;\n\
                @%p1 st.global.u32 [%d1], %r2;\n@%p1 exit;\nst.global.u32 [%d1], %r2;";
    let expected: Vec<u32> = (0..40).map(|i| if i < 10 { 2 } else { 8 }).collect();
    assert_eq!(words(body, 40), expected);
}

#[test]
fn a_branch_table_sends_each_lane_its_way() {
    let body = "rem.u32 %r1, %r0, 3;\nts: .branchtargets A, B, C;\nbrx.idx %r1, ts;\n\
                A:\nmov.u32 %r2, 10;\nbra.uni E;\nB:\nmov.u32 %r2, 20;\nbra.uni E;\nC:\nmov.u32 %r2, 30;\nE:\n\
                st.global.u32 [%d1], %r2;";
    let expected: Vec<u32> = (0..64).map(|i| [10, 20, 30][i % 3]).collect();
    assert_eq!(words(body, 64), expected);
}

#[test]
fn special_registers_say_where_a_thread_is() {
    let body = "mov.u32 %r1, %laneid;\nmov.u32 %r2, %warpid;\nmov.u32 %r3, %lanemask_lt;\npopc.b32 %r3, %r3;\n\
                mad.lo.u32 %r4, %r2, 100, %r1;\nsub.u32 %r5, %r3, %r1;\nadd.u32 %r4, %r4, %r5;\n\
                mov.u32 %r6, %ntid.x;\nmad.lo.u32 %r4, %r6, 1000, %r4;\nst.global.u32 [%d1], %r4;";
    let expected: Vec<u32> = (0..70).map(|i| 70_000 + i / 32 * 100 + i % 32).collect();
    assert_eq!(words(body, 70), expected);
}

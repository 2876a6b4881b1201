//! Whether a module has variables that outlive a launch.

/// Whether the text, without comments and strings, declares anything in `.global`. In doubt it does: such a module is only loaded more often.
///
/// Inside a body, `.global` also is a part of instructions (`ld.global.u32`), and in a parameter list it says where a pointer points
/// (`.ptr .global`). Everywhere else it declares.
pub(super) fn are_declared(plain: &str) -> bool {
    let mut depth = 0_usize;
    let mut before = "";
    let mut rest = plain;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|c| !is_part_of_word(c)).unwrap_or(rest.len());
        if length == 0 {
            match first {
                '{' => depth += 1,
                '}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            if !first.is_whitespace() {
                before = "";
            }
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let is_instruction = depth > 0 && first.is_ascii_alphabetic();
        for part in rest[..length].split('.').filter(|part| !part.is_empty()) {
            if part == "global" && before != "ptr" && !is_instruction {
                return true;
            }
            before = part;
        }
        rest = &rest[length..];
    }
    false
}

fn is_part_of_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '$' | '%')
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: &str = ".version 8.8\n.target sm_80\n.extern .shared .align 16 .b8 room[];\n.const .align 4 .u32 c = 1;\n\
                          .visible .entry f(.param .u64 .ptr .global .align 4 p, .param .u64 .ptr.global q)\n{\n\
                          .reg .b32 %r<2>; ld.param.u64 %rd1, [p]; @%p1 bra L; L:ld.volatile.global.u32 %r1, [%rd1];\n\
                          { st.global.v2.u32 [%rd1], {%r1, %r1}; } cvta.to.global.u64 %rd2, %rd1; ret;\n}\n";

    #[test]
    fn a_kernel_that_only_uses_global_memory_declares_none() {
        assert!(!are_declared(KERNEL));
    }

    #[test]
    fn a_variable_is_found_however_it_is_written() {
        for variable in [
            ".global .u32 done;",
            ".visible .global .align 4 .u32 done = 0;",
            ".visible.global.u32 done;",
            ".extern .global .u32 done;",
            ".common\t.global\n.u32 done;",
            ".attribute(.managed) .global .u32 done;",
            ".align 4.global .u32 done;",
        ] {
            assert!(are_declared(&format!("{KERNEL}{variable}")), "behind: {variable}");
            assert!(are_declared(&format!("{variable}\n{KERNEL}")), "before: {variable}");
            assert!(are_declared(&KERNEL.replace("ret;", &format!("{variable} ret;"))), "in a body: {variable}");
        }
        assert!(are_declared(&KERNEL.replace("sm_80\n", "sm_80.global .u32 done;\n")));
    }
}

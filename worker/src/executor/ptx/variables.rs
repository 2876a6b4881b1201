//! Finds the variables of a module that outlive a launch, and their size.

use super::type_bytes;

/// Returns whether the text, without comments and strings, declares anything in `.global`; true if unsure, which only means that the module
/// is loaded more often.
///
/// Inside a body, `.global` is also a part of instructions (`ld.global.u32`), and in a parameter list it marks the target of a pointer
/// (`.ptr .global`). Everywhere else it is a declaration.
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

/// Returns the size in bytes of everything declared in `.global` and `.const`, as in `.visible .global .align 4 .v2 .f32 a[4][8], b;`. The
/// text must be without comments and strings. An unreadable size counts as one; such a text does not load.
pub(super) fn bytes(plain: &str) -> u64 {
    plain.split([';', '{', '}']).map(declared).fold(0, u64::saturating_add)
}

/// Returns the size of one declaration in bytes; zero for any other statement.
fn declared(statement: &str) -> u64 {
    // An instruction begins with a letter, a predicate or a register. A list in parentheses contains parameters or an attribute's value.
    let statement = statement.trim_start();
    if !statement.starts_with('.') {
        return 0;
    }
    let after_attribute = || Some(statement.split_once(".attribute")?.1.split_once(')')?.1);
    let statement = after_attribute().unwrap_or(statement).split('(').next().unwrap_or_default();
    let mut parts = statement.split('.').map(str::trim).skip_while(|part| !matches!(*part, "global" | "const"));
    if parts.next().is_none() {
        return 0;
    }
    let mut elements = 1;
    for part in parts {
        let (word, names) = part.split_once(char::is_whitespace).unwrap_or((part, ""));
        match (word, type_bytes(word)) {
            ("v2", _) => elements = 2,
            ("v4", _) => elements = 4,
            (_, Some(size)) => return variables(names, elements * size as u64),
            _ => {}
        }
    }
    0
}

/// Returns the size in bytes of declarators such as `a[4][8], b = 1`; `element` is the size of an element.
fn variables(names: &str, element: u64) -> u64 {
    let count = |name: &str| name.split('[').skip(1).map(extent).fold(1, u64::saturating_mul);
    names.split(',').map(|name| count(name).saturating_mul(element)).fold(0, u64::saturating_add)
}

/// Returns the number at the start of a text such as `8]`, in any base that PTX has.
fn extent(text: &str) -> u64 {
    let digits = text.split(']').next().unwrap_or_default().trim().trim_end_matches('U');
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', b'b' | b'B', ..] => (&digits[2..], 2),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    u64::from_str_radix(digits, radix).unwrap_or(1)
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

    #[test]
    fn variables_and_constants_take_what_they_declare() {
        assert_eq!(bytes(KERNEL), 4, "the constant; shared memory is a block's own");
        for (text, wanted) in [
            (".global .align 4 .b8 big[4000];", 4000),
            (".version 8.8\n.target sm_80\n.address_size 64\n\n.visible .global .u32 done = 0;", 4),
            (".visible.global.align 16.v4.f32 a[4][8], b;", 16 * 33),
            (".const .align 8 .f64 table[2] = {1.5, 2.5};\n.global .u16 x;", 18),
            (".global .b8 hex[0x100], octal[010], binary[0b11], u[7U];", 256 + 8 + 3 + 7),
            (".attribute(.managed) .global .u64 m[2];", 16),
            (".extern .global .u32 unknown[];", 4),
            (".global .b64 all[18446744073709551615];", u64::MAX),
            (".func (.param .u64 .ptr .global p) f (.param .u64 .ptr .const q);", 0),
            ("ld.global.u32 %r1, [x];", 0),
        ] {
            assert_eq!(bytes(text), wanted, "{text}");
        }
    }
}

//! Reads a PTX text without a driver: its kernels, the sizes of their parameters, and whether it has variables.
//!
//! This is a scan, not a parser. It recognises comments, strings, and the most important declaration:
//!
//! ```text
//! .visible .entry saxpy(
//!     .param .u64 .ptr .global .align 4 saxpy_param_0,
//!     .param .align 8 .b8 saxpy_param_1[24]
//! )
//! ```

mod plain;
mod variables;

/// The declarations of a module.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Declarations {
    /// The kernels, in order.
    pub entries: Vec<Entry>,
    /// Whether it may have variables that outlive a launch.
    pub has_variables: bool,
    /// The size of its variables and constants, in bytes.
    pub variable_bytes: u64,
}

/// A kernel as its module declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub name: String,
    /// The size of each parameter in bytes; `None` if the scan does not understand the list.
    pub params: Option<Vec<usize>>,
}

/// Reads a module. An unclear text counts as having variables and unknown parameters, which is safe.
pub(crate) fn declarations(ptx: &str) -> Declarations {
    match plain::plain(ptx) {
        Some(plain) => Declarations {
            entries: entries(&plain),
            has_variables: variables::are_declared(&plain),
            variable_bytes: variables::bytes(&plain),
        },
        None => Declarations { entries: Vec::new(), has_variables: true, variable_bytes: 0 },
    }
}

/// Returns the sizes of a kernel's parameters, if they are unambiguous: repeated declarations must be equal.
pub(crate) fn params_of<'a>(entries: &'a [Entry], name: &str) -> Option<&'a [usize]> {
    let mut known = entries.iter().filter(|entry| entry.name == name).map(|entry| entry.params.as_deref());
    let first = known.next()?;
    if known.all(|other| other == first) { first } else { None }
}

fn entries(plain: &str) -> Vec<Entry> {
    plain.match_indices(".entry").filter_map(|(at, word)| entry(&plain[at + word.len()..])).collect()
}

fn entry(rest: &str) -> Option<Entry> {
    // Otherwise it is another word, such as `.entry_point`.
    if !rest.starts_with(char::is_whitespace) {
        return None;
    }
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%'))).unwrap_or(rest.len());
    let name = rest[..end].to_owned();
    if name.is_empty() {
        return None;
    }
    let rest = rest[end..].trim_start();
    let params = match rest.strip_prefix('(') {
        // A kernel without parameters may leave out the parentheses.
        None => Some(Vec::new()),
        Some(list) => list.find(')').and_then(|end| params(&list[..end])),
    };
    Some(Entry { name, params })
}

fn params(list: &str) -> Option<Vec<usize>> {
    if list.trim().is_empty() {
        return Some(Vec::new());
    }
    list.split(',').map(param).collect()
}

/// Returns the size of a parameter in bytes: `.param .align 8 .b8 name[24]` has 24. `None` for any other form, such as
/// a vector.
fn param(text: &str) -> Option<usize> {
    let (head, extent) = match text.split_once('[') {
        None => (text, None),
        Some((head, extent)) => (head, Some(extent.trim_end().strip_suffix(']')?.trim())),
    };
    let mut size = None;
    for word in head.split_whitespace().filter_map(|word| word.strip_prefix('.')) {
        match (word, size) {
            ("param" | "align" | "ptr" | "global" | "const" | "shared" | "local", _) => {}
            (_, None) => size = Some(type_bytes(word)?),
            (_, Some(_)) => return None,
        }
    }
    match extent {
        None => size,
        Some(extent) => extent.parse::<usize>().ok()?.checked_mul(size?),
    }
}

fn type_bytes(word: &str) -> Option<usize> {
    match word {
        "u8" | "s8" | "b8" => Some(1),
        "u16" | "s16" | "b16" | "f16" => Some(2),
        "u32" | "s32" | "b32" | "f32" | "f16x2" => Some(4),
        "u64" | "s64" | "b64" | "f64" | "texref" | "samplerref" | "surfref" => Some(8),
        "b128" => Some(16),
        _ => None,
    }
}

/// Returns the first line number that a JIT log blames, as in `ptxas application ptx input, line 12; error : …`.
pub(crate) fn blamed_line(log: &str) -> Option<u32> {
    log.match_indices("line ").find_map(|(at, word)| {
        let digits = &log[at + word.len()..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        digits[..end].parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(ptx: &str) -> Vec<Entry> {
        declarations(ptx).entries
    }

    #[test]
    fn kernels_and_their_parameters_are_found() {
        let ptx = "// .entry ghost()\n.version 8.8\n.visible .entry saxpy(\n\t.param .f32 saxpy_param_0, /* , */\n\
                   .param .u64 .ptr .global .align 4 saxpy_param_1,\n.param .align 8 .b8 saxpy_param_2[24]\n)\n{ ret; }\n\
                   .entry bare\n{ ret; }\n.weak .entry _Z3fooi(.param .u32 p){ ret; }";
        let found = entries(ptx);
        let names: Vec<&str> = found.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["saxpy", "bare", "_Z3fooi"]);
        assert_eq!(found[0].params, Some(vec![4, 8, 24]));
        assert_eq!(found[1].params, Some(vec![]));
        assert_eq!(found[2].params, Some(vec![4]));
    }

    #[test]
    fn a_kernel_in_a_string_is_none_and_one_declared_twice_must_be_alike() {
        let found = entries(".file 1 \"x .entry k() \"\n.visible .entry k(.param .u64 p){ ret; }");
        assert_eq!(params_of(&found, "k"), Some(&[8][..]));
        assert_eq!(params_of(&found, "other"), None);
        let alike = entries(".entry k(.param .u64 p);\n.entry k(.param .u64 q){ ret; }");
        assert_eq!(params_of(&alike, "k"), Some(&[8][..]));
        let unlike = entries(".entry k();\n.entry k(.param .u64 q){ ret; }");
        assert_eq!(params_of(&unlike, "k"), None);
        assert_eq!(params_of(&entries(".file 1 \"\\\" .entry k() \"\n.entry k(.param .u64 q){}"), "k"), None);
    }

    #[test]
    fn a_list_that_is_not_understood_is_not_guessed() {
        for param in
            [".param .v4 .u32 p", ".param .u32 .v4 p", ".param .b8 p[2][3]", ".param.u32 p", ".param .b8 p[0x8]"]
        {
            assert_eq!(entries(&format!(".entry f({param})"))[0].params, None, "{param}");
        }
        assert_eq!(entries(".entry f(.param .x7 p)")[0].params, None);
        assert_eq!(entries(".entry f(")[0].params, None);
    }

    #[test]
    fn every_kernel_of_the_catalog_is_understood_and_has_no_variables() {
        for kernel in gpufleet_kernels::catalog().iter() {
            let found = declarations(kernel.ptx());
            assert!(!found.entries.is_empty(), "{}", kernel.name);
            assert!(found.entries.iter().all(|entry| entry.params.is_some()), "{}", kernel.name);
            assert!(!found.has_variables, "{}", kernel.name);
        }
    }

    #[test]
    fn the_blamed_line_is_found() {
        assert_eq!(blamed_line("ptxas application ptx input, line 12; error   : Unknown symbol"), Some(12));
        assert_eq!(blamed_line("something on line x, and line 7"), Some(7));
        assert_eq!(blamed_line("no number"), None);
    }
}

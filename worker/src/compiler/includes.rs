//! Checks the includes of a source.
//!
//! If the kernel blocks the file system, this check only makes an include that would fail anyway fail with its line. Otherwise it is the
//! only protection, and it can't parse C++: NVRTC decides where comments, strings and skipped groups begin and end, and a check that parses
//! them differently could miss an include. So the check keeps no state between lines. A word that can include a file must be in a complete
//! plain line, or in a place where it can't be part of a directive, whatever precedes it.

/// Words that include a file, or may do so in a future compiler.
const WORDS: [&str; 4] = ["include", "include_next", "import", "embed"];
/// Other spellings of `#` and of a continued line, and operators that test whether a file exists.
const ODD: [&str; 4] = ["??=", "??/", "__has_include", "__has_embed"];
/// The only special characters in the names of NVIDIA's headers.
const NAME_CHARACTERS: [char; 5] = ['_', '-', '.', '/', '+'];

const ONLY_CUDAS: &str = "only CUDA's own headers can be included, by name and without a path";
const ONLY_PLAIN: &str = "this worker cannot hide its file system from the compiler, so write each include on a line of its own, as \
    in #include <name>; trigraphs, __has_include and __has_embed are not accepted";

/// The line of a refused source, and the reason.
type Refused = (u32, String);

/// Refuses a source that may read files of the worker's host.
pub(super) fn check(code: &str, sandboxed: bool) -> Result<(), Refused> {
    for (line, text) in (1..).zip(code.lines()) {
        let operand = text.trim_start().strip_prefix('#').and_then(|rest| rest.trim_start().strip_prefix("include"));
        let name = operand.and_then(|operand| operand.trim_start().strip_prefix(['<', '"']));
        if name.is_some_and(|name| name.starts_with('/') || name.contains("..")) {
            return Err(refused(line, ONLY_CUDAS));
        }
    }
    if sandboxed {
        return Ok(());
    }
    if let Some(at) = ODD.iter().find_map(|odd| code.find(odd)) {
        return Err(refused(line_of(code, at), ONLY_PLAIN));
    }
    // Check both the lines as they are and with continued lines joined, because lines are not joined in a raw string.
    check_words(code)?;
    check_words(&joined(code))
}

fn check_words(text: &str) -> Result<(), Refused> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '$';
    let mut end = 0;
    while let Some(start) = text[end..].find(is_in_word).map(|start| end + start) {
        let rest = &text[start..];
        end = start + rest.find(|c| !is_in_word(c)).unwrap_or(rest.len());
        let word = &text[start..end];
        if WORDS.contains(&word) && can_include(&text[..start], word, &text[end..]) {
            return Err(refused(line_of(text, start), ONLY_PLAIN));
        }
    }
    Ok(())
}

/// Returns whether a word between these texts may read a file, other than in a plain include. A directive is first in its line, apart from
/// blanks and comments. A word right after the end of a comment counts, because the comment may have begun in an earlier line.
fn can_include(before: &str, word: &str, after: &str) -> bool {
    let near = before.trim_end_matches(is_blank);
    let Some(to_mark) = near.strip_suffix('#').or_else(|| near.strip_suffix("%:")) else {
        let own_line = last_line(before).trim_matches(is_blank);
        return near.ends_with("*/") || word == "import" && matches!(own_line, "" | "export");
    };
    let to_mark = last_line(to_mark).trim_matches(is_blank);
    match to_mark {
        "" => !is_plain(last_line(before), word, after),
        _ => to_mark.ends_with("*/"),
    }
}

/// Returns whether this is `#include <name>`, with at most a comment after it. A name in quotes does not count, because NVRTC also searches
/// it in the child's folder, which is the root folder.
fn is_plain(before: &str, word: &str, after: &str) -> bool {
    let is_directive = before.split([' ', '\t']).collect::<String>() == "#" && word == "include";
    let operand = after.lines().next().unwrap_or_default().trim();
    let split = operand.strip_prefix('<').and_then(|operand| operand.split_once('>'));
    is_directive
        && split.is_some_and(|(name, rest)| {
            let rest = rest.trim_start();
            is_name(name) && (rest.is_empty() || rest.starts_with("//") || rest.starts_with("/*"))
        })
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || NAME_CHARACTERS.contains(&c);
    !name.is_empty() && !name.starts_with('/') && !name.contains("..") && name.chars().all(plain)
}

/// Returns whether a compiler may ignore the character.
fn is_blank(c: char) -> bool {
    c.is_whitespace() || c.is_control() || !c.is_ascii()
}

/// Returns the text after the last line break; a carriage return counts as one too.
fn last_line(text: &str) -> &str {
    text.rsplit(['\n', '\r']).next().unwrap_or_default()
}

/// Returns the code with continued lines joined. Empty lines follow each joined line, so that later lines keep their numbers.
fn joined(code: &str) -> String {
    let mut text = String::with_capacity(code.len());
    let mut owed = 1;
    for line in code.split('\n') {
        if let Some(start) = line.strip_suffix('\\').or_else(|| line.strip_suffix("\\\r")) {
            text.push_str(start);
            owed += 1;
        } else {
            text.push_str(line);
            text.extend(std::iter::repeat_n('\n', owed));
            owed = 1;
        }
    }
    text
}

fn line_of(text: &str, at: usize) -> u32 {
    1 + text[..at].matches('\n').count() as u32
}

fn refused(line: u32, why: &str) -> Refused {
    (line, format!("line {line}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_of_host_files_are_refused_with_their_line() {
        for code in ["#include \"/etc/passwd\"", "#  include <../../secret>", " #include </etc/shadow>"] {
            assert_eq!(check(&format!("int x;\n{code}\n"), true).unwrap_err().0, 2, "{code}");
            assert_eq!(check(&format!("int x;\n{code}\n"), false).unwrap_err().0, 2, "{code}");
        }
        assert!(check("#include NAME", true).is_ok(), "the sandbox has closed whatever it is");
    }

    /// Disguised includes. NVRTC 12.9 reads the file for each of them except the last ones, which another front end may read.
    const DISGUISES: [&str; 25] = [
        "#include \"etc/passwd\"",
        "/**/#include \"/etc/shadow\"",
        "#/**/include \"/etc/shadow\"",
        "#/*\n*/include \"/etc/shadow\"",
        "#/* # */include \"/etc/shadow\"",
        "/*\n// */ #include \"/etc/shadow\"",
        "%:include \"/etc/shadow\"",
        "%: /**/ include \"/etc/shadow\"",
        "??=include \"/etc/shadow\"",
        "#inc\\\nlude \"/etc/shadow\"",
        "#inc\\\r\nlude \"/etc/shadow\"",
        "#inc??/\nlude \"/etc/shadow\"",
        "\\\n#\\\ninclude \"/etc/shadow\"",
        "#\rinclude \"/etc/shadow\"",
        "\u{b}#\u{c}include\u{b}\"/etc/shadow\"",
        "#if 0\ndon't /* \n#endif\n#include NAME\n// */",
        "const char* a = R\"(\" /* )\";\n#include NAME\n// */",
        "#include_next <shadow>",
        "#define NAME \"/etc/shadow\"\n#include NAME",
        "#if __has_include(\"/etc/shadow\")\n#endif",
        "#import <shadow>",
        "#embed \"/etc/shadow\"",
        "\u{feff}#include \"/etc/shadow\"",
        "x;\r#include \"/etc/shadow\"",
        "export import \"/etc/shadow\";",
    ];

    #[test]
    fn an_include_in_disguise_is_refused_where_files_are_not_closed() {
        for code in DISGUISES {
            let code = format!("int x;\n{code}\n");
            assert!(check(&code, false).is_err(), "{code:?}");
        }
        for name in ["/etc/shadow", "a/../../b", "a\\057b", "a b", "", "é.h"] {
            assert!(check(&format!("#include <{name}>"), false).is_err(), "{name}");
        }
    }

    #[test]
    fn the_line_of_a_disguise_is_told_also_behind_continued_lines() {
        let (line, told) = check("#define A 1 \\\n + 1\nint x;\n/**/ #include <a.h>\n", false).unwrap_err();
        assert_eq!(line, 4);
        assert!(told.starts_with("line 4: this worker cannot hide"), "{told}");
    }

    #[test]
    fn ordinary_code_passes_where_files_are_not_closed() {
        let code = r#"
            // #include <stdio.h> is not there, and "/* is no comment
            /* nor does
             * #include "/etc/passwd" mean anything here */
            #include <cuda_fp16.h>
            #  include <cuda/std/limits> // of libcu++
            #include <cub/block/block_reduce.cuh> /* and CUB */
            #define INCLUDE(x) do { \
                include(x); \
            } while (0)
            #define TEXT(x) #x
            __device__ int include(int import) { return import ? '"' : 1'000; }
            __device__ const char* text = "include \"me\" \\ \n" R"(#include <x>)";
            __device__ float embed(float dim) { return embedding /* of */ (dim); }
        "#;
        assert_eq!(check(code, false), Ok(()));
        assert_eq!(check(&code.replace('\n', "\r\n"), false), Ok(()));
    }
}

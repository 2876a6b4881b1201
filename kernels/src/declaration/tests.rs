use std::time::{Duration, Instant};

use proptest::{prelude::*, sample::select};

use gpufleet_schema::Dtype;

use super::*;

const NO_OPTIONS: [&str; 0] = [];

/// Reads the kernel `k`, and shows each parameter with `<` for an input and `>` for another array.
fn read(code: &str) -> Result<String, String> {
    read_entry(code, "k", &NO_OPTIONS)
}

fn read_entry(code: &str, entry: &str, options: &[&str]) -> Result<String, String> {
    let shown = |parameter: &Parameter| {
        let mark = match (parameter.is_pointer, parameter.is_input) {
            (true, true) => "<",
            (true, false) => ">",
            (false, _) => "",
        };
        let dtype = parameter.dtype().map_or("?", Dtype::name);
        format!("{mark}{}:{dtype}", parameter.name.as_deref().unwrap_or("_"))
    };
    match parameters(code, entry, options) {
        Ok(found) => Ok(found.iter().map(shown).collect::<Vec<_>>().join(" ")),
        Err(problem) => Err(problem.to_string()),
    }
}

fn kernel(parameters: &str) -> String {
    format!("extern \"C\" __global__ void k({parameters}) {{}}")
}

// python/tests/test_signature.py has the types and the errors: it reads through this module too.

#[test]
fn the_type_is_spelled_with_what_its_names_stand_for() {
    let code =
        "typedef unsigned int word;\ntemplate <typename T> __global__ void k(const T *x, V<const word> v, word) {}";
    let found = parameters(code, "k<cuda::std::complex< float >>", &NO_OPTIONS).unwrap();
    let spelled: Vec<String> = found.iter().map(Parameter::spelled).collect();
    assert_eq!(spelled, ["const cuda::std::complex<float>*", "V<const unsigned int>", "unsigned int"]);
    assert_eq!(found[0].base, ["cuda", "::", "std", "::", "complex", "<", "float", ">"]);
    assert_eq!((&*found[0].written, found[2].name.as_deref()), ("const T * x", None));
}

#[test]
fn declarations_differ_in_names_but_not_in_types() {
    let declared = "extern \"C\" __global__ void k(const float *, int count, float);";
    let read = |definition: &str| read(&format!("{declared}{}", kernel(definition)));
    assert_eq!(read("const float *x, int n, float a").unwrap(), "<x:f32 count:i32 a:f32");
    assert!(read("float *x, int n, float a").unwrap_err().contains("more than once"));
    assert!(read("const float *x, int n").unwrap_err().contains("more than once"));
}

#[test]
fn directives_are_found_at_the_starts_of_lines() {
    for code in [
        "/* a\n b */ #define REAL double\n",
        "\u{feff}#define REAL double\n",
        "  # /* define */ define REAL double // /* float\n",
        "#define REAL /* float\n*/ double\n",
        "#\\\ndefine REAL \\\r\n double\n",
        "#if 0 /* off */\n#define REAL float\n# if A\n# else\n# endif\n#else\n#define REAL double\n#endif\n",
        "#define REAL float\n#undef REAL // again\n#define REAL double\n",
        "#define REAL double\n#define REAL double\n",
        "#define OTHER float\nconst char *text = \"a\\\\\"; /* \" */ #define REAL float\n#define REAL double\n",
        "const char *raw = R\"x(\n#define REAL float\n)y\" )x\";\n#define REAL double\n",
        "#if 0\ndon't \"\n#endif\n#define REAL double\n",
    ] {
        let code = format!("{code}{}", kernel("REAL *x"));
        assert_eq!(read(&code).as_deref(), Ok(">x:f64"), "{code}");
    }
}

#[test]
fn options_define_macros() {
    let code = kernel("REAL *x EMPTY");
    for options in [
        &["-DREAL=double", "-DEMPTY="][..],
        &["-D", "REAL=double", "--define-macro", "EMPTY="],
        &["--define-macro=REAL=double", "-define-macro=EMPTY=", "--use_fast_math", "-D"],
    ] {
        assert_eq!(read_entry(&code, "k", options).as_deref(), Ok(">x:f64"), "{options:?}");
    }
    let code = "#define N(x) x\nextern \"C\" __global__ void k(float x[N]) {}";
    assert!(read_entry(code, "k", &[]).unwrap_err().contains("macro"));
    let code = kernel("REAL *x");
    assert!(read_entry(&code, "k", &["-DREAL(x)=x"]).unwrap_err().contains("macro"));
    assert_eq!(read_entry(&code, "k", &["-DREAL"]).as_deref(), Ok(">x:?"));
}

#[test]
fn other_languages_and_odd_texts_are_no_obstacle() {
    for (code, expected) in [
        (kernel("float *größe, int größer"), ">größe:f32 größer:i32"),
        (kernel("float *übung"), ">übung:f32"),
        (format!("// \u{0}\u{2028}😀\n😀;{}", kernel("int n")), "n:i32"),
        (format!("#define \n{}", kernel("int n")), "n:i32"),
        (kernel("int $n"), "$n:i32"),
        (kernel("int n = 1'000, float x = 0x1.8p+3f"), "n:i32 x:f32"),
    ] {
        assert_eq!(read(&code).as_deref(), Ok(expected), "{code}");
    }
    for code in [kernel("int n,"), kernel("[3]"), kernel("[[maybe_unused]] int n"), kernel("...")] {
        assert!(read(&code).unwrap_err().contains("not a plain list"), "{code}");
    }
}

#[test]
fn kernels_are_listed_once_with_what_their_declarations_say() {
    let code = "__global__ void b(int n); namespace x { template <class T> __global__ void a(T n) {} }\n\
                extern \"C\" { __global__ __launch_bounds__(1) void b(int n) {} int main() { } }";
    let Kernels { declared, is_partial } = kernels(code, &NO_OPTIONS);
    let shown: Vec<_> =
        declared.iter().map(|each| (&*each.name, each.is_c, each.is_template, each.is_in_namespace)).collect();
    assert_eq!(shown, [("b", true, false, false), ("a", false, true, true)]);
    assert!(!is_partial);
    assert!(kernels("#define K(n) n\nK(1)", &NO_OPTIONS).is_partial);
}

#[test]
fn macros_and_names_that_never_end_are_left_alone() {
    let doubling = |kind: &str| {
        let lines: Vec<String> = (0..64)
            .map(|at| match kind {
                "macro" => format!("#define A{at} A{0} A{0}\n", at + 1),
                _ => format!("typedef A{0} A{0} A{at};\n", at + 1),
            })
            .collect();
        lines.concat() + &kernel("A0 x")
    };
    let began = Instant::now();
    assert!(read(&doubling("macro")).unwrap_err().contains("a macro"));
    assert_eq!(read(&doubling("typedef")).as_deref(), Ok("x:?"));
    assert!(read(&format!("#define A A\n{}", kernel("A x"))).unwrap_err().contains("a macro"));
    assert!(read(&format!("#define A B A\n#define B A B\n{}", kernel("A x"))).unwrap_err().contains("a macro"));
    assert_eq!(read(&format!("typedef A B; typedef B A; {}", kernel("A x"))).as_deref(), Ok("x:?"));
    let empty: String = (0..40).map(|at| format!("#define E{at} E{0} E{0}\n", at + 1)).collect();
    let many = format!("{empty}#define E40\n{}{}", "E10 ".repeat(100_000), kernel("int n"));
    assert_eq!(read(&many).as_deref(), Ok("n:i32"), "the macros before the kernel do not matter");
    assert!(began.elapsed() < Duration::from_secs(20));
}

/// Each takes milliseconds. With time proportional to the square of the length it would take minutes.
#[test]
fn large_sources_are_read_in_proportion_to_their_length() {
    const BYTES: usize = 1 << 18;
    for pattern in [
        "(",
        "{",
        "<",
        "}",
        "a(b)",
        "\"\\",
        "'\\\"",
        "/*",
        "R\"x(",
        "R\"",
        "#define A A\n",
        "#define A(",
        "#if 0\n",
        "\\\n",
        "a::",
        "template<",
        "__global__ k(int n)",
        "template<class T>__global__ k(T n)",
        "typedef a b ",
        "typedef b a;",
        "namespace {",
        "extern \"C\" {",
        "int n,",
        "é",
        "1'",
    ] {
        let long = pattern.repeat(BYTES / pattern.len());
        let began = Instant::now();
        for start in ["", "extern \"C\" __global__ void k(", "#if A ", "\""] {
            let _either = read(&format!("{start}{long}"));
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{pattern}");
    }
}

/// The pieces from which random sources are made.
const PIECES: [&str; 44] = [
    "extern \"C\"",
    "__global__",
    "void",
    "k",
    "j",
    "(",
    ")",
    "{",
    "}",
    "[",
    "]",
    "<",
    ">",
    "float",
    "unsigned",
    "const",
    "*",
    "&",
    ",",
    ";",
    "::",
    "=",
    "template",
    "typename",
    "T",
    "typedef",
    "using",
    "namespace",
    "struct",
    "...",
    "#define",
    "#undef",
    "#if 0",
    "#else",
    "#endif",
    "\n",
    "\\\n",
    "\"",
    "'",
    "R\"x(",
    ")x\"",
    "/*",
    "*/",
    "//",
];

proptest! {
    #[test]
    fn any_text_is_read_or_refused(
        pieces in prop::collection::vec(prop_oneof![8 => select(PIECES.to_vec()).prop_map(str::to_owned), 1 => "\\PC{0,3}"], 0..60),
        spaced in any::<bool>(),
        entry in prop_oneof!["k", "::k", "k<float>", "k<float, 4>", "\\PC{0,8}"],
        option in prop_oneof!["-DT=float", "-D", "-DT\\(", "-D#=", "\\PC{0,8}"],
    ) {
        let code = pieces.join(if spaced { " " } else { "" });
        let options = [option];
        let known = kernels(&code, &options);
        if let Ok(parameters) = parameters(&code, &entry, &options) {
            prop_assert!(!known.declared.is_empty());
            for parameter in parameters {
                let _shown = (parameter.spelled(), parameter.dtype());
            }
        }
    }

    #[test]
    fn any_characters_are_read_or_refused(code in "[ \\n\"'(){}\\[\\]<>,;*&#/:=R\\\\é]{0,60}|.{0,60}") {
        let _either = parameters(&code, "k", &NO_OPTIONS);
        let _either = parameters(&code, &code, &[&code]);
    }
}

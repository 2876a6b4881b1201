use super::*;

fn list(options: &[&str]) -> Vec<String> {
    options.iter().map(|option| (*option).to_owned()).collect()
}

fn of(options: &[&str]) -> Result<Vec<String>, String> {
    canonical(&list(options))
}

fn refusal(options: &[&str]) -> String {
    of(options).expect_err(&format!("{options:?} is refused"))
}

#[test]
fn every_spelling_of_an_allowed_option_comes_out_as_its_long_name() {
    for option in OPTIONS.iter().filter(|option| !matches!(option.verdict, OptionVerdict::Refused(_))) {
        for value in option.value.samples() {
            let long = value.as_deref().map_or_else(|| option.names[0].to_owned(), |value| option.with(value));
            let wanted = if option.verdict == OptionVerdict::Ignored { vec![] } else { vec![long] };
            for spelling in option.spellings(value.as_deref()) {
                assert_eq!(canonical(&spelling), Ok(wanted.clone()), "{spelling:?}");
            }
        }
    }
}

#[test]
fn every_spelling_of_a_refused_option_is_refused_by_name_with_the_reason() {
    for option in OPTIONS {
        let OptionVerdict::Refused(why) = option.verdict else { continue };
        let spellings = option.spellings(None).into_iter().chain(option.spellings(Some("x")));
        for spelling in spellings {
            let told = canonical(&spelling).expect_err(&spelling[0]);
            assert!(told.contains(&format!("{:?}", spelling[0])) && told.contains(why), "{told}");
        }
    }
}

#[test]
fn no_name_stands_in_the_table_twice() {
    let mut names: Vec<&str> = OPTIONS.iter().flat_map(|option| option.names).copied().collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn options_of_the_issue_are_allowed_in_all_spellings() {
    let wanted = of(&["--maxrregcount=64", "--define-macro=N=4"]).unwrap();
    assert_eq!(of(&["-maxrregcount", "64", "-D", "N=4"]).unwrap(), wanted);
    assert_eq!(of(&["--maxrregcount 64", "-DN=4"]).unwrap(), wanted);
    assert_eq!(of(&["--split-compile=4", "-split-compile", "0"]).unwrap(), Vec::<String>::new());
    assert_eq!(of(&["-rdc=false"]).unwrap(), ["--relocatable-device-code=false"]);
    assert_eq!(of(&["--device-int128", "-extra-device-vectorization", "-dopt=on"]).unwrap().len(), 3);
}

#[test]
fn a_value_that_is_not_taken_is_told_with_what_is() {
    assert_eq!(
        refusal(&["--maxrregcount=100000"]),
        "option --maxrregcount does not accept \"100000\"; use a number from 1 to 255"
    );
    assert!(refusal(&["-rdc=true"]).contains("use false; its output must be linked"));
    assert!(refusal(&["--dopt=off"]).contains("--device-debug disables optimisation"));
    assert!(refusal(&["-Xptxas", "--output-file=/tmp/x"]).contains("files"));
    for wrong in ["--fmad=maybe", "-std=/etc", "-D=1", "-D 1=1", "-U N M", "--diag-error=1,", "--maxrregcount=+5"] {
        assert!(refusal(&[wrong]).contains("does not accept"), "{wrong}");
    }
    assert_eq!(refusal(&["-D"]), "option --define-macro needs a value: NAME or NAME=TEXT");
    assert!(refusal(&["--use_fast_math=true"]).contains("takes no value"));
    assert!(refusal(&[&format!("-DX={}", "x".repeat(VALUE_BYTES_MAX))]).contains("the maximum is"));
}

#[test]
fn an_unknown_option_is_refused_and_a_near_one_is_suggested() {
    assert!(refusal(&["--use-fast-math"]).ends_with("did you mean --use_fast_math?"));
    assert!(refusal(&["--maxregcount=3"]).ends_with("did you mean --maxrregcount?"));
    assert!(refusal(&["--lineinfo"]).ends_with("did you mean -lineinfo?"));
    for strange in ["", "q", "@file", "--"] {
        assert!(refusal(&[strange]).contains(&format!("option {strange:?}")), "{strange:?}");
    }
}

#[test]
fn a_macro_brings_no_second_line() {
    for text in ["-DX=1\n#include \"/etc/passwd\"", "-DX=1\r#include \"/etc/passwd\"", "-DX=\0"] {
        assert!(refusal(&[text]).contains("control character"));
    }
    assert!(refusal(&["-D", "X=1\n#include </etc/passwd>"]).contains("control character"));
}

#[test]
fn lines_are_asked_for_once() {
    assert_eq!(line_information(&of(&["-DN=1"]).unwrap()), Some("--generate-line-info"));
    for option in ["-lineinfo", "--generate-line-info", "-G", "--device-debug"] {
        assert_eq!(line_information(&of(&[option]).unwrap()), None, "{option}");
    }
}

//! Finds the line of a program that failed on a device, and quotes it with the lines around it.

use gpufleet_schema::{Failure, Program};

use crate::compiler;

/// Adds the line that an executor's failure names, if it names one, and the lines around it.
pub(super) fn quoted(failure: Failure, program: &Program<'_>) -> Failure {
    let report = failure.detail.as_deref();
    match program {
        Program::Source { code, .. } => {
            // The driver knows only lines of the compiled PTX, which the submitter does not have.
            let line = report.and_then(|report| reported_line(report, &format!("{}:", compiler::FILE_NAME)));
            failure.at_line(line).in_program(code)
        }
        Program::Ptx(text) => {
            let line = failure.line.or_else(|| reported_line(report?, "PTX line "));
            failure.at_line(line).in_program(text)
        }
        Program::Catalog(_) | Program::Cubin(_) | Program::Session { .. } | Program::Host(_) => failure,
    }
}

/// Returns the line number after `mark` in the emulator's report of a place, such as "at kernel.cu:5 (PTX line 31, `ld.global.u32`)". A
/// GPU's driver reports no place.
fn reported_line(report: &str, mark: &str) -> Option<u32> {
    let place = report.lines().find_map(|line| line.trim_start().strip_prefix("at "))?;
    let number = place.split_once(mark)?.1;
    number.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use gpufleet_schema::{Excerpt, FailureCode, Verdict};

    use super::*;

    const REPORT: &str = "illegal access of 4 bytes at 0x10 in global memory in kernel `k`\n  \
                          at kernel.cu:2, inlined at kernel.cu:5 (PTX line 3, `ld.global.u32`)\n  \
                          block (0, 0, 0), thread (0, 0, 0)";
    const LINES: &str = "one\ntwo\nthree\nfour\nfive\nsix";

    fn fault() -> Failure {
        Failure::new(Verdict::User, FailureCode::KernelFault, "illegal address").with_detail(REPORT)
    }

    fn source() -> Program<'static> {
        Program::Source { code: LINES.into(), options: Vec::new() }
    }

    #[test]
    fn a_fault_is_found_in_the_program_that_was_submitted() {
        let in_source = quoted(fault(), &source());
        assert_eq!(in_source.line, Some(2));
        assert_eq!(in_source.source, Some(Excerpt { first_line: 1, text: "one\ntwo\nthree\nfour\nfive".to_owned() }));
        let in_ptx = quoted(fault(), &Program::Ptx(LINES.into()));
        assert_eq!(in_ptx.line, Some(3));
        assert_eq!(in_ptx.source, Excerpt::around(LINES, 3));
    }

    #[test]
    fn a_line_of_compiled_ptx_is_no_line_of_the_source() {
        let refused = Failure::new(Verdict::User, FailureCode::LoadError, "unknown instruction").at_line(Some(4));
        assert_eq!(quoted(refused.clone(), &Program::Ptx(LINES.into())).source, Excerpt::around(LINES, 4));
        let in_source = quoted(refused, &source());
        assert_eq!((in_source.line, in_source.source), (None, None));
    }

    #[test]
    fn a_report_without_a_place_has_no_line() {
        for report in ["", "at", "at kernel.cu:", "  at kernel.cu:x", "at kernel.cu:99999999999", "in kernel.cu:7"] {
            assert_eq!(reported_line(report, "kernel.cu:"), None, "{report:?}");
        }
        assert_eq!(reported_line("x\n  at PTX line 14, `trap`", "PTX line "), Some(14));
    }
}

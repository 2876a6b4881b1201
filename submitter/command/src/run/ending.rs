//! Decides the exit code of a run whose command has ended.

use super::program::ProgramEnd;
use crate::exit::Exit;

/// The fleet ended the session before the command was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    pub exit: Exit,
    pub reason: String,
}

/// The exit code, and the line about it where it is not the command's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub code: u8,
    pub note: Option<String>,
}

/// `has_lacked`: the program has needed something that sessions lack.
pub fn decide(program: ProgramEnd, cut: Option<&Cut>, has_lacked: bool) -> Ending {
    let other = |exit: Exit, why: String| {
        let code = exit.code();
        Ending { code, note: Some(format!("{why}; the command {program}, and gpufleet run exits with {code}")) }
    };
    match cut {
        Some(Cut { exit, reason }) => other(*exit, format!("the session ended before the command was done ({reason})")),
        None if has_lacked && program.is_own_failure() => {
            other(Exit::SessionLacks, "the command failed after it needed something that sessions lack".to_owned())
        }
        None => Ending { code: program.code(), note: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exit_code_is_that_of_the_command_unless_the_session_ended_first() {
        let cut = |exit| Some(Cut { exit, reason: "time limit of 1 h".to_owned() });
        let code = |program, cut: Option<Cut>, lacked| decide(program, cut.as_ref(), lacked).code;
        let (success, failure, killed) = (ProgramEnd::Code(0), ProgramEnd::Code(3), ProgramEnd::Signal(9));
        assert_eq!(code(success, None, false), 0);
        assert_eq!(code(failure, None, false), 3);
        assert_eq!(code(killed, None, false), 137);
        assert_eq!(code(success, cut(Exit::JobStopped), false), 5);
        assert_eq!(code(failure, cut(Exit::FleetFailed), true), 10);
        assert_eq!(code(failure, None, true), 13);
        assert_eq!(code(ProgramEnd::Signal(6), None, true), 13);
        // A program may do without what it asked for, and a person may end it.
        assert_eq!(code(success, None, true), 0);
        assert_eq!(code(ProgramEnd::Signal(2), None, true), 130);
    }

    #[test]
    fn the_last_line_has_both_codes() {
        let cut = Cut { exit: Exit::JobStopped, reason: "time limit of 1 h".to_owned() };
        assert_eq!(
            decide(ProgramEnd::Code(0), Some(&cut), false).note.unwrap(),
            "the session ended before the command was done (time limit of 1 h); the command exited with 0, and gpufleet run exits with 5"
        );
        assert!(decide(ProgramEnd::Code(1), None, true).note.unwrap().ends_with("exits with 13"));
        assert_eq!(decide(ProgramEnd::Code(1), None, false).note, None);
    }
}

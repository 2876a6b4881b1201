//! Finds the letters that a typed id selects.

use std::collections::BTreeSet;

use gpufleet::{DeadLetter, schema::JobId};

use crate::{complaint::Complaint, exit::Exit, recent::digits};

/// A shorter part is probably a typing mistake.
const PART_MIN: usize = 4;
/// The most ids that an ambiguity error lists.
const SHOWN_MAX: usize = 10;

/// An id, or the beginning or the end of one, and the letters that match it.
#[derive(Debug)]
pub struct Wanted {
    typed: String,
    whole: Vec<usize>,
    part: Vec<usize>,
    /// A few of the ids that begin or end with the typed text.
    names: BTreeSet<String>,
}

/// Checks a typed id.
pub fn id(text: &str) -> Result<String, String> {
    let text = text.trim();
    if digits(text).is_empty() {
        return Err("expected an id as `gpufleet dead list` shows it, or its beginning or end".to_owned());
    }
    Ok(text.to_owned())
}

impl Wanted {
    pub fn new(typed: &str) -> Self {
        Self { typed: typed.to_owned(), whole: Vec::new(), part: Vec::new(), names: BTreeSet::new() }
    }

    /// Compares a letter with the typed text, and returns whether it matches.
    pub fn offer(&mut self, index: usize, letter: &DeadLetter) -> bool {
        let names = letter.jobs.iter().map(ToString::to_string).chain(letter.message_id.clone());
        let (mut is_whole, mut is_part) = (false, false);
        for name in names {
            let (name_key, typed) = comparable(&name, &self.typed);
            if name_key == typed {
                is_whole = true;
            } else if typed.len() >= PART_MIN && (name_key.starts_with(&typed) || name_key.ends_with(&typed)) {
                is_part = true;
                if self.names.len() < SHOWN_MAX {
                    self.names.insert(name);
                }
            }
        }
        if is_whole {
            self.whole.push(index);
        } else if is_part {
            self.part.push(index);
        }
        is_whole || is_part
    }

    /// All letters with exactly this id; else those of the only id that begins or ends with it. `unseen` letters were not compared.
    pub fn found(&self, unseen: usize) -> Result<&[usize], Complaint> {
        let typed = &self.typed;
        let not_found = |message: String| Complaint::new(Exit::NotFound, message);
        match (self.whole.as_slice(), self.part.as_slice()) {
            ([], []) if typed.len() < PART_MIN => Err(not_found(format!(
                "no dead-lettered message has the id {typed:?}, which is too short for a part of an id"
            ))
            .hint(format!("give at least {PART_MIN} characters; `gpufleet dead list` lists the messages"))),
            ([], []) if unseen > 0 => {
                Err(not_found(format!("none of the oldest dead-lettered messages has the id {typed:?}"))
                    .hint(format!("{unseen} newer messages could not be read; replay or discard older ones first")))
            }
            ([], []) => Err(not_found(format!("no dead-lettered message has the id {typed:?}"))
                .hint("`gpufleet dead list` lists the messages; `gpufleet show` shows any other job")),
            ([], [_, _, ..]) if self.names.len() > 1 => {
                let names: Vec<&str> = self.names.iter().map(String::as_str).collect();
                Err(not_found(format!(
                    "the id {typed:?} is ambiguous; several dead-lettered messages begin or end with it, such as"
                ))
                .detail(names.join("\n"))
                .hint("give more characters of the id"))
            }
            ([], found) => Ok(found),
            (found, _) => Ok(found),
        }
    }
}

/// The ids of jobs compare without case and hyphens. Other message ids are chosen by their producers, so they compare exactly.
fn comparable(name: &str, typed: &str) -> (String, String) {
    match name.parse::<JobId>() {
        Ok(_) => (digits(name), digits(typed)),
        Err(_) => (name.to_owned(), typed.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = "01990f3e-0000-7000-8000-00000000000a";
    const SECOND: &str = "01990f3e-0000-7000-8000-00000000000b";

    fn letter(jobs: &[&str], message_id: Option<&str>) -> DeadLetter {
        DeadLetter {
            jobs: jobs.iter().map(|job| job.parse().unwrap()).collect(),
            message_id: message_id.map(str::to_owned),
            reason: "lost".to_owned(),
            origin: "default.normal".to_owned(),
            user: None,
            kind: None,
            bytes: 10,
            kept_bytes: 10,
            timestamp: None,
        }
    }

    fn found(typed: &str, letters: &[DeadLetter]) -> Result<Vec<usize>, Complaint> {
        let mut wanted = Wanted::new(typed);
        for (index, letter) in letters.iter().enumerate() {
            wanted.offer(index, letter);
        }
        wanted.found(0).map(<[usize]>::to_vec)
    }

    #[test]
    fn an_empty_id_is_refused() {
        for text in ["", " ", "-", "--"] {
            assert!(id(text).is_err(), "{text:?}");
        }
        assert_eq!(id(" 0199 ").unwrap(), "0199");
    }

    #[test]
    fn a_very_short_beginning_matches_nothing_not_even_the_only_letter() {
        let letters = [letter(&[FIRST], Some(FIRST)), letter(&[], Some("m1"))];
        assert!(found("019", &letters).unwrap_err().hint.unwrap().contains("at least 4"));
        assert_eq!(found("0199", &letters).unwrap(), [0]);
        assert_eq!(found("m1", &letters).unwrap(), [1], "a message may have a short id");
    }

    #[test]
    fn case_and_hyphens_of_a_jobs_id_do_not_matter_and_those_of_other_names_do() {
        let letters = [letter(&[FIRST], None), letter(&[], Some("1111-1")), letter(&[], Some("11-111"))];
        assert_eq!(found("01990F3E00007", &letters).unwrap(), [0]);
        assert_eq!(found(&FIRST.to_uppercase(), &letters).unwrap(), [0]);
        assert_eq!(found("11-111", &letters).unwrap(), [2]);
    }

    #[test]
    fn an_ambiguous_beginning_is_refused_with_the_matching_ids() {
        let letters = [letter(&[FIRST], None), letter(&[SECOND], None)];
        let refused = found("01990f3e", &letters).unwrap_err();
        assert_eq!(refused.detail.unwrap(), format!("{FIRST}\n{SECOND}"));
        assert_eq!(found(SECOND, &letters).unwrap(), [1]);
    }

    #[test]
    fn a_job_with_two_letters_is_found_twice() {
        let letters = [letter(&[FIRST], Some(FIRST)), letter(&[SECOND], None), letter(&[FIRST, SECOND], Some("list"))];
        assert_eq!(found(FIRST, &letters).unwrap(), [0, 2]);
        assert_eq!(
            found("01990f3e-0000-7000-8000-00000000000", &[letters[0].clone(), letters[0].clone()]).unwrap(),
            [0, 1]
        );
    }

    #[test]
    fn a_message_with_several_matching_jobs_is_one_letter() {
        assert_eq!(found("01990f3e", &[letter(&[FIRST, SECOND], None)]).unwrap(), [0]);
    }

    #[test]
    fn the_error_for_a_missing_letter_counts_those_that_were_not_compared() {
        let refused = Wanted::new(FIRST).found(7).unwrap_err();
        assert_eq!(refused.exit, Exit::NotFound);
        assert!(refused.hint.unwrap().contains("7 newer"));
    }
}

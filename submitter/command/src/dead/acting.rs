//! Submits dead-lettered jobs again or discards them, one letter after the other. A failure does not stop the others.

use std::collections::BTreeSet;

use gpufleet::{DeadError, DeadLetters, Replayed};

use super::{ChoiceOptions, complaint, find, none, rendering};
use crate::{
    complaint::Complaint,
    exit::Exit,
    output,
    recent::{self, Seen},
};

/// The outcomes of the letters.
#[derive(Debug, Default)]
struct Outcomes {
    done: usize,
    /// Letters that are not tasks. They stay in the queue.
    skipped: usize,
    failures: Vec<Exit>,
    /// The hints that were printed already.
    hints: BTreeSet<String>,
}

pub async fn replay(dead: &mut DeadLetters, choice: &ChoiceOptions) -> Result<Exit, Complaint> {
    let outcomes = for_each(dead, choice, async |dead, index, name| match dead.replay(index).await? {
        Replayed::As(jobs) => {
            jobs.iter().for_each(|job| recent::note(*job, Seen::Submitted));
            let new: Vec<String> = jobs.iter().map(ToString::to_string).collect();
            told(&format!("{name}  ->  {}\n", new.join(" ")))
        }
        Replayed::Unchanged => told(&format!("{name}  ->  sent again unchanged\n")),
        Replayed::Duplicate => {
            output::note(&format!("{name} was in the queue more than once; it was submitted once"));
            Ok(Ok(()))
        }
    })
    .await?;
    if outcomes.skipped > 0 {
        let count = outcomes.skipped;
        output::note(&format!(
            "messages that are not tasks stay in the queue ({count}); `gpufleet dead discard` discards them"
        ));
    }
    outcomes.exit("submitted again")
}

pub async fn discard(dead: &mut DeadLetters, choice: &ChoiceOptions) -> Result<Exit, Complaint> {
    let outcomes = for_each(dead, choice, async |dead, index, name| {
        dead.discard(index).await?;
        told(&format!("discarded {name}\n"))
    })
    .await?;
    outcomes.exit("discarded")
}

type Told = Result<(), Complaint>;

fn told(line: &str) -> Result<Told, DeadError> {
    Ok(output::emit(line))
}

/// An invalid letter does not stop the others. A failure of the broker does.
async fn for_each(
    dead: &mut DeadLetters,
    choice: &ChoiceOptions,
    act: impl AsyncFn(&mut DeadLetters, usize, &str) -> Result<Told, DeadError>,
) -> Result<Outcomes, Complaint> {
    let chosen = if choice.all { Vec::new() } else { find(dead, &choice.ids).await? };
    let is_alone = chosen.len() == 1;
    let mut chosen = chosen.into_iter();
    let mut outcomes = Outcomes::default();
    loop {
        let next = if choice.all { dead.next().await.map_err(|error| complaint(&error))? } else { chosen.next() };
        let Some(index) = next else { break };
        let name = rendering::name(dead.letter(index).expect("the index is that of a letter that was read"));
        match act(dead, index, &name).await {
            Ok(told) => {
                told?;
                outcomes.done += 1;
            }
            Err(DeadError::NoTask { .. } | DeadError::Session | DeadError::HostProgram) if choice.all => {
                outcomes.skipped += 1
            }
            Err(error) if is_alone => return Err(complaint(&error)),
            Err(error) if error.concerns_one_letter() => outcomes.fail(about(&name, complaint(&error))),
            Err(error) => return Err(about(&name, complaint(&error))),
        }
        dead.forget_body(index);
    }
    if choice.all {
        outcomes.report_unseen(dead);
    }
    Ok(outcomes)
}

impl Outcomes {
    fn fail(&mut self, mut complaint: Complaint) {
        self.failures.push(complaint.exit);
        complaint.hint = complaint.hint.filter(|hint| self.hints.insert(hint.clone()));
        output::note(complaint.render(output::stderr_has_colour()).trim_end());
    }

    fn report_unseen(&mut self, dead: &DeadLetters) {
        let unseen = dead.unseen();
        if unseen > 0 {
            let why = format!("{unseen} messages were not attempted, because too many others failed");
            self.fail(Complaint::new(Exit::BadInput, why));
        } else if self.done + self.skipped + self.failures.len() == 0 {
            output::note(none(dead));
        }
    }

    /// The exit code is that of the first failure.
    fn exit(&self, what: &str) -> Result<Exit, Complaint> {
        let Some(first) = self.failures.first() else { return Ok(Exit::Success) };
        let (failed, all) = (self.failures.len(), self.failures.len() + self.done);
        Err(Complaint::new(*first, format!("{failed} of {all} messages were not {what} and stay in the queue")))
    }
}

/// Adds the letter's name, unless the message has it.
fn about(name: &str, complaint: Complaint) -> Complaint {
    match complaint.message.contains(name) {
        true => complaint,
        false => Complaint { message: format!("{name}: {}", complaint.message), ..complaint },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_its_letter_once_and_each_hint_is_printed_once() {
        let refused = Complaint::bad_input("the task of job j is invalid").hint("mend it");
        assert_eq!(about("j", refused.clone()).message, refused.message);
        assert_eq!(about("m", refused.clone()).message, "m: the task of job j is invalid");
        let mut outcomes = Outcomes { done: 3, ..Outcomes::default() };
        outcomes.fail(refused.clone());
        outcomes.fail(Complaint::new(Exit::Broker, "failed to publish").hint("mend it"));
        assert_eq!(outcomes.hints.len(), 1);
        let told = outcomes.exit("discarded").unwrap_err();
        assert_eq!(
            (told.exit, told.message.as_str()),
            (Exit::BadInput, "2 of 5 messages were not discarded and stay in the queue")
        );
    }
}

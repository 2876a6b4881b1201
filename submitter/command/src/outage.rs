//! Waits go on while the ledger is away, for example during a restart of Postgres: they say so once, and ask again.

use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout_at};

use super::{complaint::Complaint, exit::Exit, output, waiting::Spinner};

/// The pause before the ledger is asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// The time for an answer that was asked for shortly before the deadline, or at it: a ledger that works needs a moment too.
const LAST_ANSWER: Duration = Duration::from_secs(1);

/// A wait for what the ledger will say.
#[derive(Debug)]
pub struct Patient<'a> {
    spinner: &'a Spinner,
    /// None waits without a limit.
    deadline: Option<Instant>,
    /// What does not depend on the ledger, for the user: "the jobs keep running".
    consolation: &'static str,
    is_away: bool,
}

impl<'a> Patient<'a> {
    pub fn new(spinner: &'a Spinner, deadline: Option<Instant>, consolation: &'static str) -> Self {
        Self { spinner, deadline, consolation, is_away: false }
    }

    /// Asks until there is an answer, or an error that waiting does not mend. After the deadline the error says what is away.
    pub async fn ask<T>(&mut self, mut ask: impl AsyncFnMut() -> Result<T, Complaint>) -> Result<T, Complaint> {
        loop {
            let answer = match self.deadline {
                Some(deadline) => {
                    let answered_by = deadline.max(Instant::now() + LAST_ANSWER);
                    timeout_at(answered_by, ask()).await.unwrap_or_else(|_| Err(slow()))
                }
                None => ask().await,
            };
            match answer {
                Err(away) if away.may_pass => self.pause(away).await?,
                Err(complaint) => return Err(complaint),
                Ok(answer) => {
                    if std::mem::take(&mut self.is_away) {
                        self.spinner.aside(|| output::note("the ledger answers again"));
                    }
                    return Ok(answer);
                }
            }
        }
    }

    /// Prints something else while the wait is shown.
    pub fn aside(&self, print: impl FnOnce()) {
        self.spinner.aside(print);
    }

    pub fn is_late(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    async fn pause(&mut self, away: Complaint) -> Result<(), Complaint> {
        if self.is_late() {
            let message = format!("the time of --timeout has passed, and the ledger is away: {}", away.message);
            return Err(Complaint::new(Exit::DeadlinePassed, message).hint(self.consolation));
        }
        if !std::mem::replace(&mut self.is_away, true) {
            let told = format!("{}; {}, and this command asks again", away.message, self.consolation);
            self.spinner.aside(|| output::warn(&told));
        }
        let again = Instant::now() + PAUSE;
        sleep_until(self.deadline.map_or(again, |deadline| again.min(deadline))).await;
        Ok(())
    }
}

/// The ledger had no time to answer.
fn slow() -> Complaint {
    Complaint { may_pass: true, ..Complaint::new(Exit::Ledger, "it has not answered yet") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn away() -> Complaint {
        Complaint { may_pass: true, ..Complaint::new(Exit::Ledger, "the database does not answer") }
    }

    #[tokio::test]
    async fn a_ledger_that_is_away_is_asked_again_and_any_other_error_ends_the_wait() {
        let spinner = Spinner::new("waiting");
        let mut patient = Patient::new(&spinner, None, "the jobs keep running");
        let mut asked = 0;
        let answer = patient
            .ask(async || {
                asked += 1;
                if asked < 3 { Err(away()) } else { Ok(asked) }
            })
            .await;
        assert_eq!(answer, Ok(3));
        let refused = Complaint::new(Exit::Ledger, "the database refused user \"u\"");
        assert_eq!(patient.ask(async || Err::<(), _>(refused.clone())).await, Err(refused.clone()));
    }

    #[tokio::test]
    async fn at_the_deadline_the_error_says_what_is_away_and_what_goes_on() {
        let spinner = Spinner::new("waiting");
        for hangs in [false, true] {
            let deadline = Instant::now() + Duration::from_millis(200);
            let mut patient = Patient::new(&spinner, Some(deadline), "the jobs keep running");
            let ask = async || match hangs {
                true => std::future::pending().await,
                false => Err::<(), _>(away()),
            };
            let complaint = patient.ask(ask).await.unwrap_err();
            assert!(Instant::now() >= deadline);
            assert_eq!(complaint.exit, Exit::DeadlinePassed);
            assert!(complaint.message.contains("the ledger is away"), "{}", complaint.message);
            assert_eq!(complaint.hint.as_deref(), Some("the jobs keep running"));
        }
    }
}

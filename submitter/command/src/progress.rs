//! What is shown of a job while it runs: a line on a terminal, now and then a line in a log, and with `--follow` what its kernels print.
//!
//! Messages about progress may be lost. The outcome has the whole text, so the end of the text is printed in any case.

use std::{
    convert::Infallible,
    io::IsTerminal as _,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use clap::Args;
use gpufleet::schema::{JobId, PrintfOutput, Progress};

use super::{
    complaint::Complaint,
    options::{Format, OutputOptions, ResultFormat},
    output, printed,
    waiting::Spinner,
};

mod line;
mod log;
mod printing;
mod subscription;
pub mod text;
mod update;

use line::Standing;
use log::ProgressLog;
use printing::PrintedText;
pub use subscription::Subscription;

/// Jobs that end sooner need no progress, which takes a queue of the broker.
const AFTER: Duration = Duration::from_millis(500);
/// The same where no line can be drawn: the first line of a log comes after ten seconds.
const AFTER_FOR_LOG: Duration = Duration::from_secs(8);
/// The pause before a refusal that may pass is asked about again.
const AGAIN_AFTER: Duration = Duration::from_secs(2);

/// What is shown of a job while it runs.
#[derive(Debug, Args)]
pub struct ProgressOptions {
    /// Print on standard output what the kernels print, while the job runs
    #[arg(long)]
    pub follow: bool,
    /// Show no progress on standard error
    #[arg(short, long)]
    pub quiet: bool,
}

impl ProgressOptions {
    /// The format of the result. With `--follow`, it is on one line of JSON, as updates are.
    pub fn result_format(&self, output: &OutputOptions) -> ResultFormat {
        ResultFormat { format: output.format, is_json_line: self.follow }
    }
}

/// Shows one job.
#[derive(Debug)]
pub struct ProgressDisplay {
    spinner: Spinner,
    is_quiet: bool,
    followed: Followed,
    /// The spinner draws the latest one.
    standing: Arc<Mutex<Option<Standing>>>,
    log: ProgressLog,
    printed: PrintedText,
}

/// What goes to standard output while the job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Followed {
    Nothing,
    Text,
    Updates,
}

impl ProgressDisplay {
    /// Shows the message until there is progress.
    pub fn new(message: String, options: &ProgressOptions, format: Format) -> Self {
        let standing = Arc::<Mutex<Option<Standing>>>::default();
        let followed = match (options.follow, format) {
            (false, _) => Followed::Nothing,
            (true, Format::Table) => Followed::Text,
            (true, Format::Json) => Followed::Updates,
        };
        let drawn = standing.clone();
        let line = move || locked(&drawn).as_ref().and_then(Standing::line);
        let is_drawn = output::stderr_can_move() && !options.quiet;
        Self {
            spinner: Spinner::with_line(message, line).quiet(options.quiet),
            is_quiet: options.quiet,
            followed,
            standing,
            log: ProgressLog::new(Instant::now()),
            printed: PrintedText::new(is_drawn && std::io::stdout().is_terminal()),
        }
    }

    pub fn spinner(&self) -> Spinner {
        self.spinner.clone()
    }

    pub fn is_quiet(&self) -> bool {
        self.is_quiet
    }

    /// Shows the job while the work goes on. Without permission for its progress the work goes on all the same.
    pub async fn during<T>(
        &mut self,
        work: impl Future<Output = T>,
        subscribe: impl AsyncFnMut() -> Result<Subscription, Complaint>,
    ) -> T {
        let mut work = pin!(work);
        if self.followed == Followed::Nothing {
            if self.is_quiet {
                return work.await;
            }
            let after = if output::stderr_can_move() { AFTER } else { AFTER_FOR_LOG };
            if let Ok(done) = tokio::time::timeout(after, &mut work).await {
                return done;
            }
        }
        tokio::select! {
            biased;
            done = &mut work => done,
            never = self.show_all(subscribe) => match never {},
        }
    }

    async fn show_all(&mut self, mut subscribe: impl AsyncFnMut() -> Result<Subscription, Complaint>) -> Infallible {
        let mut is_told = self.followed == Followed::Nothing;
        loop {
            match subscribe().await {
                Ok(mut subscription) => {
                    while let Some(progress) = subscription.updates.next().await {
                        self.show(progress);
                    }
                    break;
                }
                Err(refused) => {
                    let may_pass = refused.may_pass;
                    if !std::mem::replace(&mut is_told, true) {
                        self.warn_of(refused);
                    }
                    if !may_pass {
                        break;
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
        std::future::pending().await
    }

    fn warn_of(&self, refused: Complaint) {
        let consolation = "what the kernels print is shown when the job has ended".to_owned();
        let told: Vec<String> = [refused.message].into_iter().chain(refused.hint).chain([consolation]).collect();
        self.spinner.aside(|| output::warn(&told.join("; ")));
    }

    fn show(&mut self, progress: Arc<Progress>) {
        let before = locked(&self.standing).clone();
        let Some(standing) = Standing::after(before.as_ref(), progress) else { return };
        // First, because the line is drawn again after what is printed.
        *locked(&self.standing) = Some(standing.clone());
        if before.is_some_and(|before| !before.is_same_run(&standing)) {
            self.printed.start_over(&self.spinner);
            if self.followed != Followed::Updates {
                let told = format!("attempt {} began; the job starts over", standing.progress().attempt);
                self.spinner.aside(|| output::note(&told));
            }
        }
        match (self.followed, &standing.progress().printed) {
            (Followed::Text, Some(piece)) => self.printed.print(piece, &self.spinner),
            (Followed::Updates, _) => {
                let line = update::Line::of(standing.progress());
                self.printed.attempt(|| self.spinner.aside(|| output::emit_json_line(&line)));
            }
            (Followed::Text, None) | (Followed::Nothing, _) => {}
        }
        if !self.is_quiet && !output::stderr_can_move() {
            self.log.line(&standing, Instant::now()).iter().for_each(|line| output::note(line));
        }
    }

    /// Prints what is missing of the text once the outcome is known, and takes the text that is printed.
    pub fn finish(
        &mut self,
        job_id: JobId,
        attempt: Option<u32>,
        printed: &mut Option<PrintfOutput>,
    ) -> Result<(), Complaint> {
        if self.followed == Followed::Text {
            let whole = printed.take();
            let shown = locked(&self.standing).as_ref().map(|standing| standing.progress().attempt);
            if let (Some(shown), Some(attempt)) = (shown, attempt)
                && shown != attempt
            {
                self.printed.start_over(&self.spinner);
                whole.iter().for_each(|_| output::note(&format!("attempt {attempt} printed:")));
            }
            let is_complete = self.printed.complete(whole.as_ref());
            let is_tail = whole.as_ref().is_some_and(|whole| whole.is_tail && whole.dropped_bytes > 0);
            match (is_complete, is_tail) {
                // All of it was printed, although the outcome has its end alone.
                (true, true) => {}
                (true, false) => {
                    whole.as_ref().and_then(printed::missing).iter().for_each(|missing| output::warn(missing))
                }
                (false, true) => output::note(&format!(
                    "some of the output was not received; if the job keeps it, `gpufleet fetch {job_id} --dir DIRECTORY` writes all of it to \
                     DIRECTORY/log"
                )),
                (false, false) => {
                    output::note(&format!(
                        "some of the text was not received; `gpufleet logs {job_id}` prints all of it"
                    ));
                    whole.as_ref().and_then(printed::missing).iter().for_each(|missing| output::warn(missing));
                }
            }
        }
        self.printed.result()
    }

    /// Ends the last line of the text, for a report that follows it.
    pub fn end_line(&mut self) -> Result<(), Complaint> {
        self.printed.end_line();
        self.printed.result()
    }
}

fn locked(standing: &Mutex<Option<Standing>>) -> std::sync::MutexGuard<'_, Option<Standing>> {
    standing.lock().expect("no thread panics while holding it")
}

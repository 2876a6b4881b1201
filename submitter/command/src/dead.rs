//! `gpufleet dead`: lists dead-lettered jobs, and submits them again or discards them.

use clap::{Args, Subcommand};
use gpufleet::{
    DeadError, DeadLetters, Fleet, LETTERS_MAX,
    schema::{JobId, TooLarge, bounds::LABELS_MAX},
};

use super::{
    complaint::{Complaint, chain},
    connection,
    exit::Exit,
    json,
    options::{BrokerOptions, Format, OutputOptions, ProducerOptions},
    output, recent,
    waiting::{self, Spinner},
};

mod acting;
mod choice;
mod rendering;

use choice::Wanted;

/// List, show, replay or discard dead-lettered jobs
///
/// A job that the fleet will not retry goes to the dead-letter queue on the broker, together with the reason. While one command reads
/// the queue, another sees fewer messages.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List dead-lettered messages, oldest first
    List(ListOptions),
    /// Show one message in full
    Show(ShowOptions),
    /// Submit jobs again as new jobs with the label replay-of=ID; the old jobs stay dead in the history
    Replay(ReplayOptions),
    /// Discard messages permanently
    Discard(DiscardOptions),
}

#[derive(Debug, Args)]
#[command(after_long_help = json::DEAD_LIST)]
struct ListOptions {
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
}

#[derive(Debug, Args)]
#[command(after_long_help = json::DEAD_SHOW)]
struct ShowOptions {
    /// Id of the job or of the message. The beginning or the end is enough if it is unique; @last is the job that you submitted last
    #[arg(value_parser = choice::id)]
    id: String,
    #[command(flatten)]
    output: OutputOptions,
    #[command(flatten)]
    broker: BrokerOptions,
}

#[derive(Debug, Args)]
pub struct ReplayOptions {
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    producer: ProducerOptions,
}

#[derive(Debug, Args)]
struct DiscardOptions {
    #[command(flatten)]
    choice: ChoiceOptions,
    #[command(flatten)]
    broker: BrokerOptions,
}

/// The selected messages.
#[derive(Debug, Args)]
struct ChoiceOptions {
    /// Ids of jobs or messages, or their beginnings or ends. A complete id selects every message about that job; @last is the job that you
    /// submitted last
    #[arg(value_name = "ID", required_unless_present = "all", value_parser = choice::id)]
    ids: Vec<String>,
    /// Select all messages that are in the queue when the command starts
    #[arg(long, conflicts_with = "ids")]
    all: bool,
}

const EXAMPLES: &str = "\
Examples:
  gpufleet dead list
  gpufleet dead show 01a20400
  gpufleet dead replay --all";
const LOOKING: &str = "nothing was changed";
const ACTING: &str = "messages that were not reported are unchanged, except perhaps the one in progress";

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    match &options.command {
        Command::List(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, LOOKING, async |dead| list(dead, options).await).await
        }
        Command::Show(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, LOOKING, async |dead| show(dead, options).await).await
        }
        Command::Replay(options) => replay(options).await,
        Command::Discard(options) => {
            let fleet = connection::fleet(&options.broker, Fleet::builder());
            with_dead(fleet, ACTING, async |dead| acting::discard(dead, &options.choice).await).await
        }
    }
}

/// Also `gpufleet retry`.
pub async fn replay(options: &ReplayOptions) -> Result<Exit, Complaint> {
    let fleet = connection::producer(&options.producer, Fleet::builder());
    with_dead(fleet, ACTING, async |dead| acting::replay(dead, &options.choice).await).await
}

/// Submits the dead-lettered messages about one job again, for `gpufleet rerun`.
pub async fn replay_job(options: &ProducerOptions, job: JobId) -> Result<Exit, Complaint> {
    let choice = ChoiceOptions { ids: vec![job.to_string()], all: false };
    let fleet = connection::producer(options, Fleet::builder());
    with_dead(fleet, ACTING, async |dead| acting::replay(dead, &choice).await).await
}

async fn with_dead(
    fleet: impl Future<Output = Result<Fleet, Complaint>>,
    when_interrupted: &str,
    act: impl AsyncFnOnce(&mut DeadLetters) -> Result<Exit, Complaint>,
) -> Result<Exit, Complaint> {
    let work = async {
        let fleet = fleet.await?;
        let mut dead = fleet.dead().await.map_err(|error| complaint(&error))?;
        let outcome = act(&mut dead).await;
        dead.requeue().await;
        fleet.close().await;
        outcome
    };
    waiting::unless_interrupted(work, &format!("interrupted: {when_interrupted}")).await
}

/// After a failure it still prints the letters that it read before.
async fn list(dead: &mut DeadLetters, options: &ListOptions) -> Result<Exit, Complaint> {
    let read = Spinner::new("reading the dead-letter queue").around(read(dead)).await;
    match options.output.format {
        Format::Json => output::emit_json(&dead.letters().map(rendering::to_json).collect::<Vec<_>>())?,
        Format::Table if dead.letters().next().is_none() => {
            if read.is_ok() {
                output::note(none(dead));
            }
        }
        Format::Table => {
            output::emit(&rendering::table(dead.letters(), chrono::Utc::now(), output::stdout_width()))?;
        }
    }
    read.map_err(|error| complaint(&error))?;
    if dead.unseen() > 0 {
        output::note(&format!("these are the oldest {LETTERS_MAX}; there are {} more", dead.unseen()));
    }
    Ok(Exit::Success)
}

/// Explains an empty list.
fn none(dead: &DeadLetters) -> &'static str {
    match dead.has_other_consumers() {
        true => "no dead-lettered messages, but another `gpufleet dead` may hold some; try again in a moment",
        false => "no dead-lettered messages",
    }
}

async fn read(dead: &mut DeadLetters) -> Result<(), DeadError> {
    while let Some(index) = dead.next().await? {
        dead.forget_body(index);
    }
    Ok(())
}

async fn show(dead: &mut DeadLetters, options: &ShowOptions) -> Result<Exit, Complaint> {
    let found = find(dead, std::slice::from_ref(&options.id)).await?;
    let index = found[0];
    let letter = dead.letter(index).expect("find returned the index of a letter that it holds");
    match options.output.format {
        Format::Json => output::emit_json(&rendering::with_body(letter, dead.body(index)))?,
        Format::Table => output::emit(&rendering::describe(letter))?,
    }
    if let others @ 1.. = found.len() - 1 {
        output::note(&format!("this is the oldest message about it; there are {others} more"));
    }
    Ok(Exit::Success)
}

/// The selected letters in their order. The command finds all of them before it acts on the first.
async fn find(dead: &mut DeadLetters, ids: &[String]) -> Result<Vec<usize>, Complaint> {
    let ids = ids.iter().map(|id| recent::resolve(id)).collect::<Result<Vec<_>, _>>()?;
    let mut wanted: Vec<Wanted> = ids.iter().map(|id| Wanted::new(id)).collect();
    let reading = Spinner::new("reading the dead-letter queue").around(look_for(dead, &mut wanted)).await;
    reading.map_err(|error| complaint(&error))?;
    let mut found = Vec::new();
    for wanted in &wanted {
        found.extend_from_slice(wanted.found(dead.unseen())?);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

async fn look_for(dead: &mut DeadLetters, wanted: &mut [Wanted]) -> Result<(), DeadError> {
    while let Some(index) = dead.next().await? {
        let letter = dead.letter(index).expect("next returned the index of a letter that it holds");
        let mut is_meant = false;
        for wanted in &mut *wanted {
            is_meant |= wanted.offer(index, letter);
        }
        if !is_meant {
            dead.forget_body(index);
        }
    }
    Ok(())
}

fn complaint(error: &DeadError) -> Complaint {
    let told = |exit| Complaint::new(exit, chain(error));
    match error {
        DeadError::Publish(_) => connection::publish_complaint(&chain(error)),
        DeadError::NoDeadQueue => {
            Complaint::new(Exit::Broker, chain(error)).hint("start a worker on this vhost first: gpufleet-worker run")
        }
        DeadError::NoQueue { pool } => Complaint::new(Exit::Broker, chain(error))
            .hint(format!("start a worker that serves the pool: gpufleet-worker run --pool {pool}")),
        DeadError::Silent { .. } => {
            told(Exit::Broker).hint("another `gpufleet dead` may hold them; try again in a moment")
        }
        DeadError::Interrupted { .. } | DeadError::Stale | DeadError::Gone | DeadError::Settle(_) => {
            told(Exit::Broker).hint("try again; `gpufleet dead list` lists the messages")
        }
        DeadError::StillThere { .. } => {
            told(Exit::Broker).hint("discard it with `gpufleet dead discard`; another replay would submit the job twice")
        }
        DeadError::Unknown { .. } => told(Exit::Broker).hint(
            "if `gpufleet show` finds the new job, discard the message with `gpufleet dead discard`; else replay it again",
        ),
        DeadError::NoTask { .. } => {
            told(Exit::BadInput).hint("only tasks can be submitted again; `gpufleet dead discard` discards the message")
        }
        DeadError::Session => told(Exit::BadInput)
            .hint("start the program again there with gpufleet run; `gpufleet dead discard` discards the message"),
        DeadError::HostProgram => {
            told(Exit::BadInput).hint("after that, `gpufleet dead discard` discards the message")
        }
        DeadError::Cut { .. } | DeadError::TooLarge { .. } => told(Exit::BadInput)
            .hint(format!("submit the job again from its source, but smaller: {}", TooLarge::ADVICE)),
        DeadError::LabelsFull { .. } => told(Exit::BadInput).hint(format!(
            "a job has at most {LABELS_MAX} labels; print it with `gpufleet dead show -o json` and submit it with fewer"
        )),
        DeadError::NotKept | DeadError::Invalid { .. } => told(Exit::BadInput),
        DeadError::Queue(_) => told(Exit::Broker),
    }
}

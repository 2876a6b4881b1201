//! `gpufleet top`: a live view of workers, pools and running jobs.

mod view;

use std::{io, time::Duration};

use chrono::Utc;
use clap::Args;
use gpufleet::{Fleet, schema::JobState};
use gpufleet_ledger::{HistoryFilter, WorkerFilter, why::SHARE_WINDOW};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::{sync::mpsc, time::Instant};

use super::{
    complaint::Complaint,
    connection,
    exit::Exit,
    options::BrokerOptions,
    output, pools,
    source::{Source, SourceOptions},
    spec,
};
use view::Snapshot;

/// Watch workers, pools and running jobs live; q ends it
#[derive(Debug, Args)]
pub struct Options {
    /// Interval between updates, such as 1s or 500ms
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = spec::duration)]
    every: Duration,
    #[command(flatten)]
    broker: BrokerOptions,
    #[command(flatten)]
    source: SourceOptions,
}

/// Jobs of one look. More do not fit on a screen.
pub(super) const JOBS_SHOWN: u32 = 100;
/// How often the keyboard is looked at. A person does not notice it.
const KEY_POLL: Duration = Duration::from_millis(100);

pub async fn run(options: &Options) -> Result<Exit, Complaint> {
    if output::stdout_width().is_none() {
        return Err(Complaint::usage("gpufleet top needs a terminal")
            .hint("for programs: gpufleet workers, gpufleet pools and gpufleet history, each with -o json"));
    }
    let source = Source::open(&options.source).await?;
    let fleet = connection::fleet(&options.broker, Fleet::builder()).await?;
    // The first look comes before the screen is taken, so that its error is printed as any other.
    let first = look(&source, &fleet).await?;
    let mut terminal = ratatui::try_init().map_err(|error| screen(&error))?;
    let shown = show(&mut terminal, first, &source, &fleet, options.every).await;
    ratatui::restore();
    source.close().await;
    let _closed_in_time = tokio::time::timeout(connection::CLOSE_DEADLINE, fleet.close()).await;
    shown.map_err(|error| screen(&error))?;
    Ok(Exit::Success)
}

fn screen(error: &io::Error) -> Complaint {
    Complaint::new(Exit::Internal, format!("failed to draw on the terminal: {error}"))
}

/// Draws until a key ends it. While a service is away, the last look stays, with the error.
async fn show(
    terminal: &mut ratatui::DefaultTerminal,
    mut snapshot: Snapshot,
    source: &Source,
    fleet: &Fleet,
    every: Duration,
) -> io::Result<()> {
    let mut keys = keys();
    let mut look_at = Instant::now() + every;
    loop {
        terminal.draw(|frame| view::draw(frame, &snapshot, Utc::now()))?;
        tokio::select! {
            key = keys.recv() => match key {
                Some(Key::Quit) | None => return Ok(()),
                // The next round draws.
                Some(Key::Redraw) => {}
            },
            looked = async {
                tokio::time::sleep_until(look_at).await;
                look(source, fleet).await
            } => {
                look_at = Instant::now() + every;
                match looked {
                    Ok(next) => snapshot = next,
                    Err(error) => snapshot.problem = Some(error.message),
                }
            }
        }
    }
}

/// Cancelling has no effect.
async fn look(source: &Source, fleet: &Fleet) -> Result<Snapshot, Complaint> {
    let now = Utc::now();
    let workers = source.workers(&WorkerFilter::default()).await?;
    let mut pools = pools::among(source, &workers, now - SHARE_WINDOW).await?;
    let workers = workers.into_iter().filter(|worker| !worker.has_left).collect();
    let running = HistoryFilter { states: vec![JobState::Running], limit: JOBS_SHOWN, ..HistoryFilter::default() };
    let jobs = source.history(&running).await?.jobs;
    // Without the broker the view is still useful.
    let problem = pools::ask(fleet, &mut pools).await.err().map(|complaint| complaint.message);
    Ok(Snapshot { at: now, workers, pools, jobs, problem })
}

#[derive(Debug)]
enum Key {
    Quit,
    Redraw,
}

/// The keys of a thread that reads the terminal until the receiver is dropped.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, keys) = mpsc::channel(1);
    std::thread::spawn(move || {
        while !sender.is_closed() {
            let key = match event::poll(KEY_POLL) {
                Ok(false) => continue,
                Ok(true) => event::read().ok().and_then(|event| meaning(&event)),
                Err(_) => Some(Key::Quit),
            };
            if key.is_some_and(|key| sender.blocking_send(key).is_err()) {
                return;
            }
        }
    });
    keys
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            _ => None,
        },
        Event::Resize(..) => Some(Key::Redraw),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use ratatui::crossterm::event::KeyEvent;

    use super::*;

    #[test]
    fn q_escape_and_ctrl_c_quit_and_a_resize_redraws() {
        let key = |code, modifiers| meaning(&Event::Key(KeyEvent::new(code, modifiers)));
        for (code, modifiers) in [
            (KeyCode::Char('q'), KeyModifiers::NONE),
            (KeyCode::Esc, KeyModifiers::NONE),
            (KeyCode::Char('c'), KeyModifiers::CONTROL),
        ] {
            assert!(matches!(key(code, modifiers), Some(Key::Quit)), "{code}");
        }
        assert!(key(KeyCode::Char('c'), KeyModifiers::NONE).is_none());
        assert!(matches!(meaning(&Event::Resize(80, 24)), Some(Key::Redraw)));
    }
}

//! Draws one look at the fleet.

use chrono::{DateTime, Utc};
use gpufleet_ledger::{JobRow, Pool, WorkerRow, age};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Modifier, Style},
    text::Line,
    widgets::{Block, Cell, Row, Table},
};

use crate::{
    history::{self, UNHEARD},
    output::visible,
    pools::{self, Cells},
    time,
    top::JOBS_SHOWN,
    workers::device_cells,
};

/// What the services said at one time.
#[derive(Debug)]
pub struct Snapshot {
    pub at: DateTime<Utc>,
    pub workers: Vec<WorkerRow>,
    pub pools: Vec<Pool>,
    pub jobs: Vec<JobRow>,
    /// What failed since. The rest is then older.
    pub problem: Option<String>,
}

/// The frame and the headings of a table.
const TABLE_LINES: u16 = 3;
/// The part of the screen that pools take at most, so that jobs have room.
const POOLS_LINES_MAX: u16 = 8;

pub fn draw(frame: &mut Frame<'_>, snapshot: &Snapshot, now: DateTime<Utc>) {
    let devices: usize = snapshot.workers.iter().map(|worker| worker.devices.len().max(1)).sum();
    let lines = |rows: usize| TABLE_LINES.saturating_add(u16::try_from(rows).unwrap_or(u16::MAX));
    let [head, workers, pools, jobs] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Max(lines(devices)),
        Constraint::Length(lines(snapshot.pools.len()).min(POOLS_LINES_MAX)),
        Constraint::Min(TABLE_LINES + 1),
    ])
    .areas(frame.area());
    frame.render_widget(headline(snapshot, now), head);
    draw_workers(frame, workers, snapshot, now);
    draw_pools(frame, pools, &snapshot.pools);
    draw_jobs(frame, jobs, snapshot, now);
}

fn headline(snapshot: &Snapshot, now: DateTime<Utc>) -> Line<'static> {
    let seen = format!("gpufleet top  {}  q: quit", time::seconds(snapshot.at));
    match &snapshot.problem {
        None => Line::from(seen),
        // In words, because a state must not be told by colour alone.
        Some(problem) => {
            Line::from(format!("{seen}  PROBLEM, data of {} ago: {}", age(now - snapshot.at), visible(problem)))
                .style(Style::new().add_modifier(Modifier::BOLD))
        }
    }
}

fn draw_workers(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, now: DateTime<Utc>) {
    let rows = snapshot.workers.iter().flat_map(|worker| {
        let own = [
            worker.worker.clone(),
            worker.state().word().to_owned(),
            worker.jobs_running.to_string(),
            age(now - worker.heard_at),
        ];
        let devices: Vec<Vec<String>> = match worker.devices.as_slice() {
            [] => vec![Vec::new()],
            devices => devices.iter().map(device_cells).collect(),
        };
        devices.into_iter().enumerate().map(move |(index, device)| {
            let own = if index == 0 { own.to_vec() } else { vec![String::new(); own.len()] };
            row([own, device].concat())
        })
    });
    let widths = [
        Constraint::Min(10),
        Constraint::Length(6),
        Constraint::Length(7),
        Constraint::Length(5),
        Constraint::Min(20),
        Constraint::Length(4),
        Constraint::Length(22),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(6),
    ];
    let headings = ["WORKER", "STATE", "RUNNING", "HEARD", "DEVICE", "JOBS", "MEMORY", "BUSY", "TEMP", "POWER"];
    frame.render_widget(table(rows.collect(), &widths, &headings, "Workers"), area);
}

fn draw_pools(frame: &mut Frame<'_>, area: Rect, pools: &[Pool]) {
    let widths = [
        Constraint::Min(12),
        Constraint::Length(8),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(10),
        Constraint::Length(10),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Length(14),
        Constraint::Length(26),
        Constraint::Length(18),
    ];
    let Cells { columns, rows } = pools::cells(pools);
    let rows = rows.into_iter().map(row).collect();
    let headings: Vec<&str> = columns.iter().map(|column| column.heading()).collect();
    frame.render_widget(table(rows, &widths[..columns.len()], &headings, "Pools"), area);
}

fn draw_jobs(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, now: DateTime<Utc>) {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    let rows = snapshot.jobs.iter().map(|job| {
        let state = if job.is_unheard { UNHEARD.to_owned() } else { job.state.to_string() };
        row(vec![
            job.job_id.to_string(),
            state,
            history::kernel(job),
            text(&job.pool),
            text(&job.user_id),
            text(&job.worker),
            history::device(job.device_name.as_deref(), job.emulated),
            job.started_at.map_or_else(|| "-".to_owned(), |at| age(now - at)),
        ])
    });
    let widths = [
        Constraint::Length(36),
        Constraint::Length(8),
        Constraint::Min(8),
        Constraint::Min(8),
        Constraint::Min(6),
        Constraint::Min(8),
        Constraint::Min(10),
        Constraint::Length(7),
    ];
    let headings = ["ID", "STATE", "KERNEL", "POOL", "USER", "WORKER", "DEVICE", "RUNNING"];
    let at_least = if snapshot.jobs.len() < JOBS_SHOWN as usize { "" } else { "the newest " };
    let title = format!("Running jobs: {at_least}{}", snapshot.jobs.len());
    frame.render_widget(table(rows.collect(), &widths, &headings, &title), area);
}

fn row(cells: Vec<String>) -> Row<'static> {
    // Names come from other users and must not control the terminal.
    Row::new(cells.into_iter().map(|cell| Cell::new(visible(&cell).into_owned())))
}

fn table<'a>(rows: Vec<Row<'a>>, widths: &[Constraint], headings: &[&'static str], title: &str) -> Table<'a> {
    let headings = Row::new(headings.iter().copied()).style(Style::new().add_modifier(Modifier::BOLD));
    Table::new(rows, widths.to_vec()).header(headings).block(Block::bordered().title(format!(" {title} ")))
}

#[cfg(test)]
mod tests {
    use gpufleet::schema::JobState;
    use ratatui::{Terminal, backend::TestBackend};

    use super::*;
    use crate::{history::tests::job, workers};

    fn snapshot() -> Snapshot {
        let at = "2026-11-20T08:31:00Z".parse().unwrap();
        let seen = |name, is_silent| WorkerRow {
            heard_at: at - chrono::TimeDelta::seconds(4),
            is_silent,
            ..workers::tests::worker(name, 4, false)
        };
        let running = |id: &str| JobRow { state: JobState::Running, finished_at: None, ..job(id) };
        let foreign = JobRow {
            kernel: Some("\x1b[2Jevil".to_owned()),
            is_unheard: true,
            ..running("01990f3e-0000-7000-8000-000000000002")
        };
        Snapshot {
            at,
            workers: vec![seen("rack-7-1", false), seen("rack-7-2", true)],
            pools: pools::tests::pools(),
            jobs: vec![running("01990f3e-0000-7000-8000-000000000001"), foreign],
            problem: None,
        }
    }

    fn drawn(snapshot: &Snapshot, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let now = snapshot.at + chrono::TimeDelta::seconds(3);
        terminal.draw(|frame| draw(frame, snapshot, now)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn workers_pools_and_running_jobs_are_on_one_screen() {
        insta::assert_snapshot!(drawn(&snapshot(), 140, 24));
    }

    #[test]
    fn a_problem_is_told_with_the_age_of_the_data() {
        let snapshot = Snapshot { problem: Some("the database is away".to_owned()), ..snapshot() };
        assert!(drawn(&snapshot, 140, 24).contains("PROBLEM, data of 3s ago: the database is away"));
    }

    #[test]
    fn a_tiny_terminal_is_drawn_without_a_panic() {
        for (width, height) in [(1, 1), (20, 5), (80, 10)] {
            drawn(&snapshot(), width, height);
        }
    }
}

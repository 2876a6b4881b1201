//! Lists dead letters, and replays or discards them.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use axum::{Extension, Json, extract::State};
use gpufleet::{DeadError, DeadLetters, Fleet, Replayed, schema::JobId};
use gpufleet_service::{chain, problem::Problem, server::Peer};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::{
    audit::Actor,
    letters::{DeadList, ListedLetter, is_among, name_of},
    targets::check_count,
};
use crate::{
    access::Viewer,
    broker::away,
    state::{Console, Shared},
};

/// Letters that a page shows. Reading takes each of them from the queue for a moment.
const LETTERS_MAX: usize = 2000;
/// Viewers who open the page within this time share what was read, because reading moves the whole queue.
const LIST_FRESH_FOR: Duration = Duration::from_secs(3);

/// Letters, by the keys that [`list`] gives them, or by the ids of their jobs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Letters {
    letters: BTreeSet<String>,
}

#[derive(Debug, Default, Serialize)]
pub(crate) struct Acted {
    done: usize,
    /// The ids of new jobs.
    jobs: Vec<JobId>,
    /// Letters that stay, with the reason.
    failed: Vec<(String, String)>,
    /// Why the other letters were left alone.
    stopped: Option<String>,
}

/// The dead letters, the oldest first.
pub(crate) async fn list(State(console): Shared) -> Result<Json<Arc<DeadList>>, Problem> {
    let fleet = console.feed.broker().fleet()?;
    let at_work = Arc::clone(&console);
    let work = async move {
        let mut latest = console.dead_letters.lock().await;
        if let Some((read_at, list)) = &*latest
            && read_at.elapsed() < LIST_FRESH_FOR
        {
            return Ok(Json(Arc::clone(list)));
        }
        let list = Arc::new(read(&fleet).await?);
        *latest = Some((Instant::now(), Arc::clone(&list)));
        Ok(Json(list))
    };
    at_work.to_its_end(work).await
}

async fn read(fleet: &Fleet) -> Result<DeadList, Problem> {
    let mut dead = open(fleet).await?;
    let read = async {
        while dead.letters().count() < LETTERS_MAX {
            let Some(index) = dead.next().await? else { break };
            dead.forget_body(index);
        }
        Ok::<_, DeadError>(())
    };
    let read = read.await;
    let letters = dead.letters().map(ListedLetter::of).collect();
    let list = DeadList { letters, unseen: dead.unseen(), has_other_consumers: dead.has_other_consumers() };
    dead.requeue().await;
    read.map(|()| list).map_err(|error| away(&chain(&error)))
}

/// Submits dead letters again as new jobs.
pub(crate) async fn replay(
    State(console): Shared,
    Extension(viewer): Extension<Viewer>,
    Extension(Peer(peer)): Extension<Peer>,
    Json(letters): Json<Letters>,
) -> Result<Json<Acted>, Problem> {
    let work = act(Arc::clone(&console), Actor { viewer, peer }, letters, "replay", async |dead, index, acted| {
        if let Replayed::As(jobs) = dead.replay(index).await? {
            acted.jobs.extend(jobs);
        }
        Ok(())
    });
    console.to_its_end(work).await
}

/// Discards dead letters.
pub(crate) async fn discard(
    State(console): Shared,
    Extension(viewer): Extension<Viewer>,
    Extension(Peer(peer)): Extension<Peer>,
    Json(letters): Json<Letters>,
) -> Result<Json<Acted>, Problem> {
    let discard = async |dead: &mut DeadLetters, index, _: &mut Acted| dead.discard(index).await;
    let work = act(Arc::clone(&console), Actor { viewer, peer }, letters, "discard", discard);
    console.to_its_end(work).await
}

async fn act(
    console: Arc<Console>,
    actor: Actor,
    Letters { letters }: Letters,
    what: &'static str,
    act: impl AsyncFn(&mut DeadLetters, usize, &mut Acted) -> Result<(), DeadError>,
) -> Result<Json<Acted>, Problem> {
    check_count("letters", letters.len())?;
    let fleet = console.feed.broker().fleet()?;
    let mut latest = console.dead_letters.lock().await;
    *latest = None;
    let (mut acted, mut done) = (Acted::default(), Vec::new());
    let ended = match open(&fleet).await {
        Ok(mut dead) => {
            let ended = act_on_each(&mut dead, &letters, act, &mut acted, &mut done).await;
            dead.requeue().await;
            ended.map_err(|error| away(&chain(&error)))
        }
        Err(problem) => Err(problem),
    };
    drop(latest);
    actor.log(what, &done, ended.as_ref().err());
    actor.report(&console.feed, what, &done).await;
    acted.done = done.len();
    match ended {
        // Some letters may have been handled before an error.
        Err(problem) if acted.done == 0 && acted.failed.is_empty() => Err(problem),
        Err(problem) => Ok(Json(Acted { stopped: Some(problem.detail.into_owned()), ..acted })),
        Ok(()) => Ok(Json(acted)),
    }
}

async fn act_on_each(
    dead: &mut DeadLetters,
    wanted: &BTreeSet<String>,
    act: impl AsyncFn(&mut DeadLetters, usize, &mut Acted) -> Result<(), DeadError>,
    acted: &mut Acted,
    done: &mut Vec<String>,
) -> Result<(), DeadError> {
    while let Some(index) = dead.next().await? {
        let meant = dead.letter(index).filter(|letter| is_among(wanted, letter)).map(name_of);
        if let Some(name) = meant {
            match act(dead, index, acted).await {
                Ok(()) => done.push(name),
                Err(error) if error.concerns_one_letter() => acted.failed.push((name, chain(&error))),
                Err(error) => {
                    // Its jobs were submitted, or may have been.
                    if let DeadError::StillThere { jobs } | DeadError::Unknown { jobs, .. } = &error {
                        acted.jobs.extend(jobs);
                        done.push(name);
                    }
                    return Err(error);
                }
            }
        }
        dead.forget_body(index);
    }
    Ok(())
}

async fn open(fleet: &Fleet) -> Result<DeadLetters, Problem> {
    fleet.dead().await.map_err(|error| away(&chain(&error)))
}

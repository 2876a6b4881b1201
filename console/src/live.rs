//! Server-sent events: the snapshots of a viewer's topics as they change, and a beat each second.

use std::{sync::Arc, time::Duration};

use axum::response::sse::Event;
use futures::{
    Stream, StreamExt as _,
    stream::{self, SelectAll},
};
use gpufleet_service::problem::{Problem, ProblemKind};
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{MissedTickBehavior, interval, sleep},
};
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::CancellationToken;

use crate::{
    feed::{Feed, Latest, Topic},
    snapshot::{Snapshot, now_ms},
};

/// A page has few topics, or one for each device, and a browser's tabs share a stream.
const TOPICS_MAX: usize = 256;
/// Then the browser opens the stream again, and is asked again who it is.
const STREAM_MAX: Duration = Duration::from_secs(3600);
/// Shows the viewer that the stream is alive, and how old unchanged snapshots are.
const BEAT: Duration = Duration::from_secs(1);

/// When the last successful refresh of each topic ended. A beat is not sent for each topic, because that would repeat names each second.
#[derive(Serialize)]
struct Beat {
    now_ms: u64,
    /// In the order of the topics in the request; 0 for a topic without an answer.
    at_ms: Vec<u64>,
}

pub(crate) fn events(
    feed: &Feed,
    names: &[String],
    stop: CancellationToken,
) -> Result<impl Stream<Item = Result<Event, std::convert::Infallible>> + use<>, Problem> {
    if names.is_empty() || names.len() > TOPICS_MAX {
        return Err(Problem::new(
            ProblemKind::BadRequest,
            "The request has an invalid parameter",
            format!("topic: expected 1 to {TOPICS_MAX} of them, found {}", names.len()),
            "name pages of the read API, such as topic=/v1/jobs",
        ));
    }
    let latest: Vec<Latest> = names.iter().map(|name| latest(feed, name)).collect();
    let changes: SelectAll<_> = stream::select_all(latest.iter().cloned().map(WatchStream::new));
    let changes = changes.filter_map(async |snapshot| {
        let snapshot: Arc<_> = snapshot?;
        Some(Event::default().event("snapshot").data(snapshot.to_event()))
    });
    let mut beats = interval(BEAT);
    beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let beats = stream::unfold((beats, latest), async |(mut beats, latest)| {
        beats.tick().await;
        let at_ms = latest.iter().map(|latest| latest.borrow().as_ref().map_or(0, |snapshot| snapshot.at_ms)).collect();
        let beat = serde_json::to_string(&Beat { now_ms: now_ms(), at_ms }).expect("numbers are JSON");
        Some((Event::default().event("beat").data(beat), (beats, latest)))
    });
    let events = stream::select(changes, beats).map(Ok);
    Ok(events.take_until(async move {
        stop.run_until_cancelled(sleep(STREAM_MAX)).await;
    }))
}

/// The snapshots of a topic. One that is refused has its reason in place of an answer, so that the others are seen.
fn latest(feed: &Feed, name: &str) -> Latest {
    Topic::named(name).and_then(|topic| feed.watch(topic)).unwrap_or_else(|problem| {
        watch::Sender::new(Some(Arc::new(Snapshot::new(name.to_owned(), Err(problem), None)))).subscribe()
    })
}

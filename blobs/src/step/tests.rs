use std::{
    pin::Pin,
    sync::mpsc::{self, Receiver, Sender},
};

use futures::poll;

use super::*;

const TRANSFER: Kind = Kind::Transfer { bytes: 10 * BYTES_PER_SECOND_MIN };
const TICK: Duration = Duration::from_millis(10);
/// Time limit for a thread to execute a few lines.
const LONG: Duration = Duration::from_secs(30);

/// A step whose thread reports a byte on each request and confirms it. It ends when the requester is dropped.
struct Told {
    tell: Sender<()>,
    counted: Receiver<()>,
    step: Pin<Box<dyn Future<Output = Result<(), Stopped>>>>,
}

fn told(steps: &Steps, kind: Kind) -> Told {
    let (tell, told) = mpsc::channel();
    let (count, counted) = mpsc::channel();
    let steps = steps.clone();
    let step = Box::pin(async move {
        let work = move |progress: &Progress| {
            while told.recv().is_ok() {
                progress.moved(1)?;
                // The test may have ended.
                count.send(()).ok();
            }
            Ok(())
        };
        steps.run(kind, work).await
    });
    Told { tell, counted, step }
}

impl Told {
    async fn is_pending(&mut self) -> bool {
        poll!(&mut self.step).is_pending()
    }

    fn make_progress(&self) {
        self.tell.send(()).unwrap();
        self.counted.recv_timeout(LONG).unwrap();
    }

    async fn given_up_after(self) -> Duration {
        match self.step.await {
            Err(Stopped::Timeout(waited)) => waited,
            other => panic!("{other:?}"),
        }
    }
}

/// Time stands still while steps are polled by hand.
async fn pass(time: Duration) {
    tokio::time::advance(time).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_step_is_abandoned_and_keeps_its_permit_until_its_thread_ends() {
    let steps = Steps::new();
    let mut hanging: Vec<_> = (0..AT_ONCE).map(|_| told(&steps, TRANSFER)).collect();
    for step in &mut hanging {
        assert!(step.is_pending().await);
    }
    pass(STALL + TICK).await;
    let mut tellers = Vec::new();
    for step in hanging {
        tellers.push(step.tell.clone());
        assert!(step.given_up_after().await < STALL + 2 * TICK);
    }
    assert_eq!(steps.transfers.available_permits(), 0);
    tokio::time::resume();
    drop(tellers);
    let _all = steps.transfers.acquire_many(AT_ONCE as u32).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_transfer_continues_only_while_it_makes_progress() {
    let mut step = told(&Steps::new(), Kind::Transfer { bytes: 1000 * BYTES_PER_SECOND_MIN });
    assert!(step.is_pending().await);
    for _ in 0..5 {
        step.make_progress();
        pass(STALL + TICK).await;
        assert!(step.is_pending().await);
    }
    pass(STALL + TICK).await;
    assert!(step.given_up_after().await >= 6 * STALL);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_below_the_minimum_rate_is_abandoned() {
    let mut step = told(&Steps::new(), TRANSFER);
    assert!(step.is_pending().await);
    step.make_progress();
    pass(STALL + TICK).await;
    assert!(step.is_pending().await);
    step.make_progress();
    pass(Duration::from_secs(10)).await;
    assert!(step.given_up_after().await < STALL + Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn additional_bytes_extend_the_deadline() {
    let (sent, bytes) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let steps = Steps::new();
    let mut step = Box::pin(steps.run(Kind::Transfer { bytes: 1 }, move |progress| {
        progress.expect(100 * BYTES_PER_SECOND_MIN);
        progress.moved(1)?;
        sent.send(()).unwrap();
        released.recv().ok();
        Ok(())
    }));
    assert!(poll!(&mut step).is_pending());
    bytes.recv_timeout(LONG).unwrap();
    pass(STALL + TICK).await;
    assert!(poll!(&mut step).is_pending());
    pass(STALL + TICK).await;
    assert!(matches!(step.await, Err(Stopped::Timeout(_))));
    drop(release);
}

#[tokio::test]
async fn a_check_does_not_wait_for_transfers() {
    let steps = Steps::new();
    let mut hanging: Vec<_> = (0..AT_ONCE).map(|_| told(&steps, TRANSFER)).collect();
    for step in &mut hanging {
        assert!(step.is_pending().await);
    }
    let looked = timeout(LONG, steps.run(Kind::Look, |_| Ok(()))).await;
    looked.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_wait_for_a_permit_has_its_own_deadline() {
    let steps = Steps::new();
    let place = Arc::clone(&steps.transfers).acquire_many_owned(AT_ONCE as u32).await.unwrap();
    let (mut late, mut in_time) = (told(&steps, TRANSFER), told(&steps, TRANSFER));
    assert!(late.is_pending().await);
    pass(2 * TICK).await;
    assert!(in_time.is_pending().await);
    pass(PLACE_DEADLINE - TICK).await;
    assert!(late.given_up_after().await <= PLACE_DEADLINE + TICK);
    // The time that it waited does not count against its transfer.
    drop(place);
    assert!(in_time.is_pending().await);
    in_time.make_progress();
    pass(STALL).await;
    assert!(in_time.is_pending().await);
}

#[tokio::test(start_paused = true)]
async fn a_step_waits_for_its_permit_as_long_as_others_make_progress() {
    let steps = Steps::new();
    let mut busy = told(&steps, Kind::Transfer { bytes: 10_000 * BYTES_PER_SECOND_MIN });
    assert!(busy.is_pending().await);
    let _others = Arc::clone(&steps.transfers).acquire_many_owned(AT_ONCE as u32 - 1).await.unwrap();
    let mut waits = told(&steps, TRANSFER);
    for _ in 0..5 {
        assert!(waits.is_pending().await);
        busy.make_progress();
        pass(PLACE_DEADLINE + TICK).await;
    }
    assert!(waits.is_pending().await);
    pass(PLACE_DEADLINE + TICK).await;
    assert!(waits.given_up_after().await >= 6 * PLACE_DEADLINE);
}

#[tokio::test]
async fn a_cancelled_step_ends_at_its_next_piece() {
    let (ended, end) = mpsc::channel();
    let steps = Steps::new();
    let mut step = Box::pin(steps.run(TRANSFER, move |progress| -> io::Result<()> {
        loop {
            if let Err(error) = progress.moved(1) {
                ended.send(()).ok();
                return Err(error);
            }
            thread::yield_now();
        }
    }));
    assert!(poll!(&mut step).is_pending());
    drop(step);
    end.recv_timeout(LONG).unwrap();
    drop(timeout(LONG, steps.transfers.acquire_many(AT_ONCE as u32)).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_panicking_step_is_an_error_and_returns_its_permit() {
    let steps = Steps::new();
    let panicked = steps.run(TRANSFER, |_| -> io::Result<()> { panic!("on purpose") }).await.unwrap_err();
    assert_eq!(panicked.to_string(), "the operation panicked");
    drop(timeout(LONG, steps.transfers.acquire_many(AT_ONCE as u32)).await.unwrap().unwrap());
}

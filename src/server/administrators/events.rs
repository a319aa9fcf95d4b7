//! Streams server-sent events, one for each change, so that open pages are up to date.
//!
//! An event says that something has changed and nothing else: the page then requests itself again, as a person would.
//! So a stream holds a few bytes whatever there is to see, and the page is made in one place.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::stream::{Stream, unfold};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::server::answer;

pub(super) const PATH: &str = "/events";
/// Streams at a time, half of the connections that one source may have. A page without one requests itself every few seconds.
const MAX_STREAMS: usize = 32;
/// Time between two looks for a change.
const LOOK: Duration = Duration::from_millis(200);
/// A stream ends after so long, and the browser opens the next one. A client that never reads cannot be distinguished
/// from one that does, as the kernels hold all events of this time for it.
const LIFETIME: Duration = Duration::from_secs(300);
/// Time after which a browser replaces a lost stream.
const RETRY: Duration = Duration::from_secs(1);

/// The stream of changes of what `stamp` returns.
pub(crate) fn router<S, F>(stamp: F) -> Router
where
    S: PartialEq + Send + 'static,
    F: Fn() -> S + Clone + Send + Sync + 'static,
{
    let places = Arc::new(Semaphore::new(MAX_STREAMS));
    let events = async move || match Arc::clone(&places).try_acquire_owned() {
        Ok(place) => response(changes(stamp.clone(), place)),
        Err(_) => answer::retry_later(format!("too many live pages: the limit is {MAX_STREAMS}\n")),
    };
    Router::new().route(PATH, get(events).fallback(answer::method_not_allowed))
}

fn response(changes: impl Stream<Item = ()> + Send + 'static) -> Response {
    use futures_util::StreamExt as _;
    let events = changes.map(|()| Event::default().event("change").data("page").retry(RETRY));
    Sse::new(events.map(Ok::<_, Infallible>)).into_response()
}

/// Yields an item at once, as the page may be older than the stream, and one after each change until the stream ends.
fn changes<S: PartialEq>(
    stamp: impl Fn() -> S + Clone,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = ()> {
    let ends = Instant::now() + LIFETIME;
    unfold((None, place), move |(seen, place)| {
        let change = next_change(stamp.clone(), seen);
        async move {
            let seen = tokio::time::timeout_at(ends, change).await.ok()?;
            Some(((), (Some(seen), place)))
        }
    })
}

async fn next_change<S: PartialEq>(stamp: impl Fn() -> S, seen: Option<S>) -> S {
    loop {
        let now = stamp();
        if seen.as_ref() != Some(&now) {
            return now;
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures_util::StreamExt as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_an_item_and_a_stream_ends_with_its_place() {
        let (places, stamp) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicU64::new(0)));
        let place = Arc::clone(&places).try_acquire_owned().unwrap();
        let seen = Arc::clone(&stamp);
        let mut stream = Box::pin(changes(move || seen.load(Ordering::Relaxed), place));
        let begun = Instant::now();
        assert_eq!(stream.next().await, Some(()));
        for _ in 0..3 {
            stamp.fetch_add(1, Ordering::Relaxed);
            let changed = Instant::now();
            assert_eq!(stream.next().await, Some(()));
            assert!(changed.elapsed() <= LOOK);
        }
        assert_eq!(places.available_permits(), 0);
        assert_eq!(stream.next().await, None);
        assert_eq!(begun.elapsed().as_secs(), LIFETIME.as_secs());
        assert_eq!(places.available_permits(), 1, "the place is free");
    }
}

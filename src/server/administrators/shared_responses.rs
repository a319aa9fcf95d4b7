//! Shares answers to administrators in memory between any number of slow clients.
//!
//! An answer can have megabytes: the machines of a full boot ledger. Concurrent clients share one, and large ones are
//! sent in pieces, so that unread parts are not kept for each client. When large answers exceed the limit, the oldest
//! is dropped, with the connections that still send it.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bytes::Bytes;
use common::sync::lock;
use http::response::Parts;
use http::{Method, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::events;
use crate::server::answer;
use crate::serving::single_flight::SingleFlight;

/// Maximum size of all large answers together, in bytes.
const MAX_BYTES: usize = 32 << 20;
/// Size of a piece of a large answer in bytes; a smaller answer is sent as a whole.
const PIECE: usize = 64 << 10;
/// Minimum time that a client has to read an answer while others request large ones, which get an older one meanwhile.
const TIME_TO_READ: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Default)]
pub(super) struct SharedResponses(Arc<ResponsesByTarget>);

#[derive(Debug, Default)]
struct ResponsesByTarget {
    by_target: Mutex<HashMap<String, Weak<SingleFlight<SharedResponse>>>>,
    /// Large answers that a client holds, the oldest first.
    large: Mutex<VecDeque<Weak<SharedResponse>>>,
}

#[derive(Debug)]
struct SharedResponse {
    head: Parts,
    length: usize,
    made: Instant,
    /// `None` after it was dropped.
    body: Mutex<Option<Bytes>>,
}

/// Answers a request with a shared answer.
pub(super) async fn share(
    State(responses): State<SharedResponses>,
    request: Request,
    next: Next,
) -> Response {
    if request.method() != Method::GET || request.uri().path() == events::PATH {
        return next.run(request).await;
    }
    let latest = responses.latest(&request.uri().to_string());
    let is_enough = |last: &SharedResponse| {
        !last.has_ended() && responses.would_evict_early(last.length, Instant::now())
    };
    let make = async || SharedResponse::of(next.run(request).await, Instant::now()).await;
    let shared = latest.get_unless(is_enough, make).await;
    if shared.has_ended() {
        return answer::retry_later(format!("{Dropped}\n"));
    }
    responses.insert(&shared);
    shared.response()
}

impl SharedResponses {
    fn latest(&self, target: &str) -> Arc<SingleFlight<SharedResponse>> {
        let mut by_target = lock(&self.0.by_target);
        if let Some(latest) = by_target.get(target).and_then(Weak::upgrade) {
            return latest;
        }
        by_target.retain(|_, latest| latest.strong_count() > 0);
        let latest = Arc::default();
        by_target.insert(target.to_owned(), Arc::downgrade(&latest));
        latest
    }

    /// Returns `true` if another answer of this length would end one that was not readable for the minimum time.
    fn would_evict_early(&self, length: usize, now: Instant) -> bool {
        let large: Vec<_> = lock(&self.0.large).iter().filter_map(Weak::upgrade).collect();
        let bytes: usize = large.iter().map(|it| it.length).sum();
        let oldest = large.first().map(|it| now.saturating_duration_since(it.made));
        bytes + length > MAX_BYTES && oldest.is_some_and(|age| age < TIME_TO_READ)
    }

    /// Counts a new answer, and drops the oldest if the limit is exceeded.
    fn insert(&self, shared: &Arc<SharedResponse>) {
        if shared.length <= PIECE {
            return;
        }
        let mut large = lock(&self.0.large);
        large.retain(|it| it.strong_count() > 0);
        if large.iter().any(|it| it.as_ptr() == Arc::as_ptr(shared)) {
            return;
        }
        let mut bytes: usize = large.iter().filter_map(Weak::upgrade).map(|it| it.length).sum();
        while bytes + shared.length > MAX_BYTES {
            let Some(oldest) = large.pop_front() else { break };
            if let Some(oldest) = oldest.upgrade() {
                bytes -= oldest.length;
                lock(&oldest.body).take();
            }
        }
        large.push_back(Arc::downgrade(shared));
    }
}

impl SharedResponse {
    async fn of(response: Response, made: Instant) -> Self {
        let (head, body) = response.into_parts();
        let (head, body) = match to_bytes(body, usize::MAX).await {
            Ok(body) => (head, body),
            // Bodies of pages come from memory.
            Err(error) => {
                let empty = answer::text(StatusCode::INTERNAL_SERVER_ERROR, String::new());
                (empty.into_parts().0, format!("{error}\n").into())
            }
        };
        Self { head, length: body.len(), made, body: Mutex::new(Some(body)) }
    }

    fn has_ended(&self) -> bool {
        lock(&self.body).is_none()
    }

    fn response(self: Arc<Self>) -> Response {
        let head = self.head.clone();
        let body = if self.length <= PIECE {
            Body::from(lock(&self.body).clone().unwrap_or_default())
        } else {
            Body::new(SharedBody { shared: self, sent: 0 })
        };
        Response::from_parts(head, body)
    }
}

/// A large answer that is being sent to one client.
#[derive(Debug)]
struct SharedBody {
    shared: Arc<SharedResponse>,
    sent: usize,
}

/// Error of a body that was dropped for later ones.
#[derive(Debug, thiserror::Error)]
#[error("the answer was not read in time, and others were waiting")]
struct Dropped;

impl http_body::Body for SharedBody {
    type Data = Bytes;
    type Error = Dropped;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Dropped>>> {
        let piece = match &*lock(&self.shared.body) {
            None => return Poll::Ready(Some(Err(Dropped))),
            Some(body) => {
                let rest = body.get(self.sent..).unwrap_or_default();
                // A slice would keep the whole body while the client does not read.
                Bytes::copy_from_slice(&rest[..rest.len().min(PIECE)])
            }
        };
        if piece.is_empty() {
            return Poll::Ready(None);
        }
        self.sent += piece.len();
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.sent >= self.shared.length
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact((self.shared.length - self.sent) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn shared(length: usize, made: Instant) -> Arc<SharedResponse> {
        let response = Response::new(Body::from(vec![b'x'; length]));
        Arc::new(SharedResponse::of(response, made).await)
    }

    async fn read(shared: &Arc<SharedResponse>) -> Result<usize, String> {
        let body = Arc::clone(shared).response().into_body();
        to_bytes(body, usize::MAX).await.map(|body| body.len()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn the_oldest_large_answer_ends_where_there_are_too_many_bytes() {
        const LARGE: usize = 9 << 20;
        let (responses, now) = (SharedResponses::default(), Instant::now());
        let mut kept = Vec::new();
        for _ in 0..3 {
            kept.push(shared(LARGE, now).await);
            responses.insert(&kept[kept.len() - 1]);
            // Each time that it is shared.
            responses.insert(&kept[0]);
        }
        assert!(responses.would_evict_early(LARGE, now + TIME_TO_READ / 2));
        assert!(!responses.would_evict_early(LARGE, now + TIME_TO_READ));
        assert!(!responses.would_evict_early(LARGE / 2, now), "there is room for it");
        for it in &kept {
            assert_eq!(read(it).await, Ok(LARGE));
        }
        kept.push(shared(LARGE, now).await);
        responses.insert(&kept[3]);
        assert!(read(&kept[0]).await.unwrap_err().contains("not read in time"));
        assert!(kept[0].has_ended() && !kept[1].has_ended());
        for it in &kept[1..] {
            assert_eq!(read(it).await, Ok(LARGE));
        }
        // Unused answers take no room, and one larger than the limit is sent.
        kept.truncate(1);
        let huge = shared(MAX_BYTES + 1, now).await;
        responses.insert(&huge);
        assert_eq!(read(&huge).await, Ok(MAX_BYTES + 1));
        assert_eq!(lock(&responses.0.large).len(), 1);
        for small in [0, 1, PIECE] {
            let small = shared(small, now).await;
            responses.insert(&small);
            assert_eq!(read(&small).await, Ok(small.length));
        }
        assert_eq!(lock(&responses.0.large).len(), 1);
    }
}

//! Body of an answer that tracks when it was handed over.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Instant;

use super::activity::{Activity, Phase};

/// A body. When it is dropped, the client must receive the rest of the answer.
#[derive(Debug)]
pub(super) struct TrackedBody {
    pub(super) body: Body,
    pub(super) activity: Activity,
}

impl Drop for TrackedBody {
    fn drop(&mut self) {
        self.activity.begin(Phase::Sending, Instant::now());
    }
}

impl http_body::Body for TrackedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Body of an answer that tells how it ended.

use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};

/// How an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// Its last piece was handed to the connection: a client that loses the rest on the way asks again.
    Delivered,
    BrokenOff,
}

/// Action after an answer.
pub(super) trait OnEnd {
    fn ended(&self, end: End);
}

/// A body with an action that runs when it is dropped. Hyper drops a body right after its last piece.
#[derive(Debug)]
pub(super) struct AnswerBody<B: Body, E: OnEnd> {
    pub(super) body: B,
    pub(super) on_end: E,
}

impl<B: Body, E: OnEnd> Drop for AnswerBody<B, E> {
    fn drop(&mut self) {
        let is_whole = self.body.is_end_stream();
        self.on_end.ended(if is_whole { End::Delivered } else { End::BrokenOff });
    }
}

impl<B: Body + Unpin, E: OnEnd + Unpin> Body for AnswerBody<B, E> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

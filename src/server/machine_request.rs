//! A request with the token of a single machine.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::serving::named_machines::UsedTokens;

#[derive(Debug)]
pub(super) struct MachineRequest {
    pub(super) tokens: UsedTokens,
    pub(super) name: Arc<str>,
}

impl MachineRequest {
    /// The response, which records when it was taken whole.
    pub(super) fn track(self, response: Response) -> Response {
        response.map(|body| Body::new(DeliveredBody { body, machine: Some(self) }))
    }
}

/// Body of an answer to a machine. It counts as taken whole when its last piece is handed to the connection: a client
/// that loses the rest on the way asks again.
#[derive(Debug)]
struct DeliveredBody {
    body: Body,
    /// The machine, until the body has ended.
    machine: Option<MachineRequest>,
}

impl http_body::Body for DeliveredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let is_whole = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            _ => false,
        };
        if is_whole && let Some(MachineRequest { tokens, name }) = self.machine.take() {
            tokens.take_whole(&name);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

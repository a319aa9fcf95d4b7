//! HTTP client for requests outside of the Kubernetes API.

use anyhow::anyhow;
use axum::body::Body;
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::task::AbortOnDropHandle;

/// A connection for requests, driven while the value lives.
pub struct HttpConnection {
    requests: SendRequest<Body>,
    _driver: AbortOnDropHandle<()>,
}

impl HttpConnection {
    pub async fn new<S>(stream: S) -> anyhow::Result<Self>
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // The request returns the error.
            let _ = connection.await;
        });
        Ok(Self { requests, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Sends a request, after the previous answer.
    pub async fn send(&mut self, request: Request<Body>) -> anyhow::Result<Response<Incoming>> {
        self.requests.ready().await?;
        Ok(self.requests.send_request(request).await?)
    }
}

/// Reads an answer's body of at most so many bytes.
pub async fn read(response: Response<Incoming>, most: usize) -> anyhow::Result<Bytes> {
    let read = axum::body::to_bytes(Body::new(response.into_body()), most).await;
    // axum's error repeats the text of its source.
    read.map_err(|error| match error.into_inner().downcast::<axum::Error>() {
        Ok(error) => anyhow!(error.into_inner()),
        Err(error) => anyhow!(error),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn an_answer_that_is_too_large_is_reported_once() {
        let (ours, mut theirs) = tokio::io::duplex(1 << 10);
        tokio::spawn(async move {
            let _ = theirs.read(&mut [0; 1024]).await;
            theirs.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde").await.unwrap();
        });
        let mut connection = HttpConnection::new(ours).await.unwrap();
        let answer = connection.send(Request::new(Body::empty())).await.unwrap();
        let error = read(answer, 4).await.unwrap_err();
        assert_eq!(format!("{error:#}"), "length limit exceeded");
    }
}

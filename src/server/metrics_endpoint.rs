//! Metrics, on a listener of their own that only administrators reach; and for whoever has no other
//! listener, whether the process is alive and ready.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;

use crate::conditions::Status;

const OPEN_METRICS: HeaderValue =
    HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");

/// Answers `GET /metrics` on `listener` with what `encode` gives, and `GET /healthz`.
pub async fn serve<E>(listener: TcpListener, encode: E)
where
    E: Fn() -> Option<String> + Clone + Send + Sync + 'static,
{
    serve_pages(listener, encode, None).await;
}

/// The same, and `GET /readyz`: 503 while something keeps it from being ready, else 200, with a line
/// for each thing that is not as it should be.
pub async fn serve_with_readiness<E>(listener: TcpListener, encode: E, status: Status)
where
    E: Fn() -> Option<String> + Clone + Send + Sync + 'static,
{
    serve_pages(listener, encode, Some(status)).await;
}

async fn serve_pages<E>(listener: TcpListener, encode: E, status: Option<Status>)
where
    E: Fn() -> Option<String> + Clone + Send + Sync + 'static,
{
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        let (encode, status) = (encode.clone(), status.clone());
        let service = service_fn(move |request: http::Request<Incoming>| {
            let (method, path) = (request.method(), request.uri().path());
            let response = respond(method, path, &encode, status.as_ref());
            async move { Ok::<_, Infallible>(response) }
        });
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(10));
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%error, "metrics connection ended");
            }
        });
    }
}

/// Binds the listener.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await
}

fn respond(
    method: &Method,
    path: &str,
    encode: impl Fn() -> Option<String>,
    status: Option<&Status>,
) -> Response<String> {
    let mut response = Response::new(String::new());
    let status = status.filter(|_| path == "/readyz");
    if path != "/metrics" && path != "/healthz" && status.is_none() {
        *response.status_mut() = StatusCode::NOT_FOUND;
    } else if method != Method::GET && method != Method::HEAD {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    } else if path == "/metrics"
        && let Some(text) = encode()
    {
        *response.body_mut() = text;
        response.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS);
    } else if let Some(status) = status {
        let mut lines = status.not_ready.lines();
        if !lines.is_empty() {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        lines.extend(status.degraded.lines());
        *response.body_mut() = lines.into_iter().map(|line| line + "\n").collect();
    }
    response
}

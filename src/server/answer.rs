//! Answers without a config.

use axum::response::{IntoResponse as _, Response};
use http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use model::refusal::{REFUSAL, RefusalCode};

pub(super) const CHALLENGE: HeaderValue =
    HeaderValue::from_static("Bearer realm=\"machine-config-server\"");
pub(super) const CLOSE: HeaderValue = HeaderValue::from_static("close");
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");
const READ_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD");
/// Value of `Retry-After` in seconds for clients other than Ignition, which has its own schedule.
const SOON: HeaderValue = HeaderValue::from_static("5");

/// An answer with plain text, or without a body.
pub(super) fn text(status: StatusCode, text: String) -> Response {
    if text.is_empty() {
        return status.into_response();
    }
    (status, [(CONTENT_TYPE, TEXT)], text).into_response()
}

/// An answer with 503 for a temporary cause, after which a machine retries.
pub(super) fn retry_later(why: String) -> Response {
    let mut response = text(StatusCode::SERVICE_UNAVAILABLE, why);
    response.headers_mut().insert(RETRY_AFTER, SOON);
    response
}

/// An answer without a config, with the code of the cause.
pub(super) fn refused(code: RefusalCode, why: String) -> Response {
    let status = code.status();
    let mut response = if status == StatusCode::SERVICE_UNAVAILABLE {
        retry_later(why)
    } else {
        text(status, why)
    };
    let headers = response.headers_mut();
    headers.insert(REFUSAL, code.header());
    match code {
        RefusalCode::AccessRefused => headers.insert(WWW_AUTHENTICATE, CHALLENGE),
        RefusalCode::TooManyAttempts => headers.insert(CONNECTION, CLOSE),
        _ => None,
    };
    response
}

/// The answer to a method that modifies, for a path that can be read.
pub(super) async fn method_not_allowed() -> Response {
    let mut response = StatusCode::METHOD_NOT_ALLOWED.into_response();
    response.headers_mut().insert(ALLOW, READ_METHODS);
    response
}

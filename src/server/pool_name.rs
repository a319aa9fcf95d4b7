//! Extracts the pool of a request.

use axum::extract::rejection::PathRejection;
use axum::extract::{FromRequestParts, Path};
use http::StatusCode;
use http::request::Parts;

/// Name of a pool: one segment of the path, including encoded slashes. A segment that is not UTF-8 is no name.
pub(super) struct PoolName(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for PoolName {
    type Rejection = StatusCode;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, StatusCode> {
        let name: Result<Path<String>, PathRejection> =
            Path::from_request_parts(parts, state).await;
        match name {
            Ok(Path(name)) if !name.is_empty() && !name.contains('/') => Ok(Self(name)),
            _ => Err(StatusCode::NOT_FOUND),
        }
    }
}

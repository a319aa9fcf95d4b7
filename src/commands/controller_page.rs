//! Page of the controller: the certificates that it manages, and the pointer configs that trust them.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use model::overview::{ControllerOverview, Server, controller_page};
use time::OffsetDateTime;

use crate::commands::overview::{certificate, html_response, judged, style};
use crate::controllers::certificates::{Trust, TrustSnapshot};
use crate::telemetry::conditions::Status;

#[derive(Clone)]
struct Sources {
    shown: TrustSnapshot,
    status: Status,
    since: OffsetDateTime,
}

/// Routes of the page at `/`, and of its contents as JSON.
pub(super) fn router(shown: TrustSnapshot, status: Status) -> Router {
    let since = OffsetDateTime::now_utc();
    Router::new()
        .route("/", get(html))
        .route("/style.css", get(style))
        .route("/api/v1/overview", get(overview))
        .with_state(Sources { shown, status, since })
}

async fn html(State(sources): State<Sources>) -> Response {
    html_response(controller_page(&sources.overview()))
}

async fn overview(State(sources): State<Sources>) -> Json<ControllerOverview> {
    Json(sources.overview())
}

impl Sources {
    fn overview(&self) -> ControllerOverview {
        let now = OffsetDateTime::now_utc();
        let Trust { chain, holders, faults } = self.shown.trust();
        ControllerOverview {
            at: now,
            server: Server { version: super::version(), since: self.since },
            not_ready: self.status.not_ready.lines(),
            degraded: self.status.degraded.lines(),
            certificates: chain.iter().map(certificate).collect(),
            pointers: judged(&chain, &holders, &faults, now),
        }
    }
}

//! Page of the controller: the certificates that it manages, and the pointer configs that trust them.

use axum::extract::State;
use axum::response::Response;
use axum::routing::get;
use axum::{Json, Router};
use controllers::certificates::TrustSnapshot;
use status::overview::{ControllerOverview, Server};
use status::page::controller_page;
use telemetry::conditions::Status;
use time::OffsetDateTime;

use crate::commands::server::overview::{
    PERIOD, PointerVerdicts, assets, certificate, html_response, pointer_verdicts,
};
use crate::server::administrators::events;
use crate::server::readiness::Readiness;

#[derive(Clone)]
struct Sources {
    shown: TrustSnapshot,
    status: Status,
    since: OffsetDateTime,
}

/// Routes of the page at `/`, and of its contents as JSON.
pub(in crate::commands) fn router(shown: TrustSnapshot, status: Status) -> Router {
    let since = OffsetDateTime::now_utc();
    let (of_trust, of_status) = (shown.clone(), status.clone());
    let stamp = move || {
        let conditions = [of_status.not_ready.lines(), of_status.degraded.lines()];
        (of_trust.changes(), conditions, OffsetDateTime::now_utc().unix_timestamp() / PERIOD)
    };
    Router::new()
        .route("/", get(html))
        .merge(assets())
        .route("/api/v1/overview", get(overview))
        .with_state(Sources { shown, status, since })
        .merge(events::router(stamp))
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
        let public = self.shown.trust();
        let PointerVerdicts { pointers, trust } = pointer_verdicts(&public, now);
        let Readiness { not_ready, degraded } = Readiness::of_status(&self.status);
        ControllerOverview {
            at: now,
            server: Server { version: crate::commands::version(), since: self.since },
            not_ready,
            degraded,
            certificates: public.chain.iter().map(certificate).collect(),
            pointers,
            trust,
        }
    }
}

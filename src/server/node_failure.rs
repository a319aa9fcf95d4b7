//! Takes reports of first boots that failed, `POST /v1/node-failure` in the form of machine-config-daemon.
//!
//! A report is taken from an address that was given a config within a day, or with a token of the pool. It is shown to
//! administrators as the words of the machine, and changes nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::{ALLOW, AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use model::escape::{NAME, cut_escaped};
use model::ledger::FailureReport;
use model::recovery::Recovery;
use time::OffsetDateTime;
use tokio::time::{Instant, timeout};

use super::answer::{CHALLENGE, text};
use super::connections::connection::Peer;
use super::source_buckets::SourceBuckets;
use super::state::MachineRoutes;

/// Maximum size of a report in bytes.
const MAX_REPORT: usize = 16 << 10;
/// Maximum time to receive a report.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Number of reports that a source can send at once.
const BURST: u32 = 3;
/// Time after which it can send another one.
const REFILL: Duration = Duration::from_secs(20);
/// Maximum length of a logged message, in bytes after escaping.
const LOGGED: usize = 512;

const UNKNOWN: &str =
    "no config was given to this address within a day, and no token opens the pool\n";

/// State of the route, with the reports that were received lately by source.
type ReportState = State<(Arc<MachineRoutes>, Arc<SourceBuckets>)>;

/// The route of reports.
pub(super) fn router(machines: Arc<MachineRoutes>) -> Router {
    let received = Arc::new(SourceBuckets::new(BURST, REFILL));
    let route = post(report).fallback(method_not_allowed);
    Router::new().route("/v1/node-failure", route).with_state((machines, received))
}

/// The answer to another method.
async fn method_not_allowed() -> Response {
    (StatusCode::METHOD_NOT_ALLOWED, [(ALLOW, "POST")]).into_response()
}

/// Takes a report.
async fn report(State((machines, received)): ReportState, request: Request) -> Response {
    let Some(peer) = request.extensions().get::<Peer>().copied() else {
        return refuse(StatusCode::UNAUTHORIZED, UNKNOWN);
    };
    let (source, now) = (peer.address.into(), Instant::now());
    if received.is_exhausted(source, now) {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "too many reports from this address\n");
    }
    received.count(source, now);
    let now = OffsetDateTime::now_utc();
    let was_served = machines.ledger.was_served(peer.address.ip(), now);
    if !was_served && !request.headers().contains_key(AUTHORIZATION) {
        return refuse(StatusCode::UNAUTHORIZED, UNKNOWN);
    }
    let (parts, body) = request.into_parts();
    let report = match timeout(TIMEOUT, to_bytes(body, MAX_REPORT)).await {
        Ok(Ok(body)) => serde_json::from_slice::<FailureReport>(&body),
        Ok(Err(_)) => {
            return refuse(StatusCode::PAYLOAD_TOO_LARGE, "a report has at most 16 KiB\n");
        }
        Err(_) => return refuse(StatusCode::REQUEST_TIMEOUT, "the report took too long\n"),
    };
    let report = match report {
        Ok(report) => report,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("no report: {error}\n")),
    };
    let is_proven = || machines.auth.evaluate(&report.pool, peer, &parts.headers).is_proven();
    if !was_served && !is_proven() {
        return refuse(StatusCode::UNAUTHORIZED, UNKNOWN);
    }
    if machines.answers.have_inputs() && !machines.answers.has_pool(&report.pool) {
        return refuse(StatusCode::NOT_FOUND, "no pool has this name\n");
    }
    record(&machines, peer, report, now);
    StatusCode::ACCEPTED.into_response()
}

fn record(machines: &MachineRoutes, peer: Peer, report: FailureReport, now: OffsetDateTime) {
    let MachineRoutes { answers, metrics, ledger, reports, .. } = machines;
    let address = peer.address.ip();
    ledger.failed(address, &report, now);
    metrics.node_failed(answers.label(&report.pool), &report.stage);
    let short = |text: &str, most| cut_escaped(text, most);
    tracing::warn!(
        pool = short(&report.pool, NAME),
        %address,
        node = short(&report.node, NAME),
        stage = short(&report.stage, NAME),
        image = short(&report.image, NAME),
        reason = short(&report.message, LOGGED),
        fix = Recovery::Restart.after("remove the cause: the machine's console and journal have the details"),
        "a machine reports that its first boot failed"
    );
    // While earlier ones wait for the API server, this one has no Event.
    if let Some(reports) = reports {
        let _ = reports.try_send(report);
    }
}

fn refuse(status: StatusCode, line: &str) -> Response {
    let mut response = text(status, line.to_owned());
    let headers = response.headers_mut();
    if status == StatusCode::UNAUTHORIZED {
        headers.insert(WWW_AUTHENTICATE, CHALLENGE);
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        headers.insert(RETRY_AFTER, HeaderValue::from_static("60"));
    }
    response
}

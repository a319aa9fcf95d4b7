//! Puts the overview together from those who know.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use time::OffsetDateTime;
use tokio::sync::watch;
use utoipa::OpenApi;

use super::peers::{self, Part};
use super::serving_pair::ShownChain;
use crate::answers::Answers;
use crate::conditions::Status;
use crate::inputs::Inputs;
use crate::ledger::{Ledger, Roster};
use crate::overview::{
    Certificate, History, MachineLine, Overview, Pointer, Pool, STYLE, Server, page,
};
use crate::pki::plan::renewal;
use crate::pki::{self, Host, Policy};

/// Judges the pointer configs that are known, at a time. It may block.
pub type JudgePointers = Box<dyn Fn(OffsetDateTime) -> Vec<Pointer> + Send + Sync>;

/// Those who know.
pub(super) struct Sources {
    pub(super) answers: Arc<Answers>,
    pub(super) status: Status,
    pub(super) inputs: watch::Receiver<Option<Inputs>>,
    pub(super) ledger: Ledger,
    pub(super) roster: Roster,
    pub(super) history: History,
    pub(super) chain: ShownChain,
    pub(super) pointers: Option<JudgePointers>,
    /// The other servers, `HOST:PORT`.
    pub(super) peers: Option<String>,
    pub(super) since: OffsetDateTime,
    /// What tells this server from the others.
    pub(super) name: String,
}

/// What is said of the API beside its types.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "machine-config-server",
        description = "What the page shows, for programs.",
        license(name = "Apache-2.0")
    ),
    paths(overview, machines, machine)
)]
struct Description;

/// The page at `/`, and all that is on it as JSON.
pub(super) fn router(sources: Sources) -> Router {
    let style = async || ([(CONTENT_TYPE, "text/css; charset=utf-8")], STYLE);
    Router::new()
        .route("/", get(html))
        .route("/style.css", get(style))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/machines", get(machines))
        .route("/api/v1/machines/{address}", get(machine))
        .route(peers::PATH, get(part))
        .route("/api/v1/openapi.json", get(async || Json(Description::openapi())))
        .with_state(Arc::new(sources))
}

/// The page may load its own style sheet and nothing else, and no other page may show it in itself.
const HTML_HEADERS: [(HeaderName, &str); 1] = [(
    CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
)];

async fn html(State(sources): State<Arc<Sources>>) -> Response {
    match page(&sources.overview().await) {
        Ok(page) => (HTML_HEADERS, Html(page)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// All that is on the page
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview)))]
async fn overview(State(sources): State<Arc<Sources>>) -> Json<Overview> {
    Json(sources.overview().await)
}

/// The machines that asked any of the servers, those that are stuck first
#[utoipa::path(get, path = "/api/v1/machines", responses((status = 200, body = Vec<MachineLine>)))]
async fn machines(State(sources): State<Arc<Sources>>) -> Json<Vec<MachineLine>> {
    Json(sources.overview().await.machines)
}

/// The machine at an address
#[utoipa::path(
    get,
    path = "/api/v1/machines/{address}",
    params(("address" = String, Path, description = "Its IP address")),
    responses(
        (status = 200, body = MachineLine),
        (status = 400, description = "This is no IP address"),
        (status = 404, description = "Nothing has asked from this address"),
    ),
)]
async fn machine(State(sources): State<Arc<Sources>>, Path(address): Path<String>) -> Response {
    let Ok(address) = address.parse::<IpAddr>() else {
        return (StatusCode::BAD_REQUEST, "this is no IP address\n").into_response();
    };
    match sources.overview().await.machine(address) {
        Some(line) => Json(line).into_response(),
        None => (StatusCode::NOT_FOUND, "nothing has asked from this address\n").into_response(),
    }
}

async fn part(State(sources): State<Arc<Sources>>) -> Json<Part> {
    Json(Part { server: sources.name.clone(), machines: sources.ledger.machines() })
}

impl Sources {
    async fn overview(&self) -> Overview {
        let now = OffsetDateTime::now_utc();
        let (machines, silent_servers) = self.machines(now).await;
        let mut not_ready = self.status.not_ready.lines();
        not_ready.extend(self.answers.unready());
        let judge = |judge: &JudgePointers| tokio::task::block_in_place(|| judge(now));
        let registries = self.inputs.borrow().as_ref().map_or_else(Vec::new, |inputs| {
            inputs.shared.registry_cas.keys().map(|host| host.as_str().to_owned()).collect()
        });
        let overview = Overview {
            at: now,
            server: Server { version: super::version(), since: self.since },
            not_ready,
            degraded: self.status.degraded.lines(),
            pools: self.pools(),
            machines,
            silent_servers,
            certificates: (self.chain)().iter().map(certificate).collect(),
            pointers: self.pointers.as_ref().map(judge).unwrap_or_default(),
            registries,
            changes: self.history.changes(),
        };
        overview.sorted()
    }

    /// The machines of all servers, and which servers did not tell of theirs.
    async fn machines(&self, now: OffsetDateTime) -> (Vec<MachineLine>, Vec<String>) {
        let mut silent = Vec::new();
        let machines = match &self.peers {
            None => self.ledger.machines(),
            Some(peers) => {
                let others = peers::ask(peers).await;
                silent = others.silent;
                let all = Ledger::default();
                all.absorb(self.ledger.machines());
                for part in others.parts.into_iter().filter(|part| part.server != self.name) {
                    all.absorb(part.machines);
                }
                all.machines()
            }
        };
        let lines = self.roster.look(|nodes| {
            let line = |machine: crate::ledger::Machine| {
                let standing = machine.standing(nodes, now);
                MachineLine { machine, standing }
            };
            machines.into_iter().map(line).collect()
        });
        (lines, silent)
    }

    fn pools(&self) -> Vec<Pool> {
        let pools = self.answers.pools().into_iter();
        pools
            .map(|pool| Pool {
                name: pool.name.to_string(),
                configuration: pool.configuration,
                problem: pool.problem,
                specs: pool.versions.iter().map(ToString::to_string).collect(),
            })
            .collect()
    }
}

fn certificate(certificate: &pki::Certificate) -> Certificate {
    Certificate {
        subject: certificate.common_name.clone(),
        issuer: certificate.issuer.clone(),
        key: certificate.key_kind.clone(),
        hosts: certificate.hosts.iter().map(Host::to_string).collect(),
        not_before: certificate.not_before,
        not_after: certificate.not_after,
        renewal: renewal(certificate, &Policy::default()),
    }
}

//! Builds the overview from the state of the server.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use axum::extract::{Path, State};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use model::access;
use model::ledger::{Ledger, NodeIndex};
use model::overview::{
    Certificate, History, MachineLine, Overview, PointerStatus, Pool, RegistryInUse, STYLE, Server,
    page, sort,
};
use model::render::registries_without_ca;
use pki::plan::renewal;
use pki::{self, Holder, Host, Lockout, Policy, locked_out};
use time::OffsetDateTime;
use tokio::sync::watch;
use utoipa::OpenApi;

use crate::serving::answers::Answers;
use crate::serving::latest::Latest;
use crate::serving::peers;
use crate::serving::peers::Part;
use crate::serving::publish::Served;
use crate::serving::serving_pair::ShownChain;
use crate::telemetry::conditions::Status;

/// Judges the known pointer configs at a time. It may block.
pub type JudgePointers = Box<dyn Fn(OffsetDateTime) -> Vec<PointerStatus> + Send + Sync>;

/// State that the overview is built from.
pub(super) struct Sources {
    pub(super) answers: Arc<Answers>,
    pub(super) status: Status,
    pub(super) policy: Arc<ArcSwap<access::Policy>>,
    pub(super) served: watch::Receiver<Option<Arc<Served>>>,
    pub(super) ledger: Ledger,
    pub(super) nodes: NodeIndex,
    pub(super) history: History,
    pub(super) chain: ShownChain,
    pub(super) pointers: Option<JudgePointers>,
    /// Name of the other servers, `HOST:PORT`.
    pub(super) peers: Option<String>,
    pub(super) since: OffsetDateTime,
    /// Unique name of this server.
    pub(super) name: String,
    /// Machines of all servers, gathered once for concurrent requests.
    pub(super) gathered: Latest<Gathered>,
}

pub(super) struct Gathered {
    /// Machines, stuck ones first.
    lines: Arc<Vec<MachineLine>>,
    /// Servers that did not answer.
    silent: Vec<String>,
}

/// Description of the API.
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

/// Routes of the page at `/`, and of its contents as JSON.
pub(super) fn router(sources: Sources) -> Router {
    Router::new()
        .route("/", get(html))
        .route("/style.css", get(style))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/machines", get(machines))
        .route("/api/v1/machines/{address}", get(machine))
        .route(peers::PATH, get(part))
        .route("/api/v1/openapi.json", get(description))
        .with_state(Arc::new(sources))
}

/// Headers of pages: only their own style sheet is loaded, and no other page can embed them.
const HTML_HEADERS: [(HeaderName, &str); 1] = [(
    CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
     frame-ancestors 'none'",
)];

async fn html(State(sources): State<Arc<Sources>>) -> Response {
    html_response(page(&sources.overview().await))
}

/// The answer with a page.
pub(super) fn html_response<E: std::fmt::Display>(page: Result<String, E>) -> Response {
    match page {
        Ok(page) => (HTML_HEADERS, Html(page)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// The style sheet of all pages.
pub(super) async fn style() -> Response {
    ([(CONTENT_TYPE, "text/css; charset=utf-8")], STYLE).into_response()
}

/// Pointer configs with the verdict if a machine boots from them at present.
pub(super) fn judged(
    chain: &[pki::Certificate],
    holders: &[Holder],
    faults: &[Lockout],
    now: OffsetDateTime,
) -> Vec<PointerStatus> {
    let lockouts = [faults, &locked_out(chain, holders, now)].concat();
    let names: BTreeSet<&str> = holders
        .iter()
        .map(|it| &it.name[..])
        .chain(faults.iter().map(|it| &it.holder[..]))
        .collect();
    let problem = |name: &str| {
        let lockout = lockouts.iter().find(|lockout| lockout.holder == name)?;
        Some(lockout.reason.to_string())
    };
    let pointer = |name: &str| PointerStatus { name: name.to_owned(), problem: problem(name) };
    names.into_iter().map(pointer).collect()
}

/// All that is on the page
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview)))]
async fn overview(State(sources): State<Arc<Sources>>) -> Json<Overview> {
    Json(sources.overview().await)
}

/// The machines that asked any of the servers, those that are stuck first
#[utoipa::path(get, path = "/api/v1/machines", responses((status = 200, body = Vec<MachineLine>)))]
async fn machines(State(sources): State<Arc<Sources>>) -> Response {
    Json(sources.machines().await.lines.as_slice()).into_response()
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
    let address = address.to_canonical();
    let machines = sources.machines().await;
    match machines.lines.iter().find(|line| line.machine.address == address) {
        Some(line) => Json(line).into_response(),
        None => (StatusCode::NOT_FOUND, "nothing has asked from this address\n").into_response(),
    }
}

async fn description() -> Response {
    static DESCRIPTION: LazyLock<Bytes> =
        LazyLock::new(|| Description::openapi().to_json().unwrap_or_default().into());
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION.clone()).into_response()
}

async fn part(State(sources): State<Arc<Sources>>) -> Json<Part> {
    Json(Part { server: sources.name.clone(), machines: sources.ledger.machines() })
}

impl Sources {
    async fn overview(&self) -> Overview {
        let machines = self.machines().await;
        let now = OffsetDateTime::now_utc();
        let mut not_ready = self.status.out_of_service.lines();
        not_ready.extend(self.status.not_ready.lines());
        not_ready.extend(self.answers.unready());
        let mut degraded = self.status.degraded.lines();
        degraded.extend(self.answers.exposed());
        degraded.extend(self.answers.warnings());
        let judge = |judge: &JudgePointers| tokio::task::block_in_place(|| judge(now));
        let served = self.served.borrow().clone();
        let registries = served.as_ref().map_or_else(Vec::new, |served| {
            served.inputs.shared.registry_cas.keys().map(|host| host.as_str().to_owned()).collect()
        });
        let without_ca = served.map(|served| registries_without_ca(&served.inputs));
        let registries_without_ca = without_ca
            .into_iter()
            .flatten()
            .map(|(host, pools)| RegistryInUse { host, pools: pools.into_iter().collect() });
        let (changes, older_changes) = self.history.changes();
        Overview {
            at: now,
            server: Server { version: super::version(), since: self.since },
            not_ready,
            degraded,
            pools: self.pools(),
            machines: Arc::clone(&machines.lines),
            silent_servers: machines.silent.clone(),
            certificates: (self.chain)().iter().map(certificate).collect(),
            pointers: self.pointers.as_ref().map(judge).unwrap_or_default(),
            registries,
            registries_without_ca: registries_without_ca.collect(),
            changes,
            older_changes,
        }
    }

    async fn machines(&self) -> Arc<Gathered> {
        self.gathered.get(async || self.gather(OffsetDateTime::now_utc()).await).await
    }

    async fn gather(&self, now: OffsetDateTime) -> Gathered {
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
        let mut lines: Vec<_> = self.nodes.look(|nodes| {
            let line = |machine: model::ledger::Machine| {
                let standing = machine.standing(nodes, now);
                MachineLine { machine, standing }
            };
            machines.into_iter().map(line).collect()
        });
        sort(&mut lines);
        Gathered { lines: Arc::new(lines), silent }
    }

    fn pools(&self) -> Vec<Pool> {
        let pools = self.answers.pools().into_iter();
        let policy = self.policy.load();
        pools
            .map(|pool| Pool {
                name: pool.name.to_string(),
                configuration: pool.configuration,
                access: policy.modes.of(&pool.name).to_string(),
                problem: pool.problem,
                specs: pool.versions.iter().map(ToString::to_string).collect(),
            })
            .collect()
    }
}

pub(super) fn certificate(certificate: &pki::Certificate) -> Certificate {
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

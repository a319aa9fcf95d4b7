//! Builds the overview from the state of the server.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

use arc_swap::ArcSwap;
use axum::extract::{Path, RawQuery, State};
use axum::response::{Html, IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use bytes::Bytes;
use controllers::certificates::Trust;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use model::access;
use model::access::approval::{WaitingMachine, merged};
use model::history::History;
use model::ledger::{Ledger, NodeIndex};
use model::render::registries_without_ca;
use pki::plan::renewal;
use pki::{self, Host, Policy, locked_out};
use status::overview::{
    Certificate, MachineLine, Overview, PointerStatus, Pool, PoolMachines, RegistryInUse, Server,
    TrustMap, sort,
};
use status::page::{
    AdvisedMachine, MachineQuery, MachineView, SCRIPT, STYLE, machine_page, overview_page,
};
use telemetry::conditions::Status;
use time::OffsetDateTime;
use utoipa::OpenApi;

use crate::server::administrators::events;
use crate::server::readiness::Readiness;
use crate::serving::answers::Answers;
use crate::serving::ledger::peers;
use crate::serving::ledger::peers::LedgerPart;
use crate::serving::pipeline::publish::Subscription;
use crate::serving::single_flight::SingleFlight;
use crate::serving::tls::serving_pair::ActivePair;
use crate::serving::tokens::named_machines::{MachineTokens, NamedMachines};

/// Judges the pointer configs of these pools at a time, or without pools all known ones; `None` if they cannot be read. It
/// may block.
pub(crate) type JudgePointers =
    Box<dyn Fn(Option<Pools>, OffsetDateTime) -> Option<PointerVerdicts> + Send + Sync>;
/// Names of pools that have a config.
type Pools = Arc<BTreeSet<String>>;

/// Pointer configs, and what they trust.
#[derive(Debug)]
pub(crate) struct PointerVerdicts {
    /// Verdicts.
    pub pointers: Vec<PointerStatus>,
    /// Trust between them, CAs and the serving certificate.
    pub trust: TrustMap,
}

/// State that the overview is built from.
pub(in crate::commands) struct Sources {
    pub(in crate::commands) answers: Arc<Answers>,
    pub(in crate::commands) status: Status,
    pub(in crate::commands) policy: Arc<ArcSwap<access::Policy>>,
    pub(in crate::commands) published: Subscription,
    pub(in crate::commands) ledger: Ledger,
    pub(in crate::commands) named: NamedMachines,
    pub(in crate::commands) nodes: NodeIndex,
    pub(in crate::commands) history: History,
    pub(in crate::commands) pair: Arc<ActivePair>,
    pub(in crate::commands) pointers: Option<JudgePointers>,
    /// Name of the other servers, `HOST:PORT`.
    pub(in crate::commands) peers: Option<String>,
    pub(in crate::commands) since: OffsetDateTime,
    /// Host and port with TLS for machines.
    pub(in crate::commands) authority: String,
    /// Unique name of this server.
    pub(in crate::commands) name: String,
    /// Machines of all servers, gathered once for concurrent requests.
    pub(in crate::commands) machines_snapshot: SingleFlight<MachinesSnapshot>,
}

pub(in crate::commands) struct MachinesSnapshot {
    /// Machines, stuck ones first.
    pub(in crate::commands) lines: Arc<Vec<MachineLine>>,
    /// True if machines were compared with the nodes of a cluster.
    knows_nodes: bool,
    /// Machines that wait for approval, those with a token first.
    waiting: Vec<WaitingMachine>,
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

/// Seconds between two events while other servers have a part of the machines.
const PEERS_PERIOD: i64 = 5;
/// Seconds between two events if nothing changes: the page shows how long ago things happened.
pub(in crate::commands) const PERIOD: i64 = 30;

/// Routes of the page at `/`, and of its contents as JSON.
pub(in crate::commands) fn router(sources: Arc<Sources>) -> Router {
    let of_events = Arc::clone(&sources);
    Router::new()
        .route("/", get(html))
        .merge(assets())
        .route("/machines/{address}", get(html_of_machine))
        .route("/api/v1/overview", get(overview))
        .route("/api/v1/machines", get(machines))
        .route("/api/v1/machines/{address}", get(machine))
        .route(peers::PATH, get(part))
        .route("/api/v1/openapi.json", get(description))
        .with_state(sources)
        .merge(events::router(move || of_events.stamp()))
}

/// Headers of pages: a page loads its style sheet and script, and requests itself; no other page can embed it.
const HTML_HEADERS: [(HeaderName, &str); 1] = [(
    CONTENT_SECURITY_POLICY,
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; \
     base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
)];

async fn html(State(sources): State<Arc<Sources>>, RawQuery(query): RawQuery) -> Response {
    let query = MachineQuery::parse(query.as_deref().unwrap_or_default());
    html_response(overview_page(&sources.overview().await, &query))
}

async fn html_of_machine(
    State(sources): State<Arc<Sources>>,
    Path(address): Path<String>,
) -> Result<Response, Response> {
    let line = &sources.find(&address).await?;
    let pool = line.machine.requests.as_ref().map(|requests| &requests.pool[..]);
    Ok(html_response(machine_page(&MachineView {
        at: OffsetDateTime::now_utc(),
        server: &sources.server(),
        line,
        visits: &sources.ledger.visits(line.machine.address),
        is_pool_known: pool.is_some_and(|pool| sources.answers.has_pool(pool)),
        has_peers: sources.peers.is_some(),
        authority: &sources.authority,
    })))
}

/// The answer with a page.
pub(in crate::commands) fn html_response<E: std::fmt::Display>(
    page: Result<String, E>,
) -> Response {
    match page {
        Ok(page) => (HTML_HEADERS, Html(page)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}

/// Routes of the style sheet and the script of all pages.
pub(in crate::commands) fn assets<S: Clone + Send + Sync + 'static>() -> Router<S> {
    let asset =
        |kind: &'static str, text: &'static str| get(async move || ([(CONTENT_TYPE, kind)], text));
    Router::new()
        .route("/style.css", asset("text/css; charset=utf-8", STYLE))
        .route("/script.js", asset("text/javascript; charset=utf-8", SCRIPT))
}

/// Pointer configs with the verdict if a machine boots from them at present.
pub(in crate::commands) fn pointer_verdicts(trust: &Trust, now: OffsetDateTime) -> PointerVerdicts {
    let Trust { chain, holders, faults } = trust;
    let lockouts = [&faults[..], &locked_out(chain, holders, now)].concat();
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
    let pointers: Vec<_> = names.into_iter().map(pointer).collect();
    let trust = TrustMap::new(chain, holders, &pointers);
    PointerVerdicts { pointers, trust }
}

/// All that is on the page
#[utoipa::path(get, path = "/api/v1/overview", responses((status = 200, body = Overview)))]
async fn overview(State(sources): State<Arc<Sources>>) -> Json<Overview> {
    Json(sources.overview().await)
}

/// The machines that asked any of the servers, those that are stuck first
#[utoipa::path(get, path = "/api/v1/machines", responses((status = 200, body = Vec<AdvisedMachine>)))]
async fn machines(State(sources): State<Arc<Sources>>) -> Response {
    let lines = Arc::clone(&sources.machines().await.lines);
    let advised: Vec<_> = lines.iter().cloned().map(AdvisedMachine::from).collect();
    Json(advised).into_response()
}

/// The machine at an address
#[utoipa::path(
    get,
    path = "/api/v1/machines/{address}",
    params(("address" = String, Path, description = "Its IP address")),
    responses(
        (status = 200, body = AdvisedMachine),
        (status = 400, description = "This is not an IP address"),
        (status = 404, description = "No request from this address"),
    ),
)]
async fn machine(
    State(sources): State<Arc<Sources>>,
    Path(address): Path<String>,
) -> Result<Json<AdvisedMachine>, Response> {
    sources.find(&address).await.map(|line| Json(line.into()))
}

async fn description() -> Response {
    static DESCRIPTION: LazyLock<Bytes> =
        LazyLock::new(|| Description::openapi().to_json().unwrap_or_default().into());
    ([(CONTENT_TYPE, "application/json")], DESCRIPTION.clone()).into_response()
}

async fn part(State(sources): State<Arc<Sources>>) -> Json<LedgerPart> {
    let (machines, waiting) = (sources.ledger.machines(), sources.named.approvals.list_waiting());
    Json(LedgerPart { server: sources.name.clone(), machines, waiting })
}

impl Sources {
    /// Value that changes with the contents of the page.
    fn stamp(&self) -> ([u64; 3], [Vec<String>; 3], i64) {
        let Status { out_of_service, not_ready, degraded } = &self.status;
        let period = if self.peers.is_some() { PEERS_PERIOD } else { PERIOD };
        (
            [self.ledger.changes(), self.nodes.changes(), self.history.count()],
            [out_of_service.lines(), not_ready.lines(), degraded.lines()],
            OffsetDateTime::now_utc().unix_timestamp() / period,
        )
    }

    pub(in crate::commands) fn server(&self) -> Server {
        Server { version: crate::commands::version(), since: self.since }
    }

    /// Finds the machine at an address, or the answer if there is none.
    async fn find(&self, address: &str) -> Result<MachineLine, Response> {
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err((StatusCode::BAD_REQUEST, "not an IP address\n").into_response());
        };
        let (address, machines) = (address.to_canonical(), self.machines().await);
        let line = machines.lines.iter().find(|line| line.machine.address == address).cloned();
        let none = || (StatusCode::NOT_FOUND, "no request from this address\n").into_response();
        line.ok_or_else(none)
    }

    async fn overview(&self) -> Overview {
        let machines = self.machines().await;
        let now = OffsetDateTime::now_utc();
        let Readiness { not_ready, mut degraded } =
            Readiness::of_server(&self.status, &self.answers);
        let pools = self.pools(&machines.lines);
        degraded.extend(pools.iter().filter_map(Pool::old_ignition));
        let published = Arc::clone(&self.published.borrow());
        let judge =
            |judge: &JudgePointers| tokio::task::block_in_place(|| judge(published.pools(), now));
        let registries = published.inputs.as_ref().map_or_else(Vec::new, |inputs| {
            inputs.shared.registry_cas.keys().map(|host| host.as_str().to_owned()).collect()
        });
        let without_ca = published.inputs.as_ref().map(registries_without_ca);
        let registries_without_ca = without_ca
            .into_iter()
            .flatten()
            .map(|(host, pools)| RegistryInUse { host, pools: pools.into_iter().collect() });
        let (changes, older_changes) = self.history.changes();
        let chain = self.pair.certificates();
        let without_pointers =
            || PointerVerdicts { pointers: Vec::new(), trust: TrustMap::new(&chain, &[], &[]) };
        let judged = self.pointers.as_ref().and_then(judge).unwrap_or_else(without_pointers);
        Overview {
            at: now,
            server: self.server(),
            authority: self.authority.clone(),
            not_ready,
            degraded,
            pools,
            machines: Arc::clone(&machines.lines),
            knows_nodes: machines.knows_nodes,
            named_machines: self.named.tokens.as_ref().map(MachineTokens::list).unwrap_or_default(),
            waiting_machines: machines.waiting.clone(),
            approved_machines: self.named.approvals.list_approved(),
            silent_servers: machines.silent.clone(),
            certificates: chain.iter().map(certificate).collect(),
            pointers: judged.pointers,
            trust: judged.trust,
            registries,
            registries_without_ca: registries_without_ca.collect(),
            changes,
            older_changes,
        }
    }

    pub(in crate::commands) async fn machines(&self) -> Arc<MachinesSnapshot> {
        self.machines_snapshot.get(async || self.gather(OffsetDateTime::now_utc()).await).await
    }

    async fn gather(&self, now: OffsetDateTime) -> MachinesSnapshot {
        let (mut silent, mut waiting) = (Vec::new(), self.named.approvals.list_waiting());
        let machines = match &self.peers {
            None => self.ledger.machines(),
            Some(peers) => {
                let others = peers::ask(peers).await;
                silent = others.silent;
                let all = Ledger::default();
                all.absorb(self.ledger.machines());
                for part in others.parts.into_iter().filter(|part| part.server != self.name) {
                    all.absorb(part.machines);
                    waiting = merged(waiting, part.waiting);
                }
                all.machines()
            }
        };
        let (mut lines, knows_nodes): (Vec<_>, _) = self.nodes.look(|nodes| {
            let line = |machine: model::ledger::Machine| {
                let status = machine.boot_status(nodes, now);
                MachineLine { machine, status }
            };
            (machines.into_iter().map(line).collect(), nodes.is_some())
        });
        sort(&mut lines);
        MachinesSnapshot { lines: Arc::new(lines), knows_nodes, waiting, silent }
    }

    pub(in crate::commands) fn pools(&self, lines: &[MachineLine]) -> Vec<Pool> {
        let pools = self.answers.pools().into_iter();
        let policy = self.policy.load();
        let rules = &policy.boot_rules;
        let min = |pool: &str| rules.of(pool).min_ignition.map(|min| min.version);
        let machines = PoolMachines::by_pool(lines, min);
        let published = Arc::clone(&self.published.borrow());
        let problem =
            |pool: &str| published.inputs.as_ref()?.problem_of_pool(pool).map(str::to_owned);
        pools
            .map(|pool| {
                let machines = machines.get(&*pool.name).copied().unwrap_or_default();
                let rules = rules.of(&pool.name);
                Pool {
                    name: pool.name.to_string(),
                    configuration: pool.configuration,
                    access: policy.modes.of(&pool.name).to_string(),
                    // A pool that cannot be merged is served as it was.
                    problem: problem(&pool.name).or(pool.problem),
                    specs: pool.versions.iter().map(ToString::to_string).collect(),
                    oldest_ignition: machines.oldest_ignition.map(|it| it.to_string()),
                    min_ignition: rules.min_ignition.map(|it| it.to_string()),
                    with_old_ignition: machines.with_old_ignition,
                    without_tls: machines.without_tls,
                    is_plain_port_closed: rules.is_plain_port_closed,
                    needs_approval: rules.needs_approval,
                }
            })
            .collect()
    }
}

pub(in crate::commands) fn certificate(certificate: &pki::Certificate) -> Certificate {
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

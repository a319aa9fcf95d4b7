//! The way of machines to the server: name, connection, TLS and certificates, as `inspect` judges them. No config is
//! requested: that would be a machine in the boot ledger, and could spend a token.

use std::collections::BTreeSet;

use ignition::{POINTER_SPEC, SpecVersion};
use inspect::Cause;
use model::pointer_config::{Fetch, PointerConfig};
use pki::Certificate;
use time::OffsetDateTime;
use tokio::task::JoinSet;

use super::finding::{Finding, Level, Source};
use super::overview::{AnyOverview, SERVING};
use crate::commands::inspect::fetch::{FetchRequest, shake_hands};
use crate::commands::probe::Address;
use crate::commands::stores::state_store::ObservedState;

/// Maximum number of servers in pointer configs that are connected to.
const MAX_TARGETS: usize = 16;

/// A server in a pointer config.
#[derive(Debug, Clone)]
pub(super) struct Target {
    fetch: Fetch,
    /// Pointer config with the trusted CAs, if they are known.
    trusted_by: Option<String>,
    /// Level if the server cannot be reached: from elsewhere, that is no fault of the machines' network.
    unreached: Level,
}

impl Target {
    /// The address that a server gives to machines, which CAs are unknown.
    pub(super) fn of_server(overview: &AnyOverview) -> Option<Self> {
        let authority = overview.authority.as_deref()?;
        let (host, port) = authority.rsplit_once(':')?;
        // The server does not know by which name machines reach it.
        let host = if host == "HOST" { overview.certified_host()? } else { host };
        let address: Address = format!("{host}:{port}").parse().ok()?;
        let url: http::Uri = format!("https://{address}/").parse().ok()?;
        let host = url.host()?.parse().ok()?;
        let (headers, trusted) = (Vec::new(), Vec::new());
        let fetch =
            Fetch { url, host, pool: String::new(), headers, spec: SpecVersion::NEWEST, trusted };
        // It answers, so that the way to it is in question only from here.
        Some(Self { fetch, trusted_by: None, unreached: Level::Warning })
    }

    /// Servers in the pointer configs of pools, each once for the same CAs.
    pub(super) fn of_state(seen: &ObservedState, unreached: Level) -> Vec<Self> {
        let mut known = BTreeSet::new();
        let mut targets = Vec::new();
        for (name, text) in &seen.pointers {
            let config = PointerConfig::read(text);
            if seen.unused.contains(name)
                || seen.of_machines.contains(name)
                || seen.foreign_reason(&config).is_some()
            {
                continue;
            }
            for fetch in config.fetches() {
                let authority = fetch.url.authority().map(ToString::to_string);
                let trusted: Vec<_> = fetch.trusted.iter().map(Certificate::fingerprint).collect();
                if known.insert((authority, trusted)) {
                    let fetch = Fetch { headers: Vec::new(), spec: POINTER_SPEC, ..fetch.clone() };
                    targets.push(Self { fetch, trusted_by: Some(name.clone()), unreached });
                }
            }
        }
        targets
    }
}

/// Connects to all servers at once.
pub(super) async fn reach(targets: Vec<Target>, now: OffsetDateTime) -> Vec<Finding> {
    let skipped = targets.len().saturating_sub(MAX_TARGETS);
    let mut tasks = JoinSet::new();
    for target in targets.into_iter().take(MAX_TARGETS) {
        tasks.spawn(async move {
            let Target { fetch, trusted_by, unreached } = target;
            let request = FetchRequest { fetch, trusted_by, connect: None, at: now, now };
            let cause = shake_hands(&request).await?;
            Some(finding(&request, &cause, unreached))
        });
    }
    let mut findings: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    findings.sort_by(|a, b| a.things.cmp(&b.things));
    if skipped > 0 {
        let what = format!("{skipped} more servers in pointer configs are not connected to");
        let fix = "run `machine-config-server inspect --pointer FILE.ign` for the others";
        findings.push(Finding::new((Source::Connection, Level::Warning), "servers", &what, fix));
    }
    findings
}

fn finding(request: &FetchRequest, cause: &Cause, unreached: Level) -> Finding {
    let is_network =
        matches!(cause, Cause::NameUnknown(_) | Cause::ServerDown(_) | Cause::NoAnswer(_));
    let level = if is_network { unreached } else { Level::Error };
    let authority = request.fetch.url.authority().map_or("", http::uri::Authority::as_str);
    let authority = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let thing = match (cause, &request.trusted_by) {
        (Cause::ServingPairExpired(_), _) => SERVING.to_owned(),
        (Cause::UnknownCa(_), Some(pointer)) => pointer.clone(),
        _ => format!("server {authority}"),
    };
    let text = cause.to_string();
    let what = text.strip_prefix("the serving certificate ").filter(|_| thing == SERVING);
    let what = match what {
        Some(what) => what.to_owned(),
        None if is_network && unreached == Level::Warning => {
            format!("is not reached from here: {text}")
        }
        None => text,
    };
    let recovery = cause.recovery().sentence().trim_end_matches('.');
    let recovery = recovery.replacen("The", "the", 1);
    let fix = format!("{}; {recovery}", cause.remedy());
    Finding::new((Source::Connection, level), &thing, &what, fix)
}

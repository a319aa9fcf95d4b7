//! A running server, asked as `machines` asks it. One without the overview, such as an older version, is asked for
//! `/readyz` only.

use anyhow::{Context as _, anyhow, ensure};
use http::StatusCode;
use time::OffsetDateTime;
use tokio::net::lookup_host;

use super::finding::{Checked, Finding, Level, Source};
use super::overview::AnyOverview;
use super::reach::{Target, reach};
use super::readiness;
use crate::commands::machines::{NoServer, ask};
use crate::serving::ledger::peers::{UnexpectedStatus, get_bytes};

/// A server to ask.
#[derive(Debug)]
pub(super) struct ServerAddress {
    pub(super) from: String,
    /// True if it is the only thing to check, or was named.
    pub(super) is_named: bool,
    /// True if machines' way to it is checked too.
    pub(super) is_reached: bool,
}

/// Asks the server, and connects to it as a machine does.
pub(super) async fn check(server: &ServerAddress, now: OffsetDateTime) -> Checked {
    let ServerAddress { from, is_named, is_reached } = server;
    match ask::<AnyOverview>(from).await {
        Ok(overview) => {
            let mut checked = overview.checked(from, now);
            let target = Target::of_server(&overview).filter(|_| *is_reached);
            checked.findings.extend(reach(target.into_iter().collect(), now).await);
            checked
        }
        Err(error) if error.downcast_ref::<UnexpectedStatus>().is_some() => {
            let findings = without_overview(from).await;
            Checked { findings, ..Checked::default() }
        }
        Err(error) => {
            let level = if *is_named { Level::Error } else { Level::Warning };
            Checked { findings: vec![unanswered(from, level, &error)], ..Checked::default() }
        }
    }
}

fn unanswered(from: &str, level: Level, error: &anyhow::Error) -> Finding {
    let is_down = error.downcast_ref::<NoServer>().is_some();
    let fix = if is_down {
        "start the server, such as with `systemctl start machine-config-server`, or name the --metrics-address of a \
         running one with --from HOST:PORT"
    } else {
        "check which program listens there, and name the --metrics-address of a running server with --from HOST:PORT"
    };
    let reason = if is_down { "nothing listens there".to_owned() } else { format!("{error:#}") };
    let reason = reason.strip_prefix(&format!("{from}: ")).unwrap_or(&reason);
    let what = format!("cannot be asked for its readiness and machines: {reason}");
    Finding::new((Source::Access, level), &format!("server {from}"), &what, fix)
}

/// Findings by `/readyz` alone.
async fn without_overview(from: &str) -> Vec<Finding> {
    let thing = format!("server {from}");
    match ready_lines(from).await {
        Ok((is_ready, lines)) => {
            let what = "has no /api/v1/overview, so that its machines are not known: it is another version, or a port \
                for machines";
            let fix = "update the server, or name its --metrics-address with --from HOST:PORT";
            let old = Finding::new((Source::Access, Level::Warning), &thing, what, fix);
            let (errors, warnings) = if is_ready { (vec![], lines) } else { (lines, vec![]) };
            let found = readiness::findings(&errors, &warnings);
            std::iter::once(old).chain(found).collect()
        }
        Err(error) => {
            let what = format!("is not a server of this program: {error:#}");
            let fix = "check which program listens there, and name the --metrics-address of a server with --from HOST:PORT";
            vec![Finding::new((Source::Access, Level::Error), &thing, &what, fix)]
        }
    }
}

/// `/readyz`: if the server is ready, and the lines.
async fn ready_lines(from: &str) -> anyhow::Result<(bool, Vec<String>)> {
    let address = lookup_host(from).await?.next().context("has no address")?;
    let (status, bytes) = get_bytes(address, "/readyz").await?;
    let is_known = matches!(status, StatusCode::OK | StatusCode::SERVICE_UNAVAILABLE);
    ensure!(is_known, "/readyz answers with status {status}");
    let text = str::from_utf8(&bytes).map_err(|_| anyhow!("/readyz is not text"))?;
    let lines: Vec<_> = text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
    ensure!(
        status == StatusCode::OK || !lines.is_empty(),
        "/readyz answers with status 503 without a reason"
    );
    Ok((status == StatusCode::OK, lines))
}

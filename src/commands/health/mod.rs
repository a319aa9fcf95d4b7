//! The command `health`: all that `/readyz`, `certs check`, `machines` and `validate` know, in one list, the worst first.
//!
//! Nothing is judged here. Each source gives the findings of the command whose function it calls, and
//! [`finding`] merges them.

mod finding;
mod overview;
mod place;
mod reach;
mod readiness;
mod server;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use clap::Args;
use common::flags::host_and_port;
use time::OffsetDateTime;

use self::finding::{Checked, Finding, HealthReport, Level, Source};
use self::place::Place;
use self::server::ServerAddress;
use super::machines::DEFAULT_SERVER;
use super::print_json;
use super::process::block_on;
use super::process::progress::Progress;
use super::process::terminal;
use super::rendering::ManifestFlags;
use super::stores::location::StateLocationFlags;

/// Maximum time for all sources: what does not answer until then is a finding.
const MAX_WAIT: Duration = Duration::from_secs(30);

#[derive(Debug, Args)]
#[command(mut_arg("state_dir", |arg| {
    arg.requires("dir").help("Directory in which `serve` keeps the certificates and pointer configs of DIR")
}))]
#[command(mut_arg("kubeconfig", |arg| arg.help("Check a cluster, with this kubeconfig")))]
#[command(mut_arg("in_cluster", |arg| arg.help("Check the cluster, with the pod's service account")))]
pub(crate) struct HealthSettings {
    /// Directory of manifests that `serve` reads; without it and without a cluster, only the server is asked
    #[arg(conflicts_with_all = ["kubeconfig", "in_cluster"])]
    dir: Option<PathBuf>,
    /// Metrics address of a server; 127.0.0.1:8797 by default, none for a cluster
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    from: Option<String>,
    #[command(flatten)]
    place: StateLocationFlags,
    #[command(flatten)]
    manifests: ManifestFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    json: bool,
}

/// Prints the findings. The exit code is 1 if one of them is an error.
pub(crate) fn run(settings: HealthSettings, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
    let is_json = settings.json;
    let report = HealthReport::of(gather(settings, now));
    if is_json {
        print_json(&report)?;
    } else {
        terminal::print(&report.lines(terminal::style()));
    }
    Ok(if report.is_healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Results of all sources, each in a thread: a file system or a server that does not answer delays no other one.
fn gather(settings: HealthSettings, now: OffsetDateTime) -> Vec<Checked> {
    let HealthSettings { dir, from, place, manifests, .. } = settings;
    let is_cluster = place.state.is_cluster();
    let server = match (&from, is_cluster) {
        (None, true) => None,
        _ => Some(ServerAddress {
            is_named: from.is_some() || dir.is_none(),
            is_reached: dir.is_none() && !is_cluster,
            from: from.unwrap_or_else(|| DEFAULT_SERVER.to_owned()),
        }),
    };
    let mut results = Vec::new();
    if server.is_none() {
        results.push(unasked());
    }
    let place = match dir {
        Some(dir) => Some(Place::Directory(dir, manifests.butane(), place)),
        None => is_cluster.then_some(Place::Cluster(place)),
    };
    // Reading manifests has its own line.
    let is_short = !matches!(place, Some(Place::Directory(..)));
    let progress = is_short.then(|| Progress::start("checking"));
    let (sender, receiver) = mpsc::channel();
    let mut awaited = Vec::new();
    if let Some(place) = place {
        let name = match &place {
            Place::Directory(dir, ..) => dir.display().to_string(),
            Place::Cluster(_) => "cluster".to_owned(),
        };
        start(&mut awaited, &sender, name, move || place::check(&place, now));
    }
    if let Some(server) = server {
        start(&mut awaited, &sender, format!("server {}", server.from), move || ask(&server, now));
    }
    drop(sender);
    let until = Instant::now() + MAX_WAIT;
    while !awaited.is_empty() {
        let Ok((name, checked)) =
            receiver.recv_timeout(until.saturating_duration_since(Instant::now()))
        else {
            break;
        };
        awaited.retain(|it| *it != name);
        results.push(checked);
    }
    drop(progress);
    results.extend(awaited.iter().map(|name| late(name)));
    results
}

/// Runs a check in a thread.
fn start(
    awaited: &mut Vec<String>,
    sender: &Sender<(String, Checked)>,
    name: String,
    check: impl FnOnce() -> Checked + Send + 'static,
) {
    awaited.push(name.clone());
    let sender = sender.clone();
    std::thread::spawn(move || {
        // Nobody waits any longer.
        let _ = sender.send((name, check()));
    });
}

fn ask(server: &ServerAddress, now: OffsetDateTime) -> Checked {
    block_on(server::check(server, now))
        .unwrap_or_else(|error| only(&server.from, &error.to_string(), "run the command again"))
}

/// The result if a server of a cluster is not known.
fn unasked() -> Checked {
    let what = "none was asked, so that its readiness and its machines are not known";
    let fix = "run `kubectl -n openshift-machine-config-operator port-forward POD 9623:9623`, and this command with \
        --from 127.0.0.1:9623";
    let kind = (Source::Access, Level::Warning);
    let finding = Finding::new(kind, "servers of the cluster", what, fix);
    Checked { findings: vec![finding], ..Checked::default() }
}

fn late(name: &str) -> Checked {
    let what = format!("does not answer within {} s", MAX_WAIT.as_secs());
    only(
        name,
        &what,
        "find out what it waits for: a file system, the API server, the network or another process with the lock",
    )
}

fn only(name: &str, what: &str, fix: &str) -> Checked {
    let finding = Finding::new((Source::Access, Level::Error), name, what, fix);
    Checked { findings: vec![finding], ..Checked::default() }
}

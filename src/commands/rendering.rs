//! Reads inputs once, and renders from them without a server.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use clap::Args;
use ignition::{self, Form, SpecVersion};
use inspect::Cause;
use model::inputs::Inputs;
use model::render::{CompressedContents, RenderError, SelectError, render, select};
use telemetry::Reporting;
use telemetry::conditions::Status;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::process::progress::Progress;
use crate::source::cluster;
use crate::source::directory::{Directory, Layout};
use crate::source::{Butane, Settings, Source};

/// Maximum time to read a cluster.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Flags about the files of a directory.
#[derive(Debug, Clone, Args)]
pub(crate) struct ManifestFlags {
    /// Program that converts Butane files, POOL.bu; the one in the PATH by default, `off` for none
    #[arg(long, value_name = "PROGRAM", default_value = "butane", hide_default_value = true)]
    butane: PathBuf,
}

impl ManifestFlags {
    pub(super) fn butane(&self) -> Butane {
        self.butane.clone().into()
    }
}

/// Reads a tree of manifests.
pub(super) fn read_manifests(
    root: PathBuf,
    butane: Butane,
    is_strict: bool,
) -> anyhow::Result<Inputs> {
    let _progress = reading(&root);
    Ok(Directory::open(tree(root, butane, is_strict))?.1)
}

/// Reads a tree of manifests as far as it is usable; problems are in the inputs.
pub(super) fn read_usable(root: PathBuf, butane: Butane) -> anyhow::Result<Inputs> {
    let _progress = reading(&root);
    Ok(Directory::read(tree(root, butane, false))?.1)
}

fn tree(root: PathBuf, butane: Butane, is_strict: bool) -> Layout {
    Layout::Tree { root, registry_credentials: None, is_strict, memory: None, butane }
}

fn reading(root: &Path) -> Progress {
    Progress::start(&format!("reading the manifests of {}", root.display()))
}

pub(super) fn read_cluster(settings: cluster::Settings) -> anyhow::Result<Inputs> {
    let _progress = Progress::start("reading the cluster");
    // Publishing can block its thread.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let (source, _) = Source::open(Settings::Cluster(settings)).await?;
        let status = Status::default();
        let reporting = Reporting { metrics: Arc::default(), status: status.clone() };
        let (sender, mut inputs) = watch::channel(None);
        let _following = AbortOnDropHandle::new(tokio::spawn(source.follow(sender, reporting)));
        let read = inputs.wait_for(Option::is_some);
        if let Ok(read) = tokio::time::timeout(TIMEOUT, read).await {
            return read.ok().and_then(|it| it.clone()).context("the cluster cannot be read");
        }
        let reported = status.degraded.lines().join("; ");
        bail!("the cluster was not read within {} s: {reported}", TIMEOUT.as_secs())
    })
}

/// Config of machines of `pool` in `spec`, in the plain form.
pub(super) fn rendered(inputs: &Inputs, pool: &str, spec: SpecVersion) -> Result<Bytes, Cause> {
    let selected = select(inputs, pool).map_err(|reason| match reason {
        SelectError::UnknownPool => {
            Cause::PoolUnknown(pool.to_owned(), inputs.pools.keys().cloned().collect())
        }
        reason @ SelectError::FetchesForever(_) => Cause::FetchesForever(reason.to_string()),
        reason => {
            let problem = inputs.problem_of_pool(pool).map(str::to_owned);
            Cause::NoConfigYet(problem.unwrap_or_else(|| reason.to_string()))
        }
    })?;
    let render = |spec| render(&selected, spec, Form::Plain, &CompressedContents::default());
    render(spec).map_err(|error| {
        let served: Vec<_> =
            SpecVersion::ALL.into_iter().filter(|spec| render(*spec).is_ok()).collect();
        let reported = error.to_string();
        let is_unsayable =
            matches!(error, RenderError::Ignition(_, ignition::Error::Unsupported { .. }));
        if is_unsayable || !served.is_empty() {
            Cause::NotInSpec { requested: spec, served, reported, is_received: false }
        } else {
            Cause::InvalidConfig { reported, is_received: false }
        }
    })
}

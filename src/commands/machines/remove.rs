//! The command `machines remove`: ends a machine's token for good, in a directory or a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use controllers::NAMESPACE;
use files::bounded::remove_if_there;
use time::OffsetDateTime;

use super::named::name;
use super::removal::complete;
use crate::commands::print_line;
use crate::commands::rendering::read_usable;
use crate::commands::stores::location::StateFlags;
use crate::source::Butane;

#[derive(Debug, Args)]
pub(crate) struct RemoveSettings {
    /// Name of the machine
    #[arg(value_parser = name)]
    name: String,
    /// Directory of the manifests that `serve` reads
    #[arg(long, value_name = "DIR", required_unless_present_any = ["kubeconfig", "in_cluster"],
        conflicts_with_all = ["kubeconfig", "in_cluster"])]
    manifests: Option<PathBuf>,
    #[command(flatten)]
    state: StateFlags,
}

/// Removes a machine's manifest, and revokes its token for good.
///
/// # Errors
/// The machine has neither a manifest nor a token, another manifest has it, or a file cannot be written.
pub(crate) fn run(settings: &RemoveSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RemoveSettings { name, manifests, state } = settings;
    if let Some(cluster) = state.cluster(NAMESPACE)? {
        cluster.remove_machine(name)?;
        print_line(&format!("{name}: removed; the controller revokes its token within seconds"));
        return Ok(());
    }
    // clap requires it without a cluster.
    let manifests = manifests.as_deref().unwrap_or(Path::new("."));
    let state = state.directory()?;
    let manifest = manifests.join(format!("machine-{name}.yaml"));
    let is_there = manifest.exists();
    let token = state.machine_token(name)?;
    ensure!(is_there || token.is_some(), "machine {name} not found");
    // A server that sees the manifest removed knows then that this is meant.
    state.request_removal(name)?;
    remove_if_there(&manifest)?;
    if is_there {
        print_line(&format!("removed {}", manifest.display()));
    }
    if manifests.is_dir()
        && read_usable(manifests.to_owned(), Butane::default())?.machines.contains_key(name)
    {
        state.note_removed(name)?;
        bail!(
            "{}: another file has FirstBootMachine {name}; remove it there first",
            manifests.display()
        );
    }
    complete(&state, name, now).with_context(|| format!("machine {name}"))?;
    print_line(&format!("{name}: its token is revoked for good"));
    Ok(())
}

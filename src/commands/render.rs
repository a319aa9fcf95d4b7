//! The command `render`: prints the config of a pool's machines, or their pointer config, without a server.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use common::flags::{spec, url};
use ignition::{POINTER_SPEC, SpecVersion, pointer};
use model::access::Records;
use model::access::rotation::{FetchCredential, PointerToken};
use model::inputs::{Inputs, ServingMode};
use model::merged_pool::{self, ArgumentSetter, ByLabels, Member, Origin, ParsedMachineConfig};
use model::pointer_config::{PointerConfig, newest_embedded_token};
use model::render::select;
use pki::Certificate;
use table::table;
use time::OffsetDateTime;

use super::pool_names::pool_names;
use super::print_stderr;
use super::probe::Address;
use super::process::terminal;
use super::rendering::{ManifestFlags, read_cluster, read_manifests, rendered};
use super::stores::location::StateLocationFlags;
use crate::source::cluster;

#[derive(Debug, Args)]
#[command(mut_arg("state_dir", |arg| {
    arg.requires("pointer").help("Directory in which `serve` keeps the CAs that a pointer config trusts")
}))]
#[command(mut_arg("kubeconfig", |arg| arg.help("Read the inputs from a cluster, with this kubeconfig")))]
#[command(mut_arg("in_cluster", |arg| {
    arg.help("Read the inputs from the cluster, with the pod's service account")
}))]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct RenderSettings {
    /// The pool
    #[arg(add = pool_names())]
    pool: String,
    /// Directory of manifests, YAML or JSON, any file names
    #[arg(conflicts_with_all = ["kubeconfig", "in_cluster"])]
    dir: Option<PathBuf>,
    /// Ignition spec: 2.2, 3.0 to 3.6; 3.6 by default, 3.1 for a pointer config
    #[arg(long, value_name = "SPEC", value_parser = spec(), hide_possible_values = true)]
    spec: Option<SpecVersion>,
    /// Refuse manifests with a field without effect: an unknown one, or one that is newer than the config's spec
    #[arg(long, conflicts_with = "pointer")]
    strict: bool,
    #[command(flatten)]
    manifests: ManifestFlags,
    /// Print the MachineConfig behind the config, as JSON; if the pool names none, the result of merging the
    /// MachineConfigs that it selects
    #[arg(long, conflicts_with_all = ["pointer", "spec", "strict"])]
    machine_config: bool,
    /// Print from which MachineConfig each of its files, units and arguments comes, and which others it overrides
    #[arg(long, requires = "machine_config", conflicts_with_all = ["kubeconfig", "in_cluster"])]
    explain: bool,
    /// Print the pointer config with which a machine fetches its config, instead of the config
    #[arg(long, conflicts_with = "dir")]
    pointer: bool,
    /// Server that the pointer config sends machines to; by default the one in the stored pointer config
    #[arg(long, value_name = "HOST:PORT", requires = "pointer")]
    server: Option<Address>,
    #[command(flatten)]
    place: StateLocationFlags,
    /// URL of the API server in the kubeconfig for machines of a cluster
    #[arg(long, value_name = "URL", value_parser = url)]
    apiserver_url: Option<String>,
    /// Directory with the token that machines join the cluster with, in `token`, and the API server's CAs, in
    /// `ca.crt`
    #[arg(long, value_name = "DIR", default_value = "/etc/mcs/bootstrap-token")]
    bootstrap_token_dir: PathBuf,
}

impl RenderSettings {
    fn inputs(&self) -> anyhow::Result<Inputs> {
        if let Some(directory) = &self.dir {
            return read_manifests(directory.clone(), self.manifests.butane(), self.strict);
        }
        let state = &self.place.state;
        ensure!(state.is_cluster(), "missing DIR, --kubeconfig or --in-cluster; see --help");
        let apiserver_url = self.apiserver_url.clone().context(
            "missing --apiserver-url: machines join the cluster at this URL; see --help",
        )?;
        read_cluster(cluster::Settings {
            kubeconfig: state.kubeconfig.clone(),
            apiserver_url,
            token_dir: self.bootstrap_token_dir.clone(),
            ..cluster::Settings::default()
        })
    }
}

/// Prints the config to standard output.
///
/// # Errors
/// The config cannot be rendered; then nothing was printed.
pub(crate) fn run(settings: &RenderSettings) -> anyhow::Result<()> {
    let mut text = if settings.pointer {
        make_pointer(settings)?.into_bytes()
    } else if settings.machine_config {
        machine_config(&settings.inputs()?, &settings.pool, settings.explain)?
    } else {
        config(settings)?
    };
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    // A partial config is worse than none, so write errors are reported.
    stdout.write_all(&text).and_then(|()| stdout.flush()).context("standard output")
}

fn config(settings: &RenderSettings) -> anyhow::Result<Vec<u8>> {
    let inputs = settings.inputs()?;
    if let (true, Some(first)) = (settings.strict, inputs.warnings.first()) {
        bail!("{first}: refused by --strict");
    }
    let spec = settings.spec.unwrap_or(SpecVersion::NEWEST);
    let text = rendered(&inputs, &settings.pool, spec).map_err(|cause| anyhow!("{cause}"))?;
    for warning in &inputs.warnings {
        print_stderr(&format!("warning: {warning}"));
    }
    Ok(text.to_vec())
}

/// The MachineConfig of a pool's config, or the origins of its parts.
fn machine_config(inputs: &Inputs, pool: &str, is_explained: bool) -> anyhow::Result<Vec<u8>> {
    if is_explained {
        return explained(inputs, pool);
    }
    let reason = match select(inputs, pool) {
        Ok(served) => return Ok(serde_json::to_vec_pretty(&*served.machine_config)?),
        Err(reason) => reason,
    };
    let sources = sources(inputs, pool).map_err(|_| anyhow!("pool {pool}: {reason}"))?;
    let sources: Vec<_> = sources.iter().collect();
    let controller_config = inputs.shared.controller_config.as_ref();
    let Err(error) = merged_pool::merge(pool, &sources, controller_config, setter(inputs, pool)?)
    else {
        bail!("pool {pool}: {reason}");
    };
    let Some(merged) = error.merged() else { bail!("pool {pool}: {error}") };
    // The merge of the MachineConfigs, from which no machine boots.
    print_stderr(&format!("warning: pool {pool} does not get this config: {error}"));
    Ok(serde_json::to_vec_pretty(&**merged)?)
}

/// Setter of the kernel arguments of a pool's MachineConfigs.
fn setter(inputs: &Inputs, pool: &str) -> anyhow::Result<ArgumentSetter> {
    let setter = inputs.pools.get(pool).map(|pool| ArgumentSetter::of(pool)).transpose();
    let setter = setter.map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
    Ok(setter.flatten().unwrap_or_default())
}

/// The MachineConfigs that a pool selects.
fn sources(inputs: &Inputs, pool: &str) -> anyhow::Result<Vec<ParsedMachineConfig>> {
    let read = inputs.pools.get(pool).ok_or_else(|| anyhow!("there is no pool {pool}"))?;
    let grouped;
    let all = match inputs.mode {
        ServingMode::Manifests => &*inputs.sources,
        ServingMode::Bootstrap | ServingMode::Cluster => {
            grouped = ByLabels::new(inputs.machine_configs.values());
            &grouped
        }
    };
    let selected = all.select(read).map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
    let selected = selected.iter().flat_map(|group| group.machine_configs());
    Ok(selected.map(ParsedMachineConfig::new).collect())
}

/// A table of everything in a pool's MachineConfig, with the MachineConfig it comes from, and the overridden ones.
fn explained(inputs: &Inputs, pool: &str) -> anyhow::Result<Vec<u8>> {
    let sources = sources(inputs, pool)?;
    let origins = merged_pool::origins(&sources.iter().collect::<Vec<_>>(), setter(inputs, pool)?)
        .map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
    let said = |origin: &&Origin| !origin.members.is_empty() || !origin.covered.is_empty();
    let rows: Vec<_> = origins.iter().filter(said).map(origin_row).collect();
    Ok(table(&["WHAT", "WHICH", "FROM", "COVERS"], &rows, terminal::style())
        .join("\n")
        .into_bytes())
}

fn origin_row(origin: &Origin) -> Vec<String> {
    let mut from: Vec<(&str, Vec<&str>)> = Vec::new();
    for Member { name, machine_config } in &origin.members {
        match from.iter_mut().find(|(config, _)| config == machine_config) {
            Some((_, names)) => names.push(name),
            None => from.push((machine_config, vec![name])),
        }
    }
    // Member names matter only if several MachineConfigs contribute.
    let is_shared = from.len() > 1;
    let from = from.into_iter().map(|(config, names)| match names.join(", ") {
        names if is_shared && !names.is_empty() => format!("{config} ({names})"),
        _ => config.to_owned(),
    });
    vec![
        origin.place.clone(),
        origin.keys.join(" "),
        from.collect::<Vec<_>>().join(", "),
        origin.covered.join(", "),
    ]
}

fn make_pointer(settings: &RenderSettings) -> anyhow::Result<String> {
    let pool = &settings.pool[..];
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if pool.is_empty() || !pool.chars().all(is_part) {
        bail!("{pool:?} is not the name of a pool");
    }
    let store = settings.place.open()?;
    let seen = store.observe(None)?;
    let place = &seen.place;
    let bundle = seen.observed.trusted();
    if bundle.is_empty() {
        bail!("{place}: no signing CA yet");
    }
    // A pointer config of another server is useless to a machine that trusts these CAs.
    let mut own = seen.pointers.iter().map(|(_, text)| PointerConfig::read(text));
    let kept =
        || own.find_map(|it| it.url_for(pool).filter(|_| seen.foreign_reason(&it).is_none()));
    let server = settings.server.as_ref();
    let url = server.map(|address| format!("https://{address}/config/{pool}")).or_else(kept);
    let url = url.ok_or_else(|| {
        anyhow!(
            "{place}: no pointer config has the address of a server: give it with --server HOST:PORT"
        )
    })?;
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    let spec = settings.spec.unwrap_or(POINTER_SPEC);
    let text = pointer(&url, pem.as_bytes(), spec).to_string();
    match with_token(&text, pool, &seen.embedded_tokens(), store.records()) {
        Ok(Some(with)) => Ok(String::from_utf8(with)?),
        Ok(None) => Ok(text),
        Err(reason) => {
            print_stderr(&format!("{place}: {reason}"));
            Ok(text)
        }
    }
}

/// Adds the token of the pool's other pointer configs, `None` if none is expected.
///
/// # Errors
/// The reason why it has no token.
fn with_token(
    text: &str,
    pool: &str,
    pointers: &[PointerToken],
    records: anyhow::Result<Records>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let others = format!("the pointer configs of pool {pool} have a token, and this one does not");
    let records = match records {
        Ok(records) => records,
        Err(error) => {
            let has_token = |it: &PointerToken| {
                it.pool == pool && matches!(it.credential, FetchCredential::Token(_))
            };
            let unknown = error.context("the valid tokens are not known");
            ensure!(!pointers.iter().any(has_token), "{others}: {unknown:#}");
            return Ok(None);
        }
    };
    let Some(token) = newest_embedded_token(pointers, pool, &records, OffsetDateTime::now_utc())
    else {
        ensure!(
            !records.enforced.contains(pool),
            "pool {pool} is enforced, and no pointer config has a token for it: this one has none"
        );
        return Ok(None);
    };
    PointerConfig::read(text.as_bytes())
        .with_bearer(pool, token.as_str())
        .map(Some)
        .map_err(|reason| anyhow!("{others}: {reason}"))
}

//! The commands `machines add` and `machines rearm`: machines with a separate token and pointer config, in a directory or
//! a cluster.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use data_encoding::HEXLOWER;
use model::access::{MachineToken, Network};
use model::objects::{FIRST_BOOT_MACHINE_VERSION, MAX_NAME_BYTES, Overlay, is_object_name};
use model::pointer_config::PointerConfig;
use pki::Host;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use time::OffsetDateTime;

use super::cluster_machines::{ClusterMachines, secret_name};
use super::{print_line, print_stderr};
use crate::controllers::NAMESPACE;
use crate::files::owners::Reader;
use crate::files::replace::{self, PUBLIC};
use crate::store::machine_files::WantedMachine;
use crate::store::state_directory::StateDirectory;

#[derive(Debug, Args)]
pub(crate) struct AddSettings {
    /// Name of the machine, as of an object: lowercase letters, digits, dashes and dots
    #[arg(value_parser = name)]
    name: String,
    /// Pool whose config it gets
    #[arg(long, value_name = "POOL", value_parser = name)]
    pool: String,
    /// Address or network that its token may be used from, everywhere by default. May be repeated
    #[arg(long = "address", value_name = "CIDR")]
    addresses: Vec<Network>,
    /// Ignition config that is merged into the pool's config for this machine
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Directory of the manifests that `serve` reads
    #[arg(
        long,
        value_name = "DIR",
        required_unless_present_any = ["kubeconfig", "in_cluster"],
        conflicts_with_all = ["kubeconfig", "in_cluster"]
    )]
    manifests: Option<PathBuf>,
    #[command(flatten)]
    state: StateFlags,
}

#[derive(Debug, Args)]
pub(crate) struct RearmSettings {
    /// Name of the machine
    #[arg(value_parser = name)]
    name: String,
    #[command(flatten)]
    state: StateFlags,
}

/// The state directory of `serve`, or a cluster.
#[derive(Debug, Args)]
pub(super) struct StateFlags {
    /// Where `serve` keeps its certificates and pointer configs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub(super) state_dir: PathBuf,
    /// Use the cluster's objects instead, with this kubeconfig
    #[arg(long, value_name = "FILE", conflicts_with = "state_dir")]
    pub(super) kubeconfig: Option<PathBuf>,
    /// Use the cluster's objects instead, with the pod's service account
    #[arg(long, conflicts_with_all = ["state_dir", "kubeconfig"])]
    pub(super) in_cluster: bool,
}

impl StateFlags {
    /// Connects to the cluster, if the flags name one.
    pub(super) fn cluster(&self) -> anyhow::Result<Option<ClusterMachines>> {
        match (&self.kubeconfig, self.in_cluster) {
            (None, false) => Ok(None),
            (kubeconfig, _) => ClusterMachines::connect(kubeconfig.clone()).map(Some),
        }
    }

    /// Opens an existing directory: a typo must not create a new one.
    pub(super) fn open(&self) -> anyhow::Result<StateDirectory> {
        open_state(&self.state_dir)
    }
}

/// Opens an existing state directory.
pub(super) fn open_state(path: &Path) -> anyhow::Result<StateDirectory> {
    ensure!(path.is_dir(), "--state-dir {}: directory not found", path.display());
    let report_wait = |path: &Path| {
        print_stderr(&format!("waiting for another process that changes {}", path.display()));
    };
    Ok(StateDirectory::open(path, report_wait)?)
}

pub(super) fn name(text: &str) -> Result<String, String> {
    if is_object_name(text) && text.len() <= MAX_NAME_BYTES {
        Ok(text.to_owned())
    } else {
        Err(format!("expected at most {MAX_NAME_BYTES} lowercase letters, digits, dashes and dots"))
    }
}

/// Makes a machine's token and pointer config, writes its manifest, and prints how to boot by it.
///
/// # Errors
/// There is a manifest of this name, `serve` has not run yet, or a file cannot be written.
pub(crate) fn add(settings: &AddSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let AddSettings { name, pool, addresses, overlay, manifests, state } = settings;
    let overlay = overlay.as_deref().map(read_overlay).transpose()?;
    if let Some(cluster) = state.cluster()? {
        return add_to(&cluster, name, &spec(pool, addresses, overlay));
    }
    // clap requires it without a cluster.
    let manifests = manifests.as_deref().unwrap_or(Path::new("."));
    ensure!(manifests.is_dir(), "--manifests {}: directory not found", manifests.display());
    let manifest = manifests.join(format!("machine-{name}.yaml"));
    ensure!(!manifest.exists(), "{}: the machine exists already", manifest.display());
    let state = state.open()?;
    let place = place(&state, pool)?;
    let wanted = WantedMachine { name, pool, rearm: None };
    state.keep_machine(wanted, None, (&place.0, place.1), now)?;
    let overlay = overlay.map(|config| overlay_lines(&config)).transpose()?;
    let text = manifest_of(name, pool, addresses) + &overlay.unwrap_or_default();
    replace::replace(&manifest, text.as_bytes(), PUBLIC, Reader::Directory)?;
    print_line(&format!("wrote {}", manifest.display()));
    let path = state.machine_pointer_path(name);
    let text = std::fs::read(&path).with_context(|| path.display().to_string())?;
    print_line(&format!("its pointer config, with its token: {}", path.display()));
    print_line("");
    print_ways(&path.display().to_string(), &text, name);
    Ok(())
}

/// Makes a machine's object in a cluster, and prints how to boot by it.
fn add_to(cluster: &ClusterMachines, name: &str, spec: &Value) -> anyhow::Result<()> {
    let text = cluster.add(name, spec)?;
    let (secret, file) = (secret_name(name), format!("{name}.ign"));
    print_line(&format!("created FirstBootMachine {NAMESPACE}/{name}"));
    print_line(&format!("its pointer config, with its token: Secret {NAMESPACE}/{secret}"));
    print_line("");
    print_line("Write it to a file:");
    print_line(&format!(
        "  kubectl get secret {secret} --namespace {NAMESPACE} \\\n    \
         --output go-template='{{{{.data.userData | base64decode}}}}' > {file}"
    ));
    print_ways(&file, &text, name);
    Ok(())
}

/// The spec of a machine's object.
fn spec(pool: &str, addresses: &[Network], overlay: Option<Value>) -> Value {
    let mut spec = json!({"pool": pool});
    if !addresses.is_empty() {
        spec["addresses"] = addresses.iter().map(ToString::to_string).collect();
    }
    if let Some(overlay) = overlay {
        spec["overlay"] = overlay;
    }
    spec
}

/// The text of a machine's manifest. Its values are in quotes, because `1` is a name too.
fn manifest_of(name: &str, pool: &str, addresses: &[Network]) -> String {
    let addresses: Vec<_> =
        addresses.iter().map(|address| format!("  - \"{address}\"\n")).collect();
    let head = if addresses.is_empty() { "" } else { "  addresses:\n" };
    let addresses = addresses.concat();
    format!(
        "apiVersion: {FIRST_BOOT_MACHINE_VERSION}\nkind: FirstBootMachine\nmetadata:\n  \
         name: {name:?}\nspec:\n  pool: {pool:?}\n{head}{addresses}"
    )
}

/// Reads an Ignition config.
fn read_overlay(path: &Path) -> anyhow::Result<Value> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let overlay = Overlay::new(text);
    let overlay = overlay.map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(overlay.as_str())?)
}

/// The last lines of a manifest with an overlay. JSON is YAML too.
fn overlay_lines(config: &Value) -> anyhow::Result<String> {
    let lines = serde_json::to_string_pretty(config)?.replace('\n', "\n    ");
    Ok(format!("  overlay:\n    {lines}\n"))
}

/// Host and port that the pointer config of a pool sends machines to.
fn place(state: &StateDirectory, pool: &str) -> anyhow::Result<(Host, u16)> {
    let path = state.path().join("user-data").join(format!("{pool}.ign"));
    let missing = || format!("{}: run `serve` first, which makes it", path.display());
    let text = std::fs::read(&path).with_context(missing)?;
    let url = PointerConfig::read(&text).url_for(pool).with_context(missing)?;
    let url: http::Uri = url.parse()?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let host = host.parse().map_err(|_| anyhow!("{}: no host in {url}", path.display()))?;
    Ok((host, url.port_u16().unwrap_or(443)))
}

/// Prints how installers take the pointer config in `file`.
fn print_ways(file: &str, text: &[u8], name: &str) {
    let hash = HEXLOWER.encode(&Sha512::digest(text));
    for line in [
        "Install it from a system that has the file:".to_owned(),
        format!("  coreos-installer install /dev/sda --ignition-file {file}"),
        "Or from a system that fetches it from your web server:".to_owned(),
        format!(
            "  coreos-installer install /dev/sda --ignition-url https://WEB-SERVER/{name}.ign \\"
        ),
        format!("    --ignition-hash sha512-{hash}"),
        "As kernel arguments in an iPXE script, for an installation and for a live boot:"
            .to_owned(),
        format!(
            "  coreos.inst.install_dev=/dev/sda coreos.inst.ignition_url=https://WEB-SERVER/{name}.ign"
        ),
        format!(
            "  ignition.firstboot ignition.platform.id=metal ignition.config.url=https://WEB-SERVER/{name}.ign"
        ),
    ] {
        print_line(&line);
    }
}

/// Has the server arm a machine's token again.
pub(crate) fn rearm(settings: &RearmSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RearmSettings { name, state } = settings;
    let value = now.unix_timestamp_nanos().to_string();
    if let Some(cluster) = state.cluster()? {
        cluster.rearm(name, &value)?;
        print_line(&format!("{name}: the controller arms the token within seconds"));
        return Ok(());
    }
    let state = state.open()?;
    match state.machine_token(name)? {
        None => bail!("machine {name} not found"),
        Some(MachineToken { revoked: Some(_), .. }) => {
            bail!(
                "machine {name}: its FirstBootMachine was removed; `machines add` makes it again, with another token"
            )
        }
        Some(_) => {}
    }
    state.request_arming(name, &value)?;
    print_line(&format!("{name}: a running server arms the token within seconds"));
    Ok(())
}

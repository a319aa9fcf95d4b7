//! The commands `machines add` and `machines rearm`: machines with a separate token and pointer config, in a directory or
//! a cluster.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, ensure};
use clap::Args;
use controllers::NAMESPACE;
use controllers::certificates::managed_name;
use data_encoding::HEXLOWER;
use files::bounded;
use files::owners::Reader;
use files::replace::{self, PRIVATE, PUBLIC};
use model::access::Network;
use model::escape::escaped;
use model::objects::{FIRST_BOOT_MACHINE_VERSION, MAX_NAME_BYTES, Overlay, is_object_name};
use model::pointer_config::PointerConfig;
use pki::Host;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use time::OffsetDateTime;

use super::removal::complete;
use crate::commands::pool_names::pool_names;
use crate::commands::print_line;
use crate::commands::rendering::read_usable;
use crate::commands::stores::cluster::ClusterStore;
use crate::commands::stores::location::StateFlags;
use crate::source::Butane;
use crate::store::machine_files::WantedMachine;
use crate::store::state_directory::StateDirectory;

#[derive(Debug, Args)]
pub(crate) struct AddSettings {
    /// Name of the machine, as of an object: lowercase letters, digits, dashes and dots
    #[arg(value_parser = name)]
    name: String,
    /// Pool whose config it gets
    #[arg(long, value_name = "POOL", value_parser = name, add = pool_names())]
    pool: String,
    /// Address or network that its token may be used from, everywhere by default. May be repeated
    #[arg(long = "address", value_name = "CIDR")]
    addresses: Vec<Network>,
    /// Ignition config that is merged into the pool's config for this machine
    #[arg(long, value_name = "FILE")]
    overlay: Option<PathBuf>,
    /// Directory of the manifests that `serve` reads
    #[arg(long, value_name = "DIR", required_unless_present_any = ["kubeconfig", "in_cluster"],
        conflicts_with_all = ["kubeconfig", "in_cluster"])]
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

pub(in crate::commands) fn name(text: &str) -> Result<String, String> {
    if is_object_name(text) && text.len() <= MAX_NAME_BYTES {
        Ok(text.to_owned())
    } else {
        Err(format!("expected at most {MAX_NAME_BYTES} lowercase letters, digits, dashes and dots"))
    }
}

/// Makes a machine's token and pointer config, writes its manifest, and prints how to boot by it.
///
/// # Errors
/// There is a machine of this name, `serve` has not run yet, or a file cannot be written.
pub(crate) fn add(settings: &AddSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let AddSettings { name, pool, addresses, overlay: overlay_path, manifests, state } = settings;
    let overlay = overlay_path.as_deref().map(read_overlay).transpose()?;
    if let Some(cluster) = state.cluster(NAMESPACE)? {
        return add_to(&cluster, name, &spec(pool, addresses, overlay));
    }
    // clap requires it without a cluster.
    let manifests = manifests.as_deref().unwrap_or(Path::new("."));
    ensure!(manifests.is_dir(), "--manifests {}: directory not found", manifests.display());
    let manifest = manifests.join(format!("machine-{name}.yaml"));
    ensure!(!manifest.exists(), "{}: the machine exists already", manifest.display());
    let known = read_usable(manifests.to_owned(), Butane::default())?.machines;
    ensure!(
        !known.contains_key(name),
        "--manifests {}: another manifest has FirstBootMachine {name} already",
        manifests.display()
    );
    let state = state.directory()?;
    let place = place(&state, pool)?;
    // A removal that failed has left the token that it was to revoke.
    complete(&state, name, now)
        .with_context(|| format!("machine {name}, whose removal is not complete"))?;
    let wanted = WantedMachine { name, pool, rearm: None };
    state.store_machine(wanted, None, (&place.0, place.1), now)?;
    let overlay = overlay.map(|config| overlay_lines(&config)).transpose()?;
    let text = manifest_of(name, pool, addresses) + &overlay.unwrap_or_default();
    if overlay_path.as_deref().is_some_and(is_private) {
        // The server's user reads it.
        state.replace(&manifest, text.as_bytes(), PRIVATE)?;
    } else {
        replace::replace(&manifest, text.as_bytes(), PUBLIC, Reader::Directory)?;
    }
    print_line(&format!("wrote {}", manifest.display()));
    let path = state.machine_pointer_path(name);
    let text = bounded::read(&path).with_context(|| path.display().to_string())?;
    print_line(&format!("its pointer config, with its token: {}", path.display()));
    print_line("");
    print_ways(&path.display().to_string(), &text, name);
    Ok(())
}

/// Makes a machine's object in a cluster, and prints how to boot by it.
fn add_to(cluster: &ClusterStore, name: &str, spec: &Value) -> anyhow::Result<()> {
    let text = cluster.add_machine(name, spec)?;
    let (secret, file) = (managed_name(name), format!("{name}.ign"));
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
    let head = if addresses.is_empty() { "" } else { "  addresses:\n" };
    let addresses: Vec<_> = addresses.iter().map(|it| format!("  - \"{it}\"\n")).collect();
    let addresses = addresses.concat();
    format!(
        "apiVersion: {FIRST_BOOT_MACHINE_VERSION}\nkind: FirstBootMachine\nmetadata:\n  \
         name: {name:?}\nspec:\n  pool: {pool:?}\n{head}{addresses}"
    )
}

/// Reads an Ignition config.
fn read_overlay(path: &Path) -> anyhow::Result<Value> {
    let text = bounded::read_text(path).with_context(|| path.display().to_string())?;
    let overlay = Overlay::new(text);
    let overlay = overlay.map_err(|error| anyhow!("{}: {error}", path.display()))?;
    Ok(serde_json::from_str(overlay.as_str())?)
}

/// Returns `true` if not all users can read a file.
fn is_private(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| found.mode() & 0o004 == 0)
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
    let text = bounded::read(&path).with_context(missing)?;
    let url = PointerConfig::read(&text).url_for(pool).with_context(missing)?;
    let url: http::Uri = url.parse()?;
    let host = url.host().unwrap_or_default().trim_matches(['[', ']']);
    let host = host.parse().map_err(|_| anyhow!("{}: no host in {url}", path.display()))?;
    Ok((host, url.port_u16().unwrap_or(443)))
}

/// Prints how installers take the pointer config in `file`.
fn print_ways(file: &str, text: &[u8], name: &str) {
    let (file, hash) = (escaped(file), HEXLOWER.encode(&Sha512::digest(text)));
    let url = format!("https://WEB-SERVER/{name}.ign");
    let text = format!(
        "Install it from a system that has the file:
  coreos-installer install /dev/sda --ignition-file {file}
Or from a system that fetches it from your web server:
  coreos-installer install /dev/sda --ignition-url {url} \\
    --ignition-hash sha512-{hash}
As kernel arguments in an iPXE script, for an installation and for a live boot:
  coreos.inst.install_dev=/dev/sda coreos.inst.ignition_url={url}
  ignition.firstboot ignition.platform.id=metal ignition.config.url={url}"
    );
    text.lines().for_each(print_line);
}

/// Has the server arm a machine's token again.
pub(crate) fn rearm(settings: &RearmSettings, now: OffsetDateTime) -> anyhow::Result<()> {
    let RearmSettings { name, state } = settings;
    let value = now.unix_timestamp_nanos().to_string();
    if let Some(cluster) = state.cluster(NAMESPACE)? {
        cluster.rearm_machine(name, &value)?;
        print_line(&format!("{name}: the controller arms the token within seconds"));
        return Ok(());
    }
    let state = state.directory()?;
    let token = state.machine_token(name)?.with_context(|| format!("machine {name} not found"))?;
    ensure!(
        token.revoked.is_none(),
        "machine {name}: its FirstBootMachine was removed; `machines add` makes it again, with another token"
    );
    state.request_arming(name, &value)?;
    print_line(&format!("{name}: a running server arms the token within seconds"));
    Ok(())
}

//! `render`: the config of a pool's machines, or their pointer config, without a server.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail, ensure};
use ignition::{POINTER_SPEC, SpecVersion, pointer};
use model::access::Records;
use model::access::rotation::{Carried, PointerToken};
use model::inputs::Inputs;
use model::merged_pool::{self, Member, Origin, ParsedMachineConfig};
use model::pointer_config::{PointerConfig, carried};
use model::render::select;
use model::table::table;
use pki::Certificate;
use time::OffsetDateTime;

use super::place::Place;
use super::probe::Address;
use super::rendering::{read_cluster, read_manifests, rendered};
use super::terminal;
use crate::source::cluster;

/// What is rendered.
#[derive(Debug)]
pub enum Rendered {
    /// A pool's config.
    Config {
        /// From which manifests or cluster.
        from: From,
        /// In which spec.
        spec: SpecVersion,
        /// Whether inputs with something that has no effect are refused.
        is_strict: bool,
    },
    /// The MachineConfig that the config is made of.
    MachineConfig {
        /// From which manifests or cluster.
        from: From,
        /// Whether to print where everything in it comes from, in its place.
        is_explained: bool,
    },
    /// The file that sends a machine to a server for it.
    Pointer {
        /// Where the CAs are that it is to trust.
        authorities: Place,
        /// Where machines reach the server; that of an older pointer config if it is not given.
        server: Option<Address>,
        /// In which spec; the oldest that can say it if it is not given.
        spec: Option<SpecVersion>,
    },
}

/// Where inputs are read.
#[derive(Debug)]
pub enum From {
    /// A folder of manifests.
    Manifests(PathBuf),
    /// A cluster.
    Cluster(cluster::Settings),
}

impl From {
    fn read(self, is_strict: bool) -> anyhow::Result<Inputs> {
        match self {
            Self::Manifests(directory) => read_manifests(directory, is_strict),
            Self::Cluster(settings) => read_cluster(settings),
        }
    }
}

/// Prints it to standard output.
///
/// # Errors
/// It cannot be had; then nothing was printed.
pub fn run(pool: &str, what: Rendered) -> anyhow::Result<()> {
    let mut text = match what {
        Rendered::Config { from, spec, is_strict } => {
            let inputs = from.read(is_strict)?;
            if let (true, Some(first)) = (is_strict, inputs.warnings.first()) {
                bail!("{first}; --strict refuses it");
            }
            let text = rendered(&inputs, pool, spec).map_err(|cause| anyhow!("{cause}"))?.to_vec();
            for warning in &inputs.warnings {
                // Nobody may be reading it.
                let _ = writeln!(std::io::stderr(), "machine-config-server: warning: {warning}");
            }
            text
        }
        Rendered::MachineConfig { from, is_explained: true } => {
            explained(&from.read(false)?, pool)?
        }
        Rendered::MachineConfig { from, is_explained: false } => {
            let inputs = from.read(false)?;
            let served =
                select(&inputs, pool).map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
            serde_json::to_vec_pretty(&*served.machine_config)?
        }
        Rendered::Pointer { authorities, server, spec } => {
            make_pointer(pool, &authorities, server, spec.unwrap_or(POINTER_SPEC))?.into_bytes()
        }
    };
    text.push(b'\n');
    let mut stdout = std::io::stdout().lock();
    // Half a config on a stick is worse than none: what cannot be written is told.
    stdout.write_all(&text).and_then(|()| stdout.flush()).context("standard output")
}

/// A table of everything in a pool's MachineConfig: which MachineConfig it comes from, and which others say
/// something else of it.
fn explained(inputs: &Inputs, pool: &str) -> anyhow::Result<Vec<u8>> {
    let read = inputs.pools.get(pool).ok_or_else(|| anyhow!("there is no pool {pool}"))?;
    let selected = merged_pool::select(read, inputs.machine_configs.values())
        .map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
    let parsed: Vec<_> = selected.into_iter().map(ParsedMachineConfig::new).collect();
    let origins = merged_pool::origins(&parsed.iter().collect::<Vec<_>>())
        .map_err(|reason| anyhow!("pool {pool}: {reason}"))?;
    let said = |origin: &&Origin| !origin.members.is_empty() || !origin.covered.is_empty();
    let rows: Vec<_> = origins.iter().filter(said).map(origin_row).collect();
    Ok(table(&["WHAT", "WHICH", "FROM", "COVERS"], &rows, terminal::look()).join("\n").into_bytes())
}

fn origin_row(origin: &Origin) -> Vec<String> {
    let mut from: Vec<(&str, Vec<&str>)> = Vec::new();
    for Member { name, machine_config } in &origin.members {
        match from.iter_mut().find(|(config, _)| config == machine_config) {
            Some((_, names)) => names.push(name),
            None => from.push((machine_config, vec![name])),
        }
    }
    // Which part comes from whom matters only where several have one.
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

fn make_pointer(
    pool: &str,
    authorities: &Place,
    server: Option<Address>,
    spec: SpecVersion,
) -> anyhow::Result<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if pool.is_empty() || !pool.chars().all(is_part) {
        bail!("{pool:?} is no pool's name");
    }
    let store = authorities.open()?;
    let seen = store.observe(None)?;
    let place = &seen.place;
    let bundle = seen.observed.trusted();
    if bundle.is_empty() {
        bail!("{place}: there is no certificate authority yet");
    }
    // Another server's leads a machine that trusts these CAs nowhere.
    let mut own = seen.pointers.iter().map(|(_, text)| PointerConfig::read(text));
    let kept = || own.find_map(|it| it.url_for(pool).filter(|_| seen.stranger(&it).is_none()));
    let url = server.map(|address| format!("https://{address}/config/{pool}")).or_else(kept);
    let url = url.ok_or_else(|| {
        anyhow!(
            "{place}: no pointer config says where machines find a server: --server HOST:PORT does"
        )
    })?;
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    let text = pointer(&url, pem.as_bytes(), spec).to_string();
    match with_token(&text, pool, &seen.carriers(), store.records()) {
        Ok(Some(with)) => Ok(String::from_utf8(with)?),
        Ok(None) => Ok(text),
        Err(reason) => {
            // Nobody may be reading it.
            let _ = writeln!(std::io::stderr(), "machine-config-server: {place}: {reason}");
            Ok(text)
        }
    }
}

/// The pointer config with the token that those for the same pool carry, `None` where nothing says that
/// it should have one.
///
/// # Errors
/// Why it has none.
fn with_token(
    text: &str,
    pool: &str,
    pointers: &[PointerToken],
    records: anyhow::Result<Records>,
) -> anyhow::Result<Option<Vec<u8>>> {
    let others =
        format!("the pointer configs for pool {pool} carry a token, and this one does not");
    let records = match records {
        Ok(records) => records,
        Err(error) => {
            let carries =
                |it: &PointerToken| it.pool == pool && matches!(it.carries, Carried::Token(_));
            let unknown = error.context("which tokens are good is not known");
            ensure!(!pointers.iter().any(carries), "{others}: {unknown:#}");
            return Ok(None);
        }
    };
    let Some(token) = carried(pointers, pool, &records, OffsetDateTime::now_utc()) else {
        ensure!(
            !records.enforced.contains(pool),
            "pool {pool} is enforced, and no pointer config carries a token that opens it: this one \
             carries none"
        );
        return Ok(None);
    };
    PointerConfig::read(text.as_bytes())
        .with_bearer(pool, token.as_str())
        .map(Some)
        .map_err(|reason| anyhow!("{others}: {reason}"))
}

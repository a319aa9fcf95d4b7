//! `render`: the config of a pool's machines, or their pointer config, without a server.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};

use super::certs::{self, Place, Seen};
use super::probe::Address;
use super::rendering::{read_cluster, read_manifests, rendered};
use crate::ignition::{SpecVersion, pointer};
use crate::pki::Certificate;
use crate::source::cluster;
use crate::user_data::{self, Brings, fetches_of_pools, with_bearer};

/// The oldest spec that can name a CA and a config to merge, so that old boot images read it.
const POINTER_SPEC: SpecVersion = SpecVersion::V3_1;

/// What is rendered.
#[derive(Debug)]
pub enum Rendered {
    /// A pool's config.
    Config {
        /// From which manifests or cluster.
        from: From,
        /// In which spec.
        spec: SpecVersion,
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

/// Prints it to standard output.
///
/// # Errors
/// It cannot be had; then nothing was printed.
pub fn run(pool: &str, what: Rendered) -> anyhow::Result<()> {
    let mut text = match what {
        Rendered::Config { from, spec } => {
            let inputs = match from {
                From::Manifests(folder) => read_manifests(folder)?,
                From::Cluster(settings) => read_cluster(settings)?,
            };
            rendered(&inputs, pool, spec).map_err(|cause| anyhow!("{cause}"))?.to_vec()
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
    let seen = certs::see(authorities)?;
    let bundle = seen.observed.trusted();
    if bundle.is_empty() {
        bail!("{}: there is no certificate authority yet", seen.place);
    }
    let kept = || seen.pointers.iter().find_map(|(_, text)| user_data::url_for(text, pool));
    let url = server.map(|address| format!("https://{address}/config/{pool}")).or_else(kept);
    let url = url.ok_or_else(|| {
        let place = &seen.place;
        anyhow!(
            "{place}: no pointer config says where machines find a server: --server HOST:PORT does"
        )
    })?;
    let pem: String = bundle.iter().map(Certificate::to_pem).collect();
    let text = pointer(&url, pem.as_bytes(), spec).to_string();
    let Some(token) = token(&seen, pool) else { return Ok(text) };
    match with_bearer(text.as_bytes(), pool, &token) {
        Ok(with) => Ok(String::from_utf8(with)?),
        Err(reason) => {
            let place = &seen.place;
            let warning = format!(
                "{place}: the pointer configs for pool {pool} carry a token, and this one does not: \
                 {reason}"
            );
            // Nobody may be reading it.
            let _ = writeln!(std::io::stderr(), "machine-config-server: {warning}");
            Ok(text)
        }
    }
}

/// What the pointer configs that are there bring along for a pool.
fn token(seen: &Seen, pool: &str) -> Option<String> {
    let mut fetches = seen.pointers.iter().flat_map(|(_, text)| fetches_of_pools(text));
    fetches.find_map(|fetch| match fetch.brings {
        Brings::Bearer(token) if fetch.pool == pool => Some(token),
        _ => None,
    })
}

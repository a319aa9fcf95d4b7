//! Flags of `inspect`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use common::flags::{date_or_time, spec};
use http::Uri;
use ignition::SpecVersion;
use time::OffsetDateTime;

use crate::commands::pool_names::pools_and_paths;
use crate::commands::probe::Address;
use crate::commands::rendering::ManifestFlags;

/// Default URL of a server.
const DEFAULT_URL: &str = "https://localhost:22623";

#[derive(Debug, Args)]
#[command(override_usage = "machine-config-server inspect [OPTIONS] [URL|DIR|FILE] [POOL]")]
pub(crate) struct InspectSettings {
    /// A server (https://localhost:22623 by default), a directory of manifests, or a saved config; and a
    /// pool, unless the URL, the file or --pointer names it
    #[arg(value_name = "URL|DIR|FILE] [POOL", num_args = 0..=2, add = pools_and_paths())]
    pub(super) targets: Vec<String>,
    /// Ignition spec that the machine reads: 2.2, 3.0 to 3.6
    #[arg(long = "as", value_name = "SPEC", default_value = "3.6", value_parser = spec(), hide_possible_values = true)]
    pub(super) spec: SpecVersion,
    /// Take URL, trust, headers and pool from a machine's pointer config
    #[arg(long, value_name = "FILE.ign", conflicts_with = "ca")]
    pub(super) pointer: Option<PathBuf>,
    /// Connect to this address instead of the URL's, such as one server behind a load balancer
    #[arg(long, value_name = "HOST:PORT")]
    pub(super) connect: Option<Address>,
    /// CAs that the machine trusts, in PEM; ca.crt of --state-dir by default, if it exists
    #[arg(long, value_name = "FILE")]
    pub(super) ca: Option<PathBuf>,
    /// Directory in which `serve` keeps its CAs
    #[arg(long, value_name = "DIR", default_value = "certs")]
    pub(super) state_dir: PathBuf,
    /// Time of the machine's clock, such as 2020-01-01 or 2020-01-01T00:00:00Z; now by default
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub(super) at: Option<OffsetDateTime>,
    /// Print one file as the machine will have it, byte for byte, secret or not
    #[arg(long, value_name = "PATH", conflicts_with_all = ["diff", "json"])]
    pub(super) file: Option<String>,
    /// Show the differences to a URL, a directory, a saved config, a spec, or a pool; of two directories, for
    /// each pool if none is named
    #[arg(long, value_name = "OTHER")]
    pub(super) diff: Option<String>,
    /// Exit with 1 if a field has no effect: an unknown one, or one that is newer than the config's spec
    #[arg(long, conflicts_with_all = ["file", "diff"])]
    pub(super) strict: bool,
    #[command(flatten)]
    pub(super) manifests: ManifestFlags,
    /// Print JSON, for scripts
    #[arg(long)]
    pub(super) json: bool,
}

/// Source of a config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ConfigSource {
    /// A server; its URL can contain the pool.
    Server(Uri),
    Manifests(PathBuf),
    /// A config or a MachineConfig in a file.
    Saved(PathBuf),
    /// A pointer config.
    Pointer(PathBuf),
}

/// A machine to inspect.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) place: ConfigSource,
    /// Pool of the machine; a URL and a pointer config can contain it too.
    pub(super) pool: Option<String>,
    pub(super) spec: SpecVersion,
}

impl InspectSettings {
    /// The machine in the positional arguments.
    pub(super) fn subject(&self) -> anyhow::Result<Subject> {
        let (place, pool) = target(&self.targets, self.pointer.as_deref())?;
        Ok(Subject { place, pool, spec: self.spec })
    }
}

impl ConfigSource {
    /// Parses a URL, `HOST:PORT`, or an existing path.
    pub(super) fn read(text: &str) -> Option<Self> {
        if text.contains("://") {
            let url = text.parse::<Uri>().ok()?;
            return matches!(url.scheme_str(), Some("http" | "https")).then_some(Self::Server(url));
        }
        let path = Path::new(text);
        if path.is_dir() {
            return Some(Self::Manifests(path.to_owned()));
        }
        if path.is_file() {
            return Some(Self::Saved(path.to_owned()));
        }
        let address: Address = text.parse().ok()?;
        format!("https://{address}").parse().ok().map(Self::Server)
    }
}

/// Source and pool of the config.
fn target(
    targets: &[String],
    pointer: Option<&Path>,
) -> anyhow::Result<(ConfigSource, Option<String>)> {
    let place = |text: &str| {
        ConfigSource::read(text).with_context(|| {
            format!("{text}: file or directory not found, and not https://HOST:PORT")
        })
    };
    if let Some(file) = pointer {
        let file = file.to_owned();
        return match targets {
            [] => Ok((ConfigSource::Pointer(file), None)),
            [pool] if ConfigSource::read(pool).is_none() => {
                Ok((ConfigSource::Pointer(file), Some(pool.clone())))
            }
            _ => {
                bail!(
                    "--pointer has the URL of the config; use --connect HOST:PORT to connect elsewhere"
                )
            }
        };
    }
    match targets {
        [] => bail!("POOL is missing: name a pool, or a pointer config with --pointer FILE.ign"),
        [one] => match ConfigSource::read(one) {
            Some(place) => Ok((place, None)),
            None if one.contains(['/', ':']) => Ok((place(one)?, None)),
            None => Ok((place(DEFAULT_URL)?, Some(one.clone()))),
        },
        [first, pool, ..] => Ok((place(first)?, Some(pool.clone()))),
    }
}

fn time(text: &str) -> Result<OffsetDateTime, String> {
    date_or_time(text)
        .ok_or_else(|| "expected a time such as 2020-01-01 or 2020-01-01T00:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_date_or_more() {
        assert_eq!(time("2020-01-01").unwrap(), time("2020-01-01T00:00:00Z").unwrap());
        assert!(time("yesterday").is_err() && time("2020-13-01").is_err());
    }

    #[test]
    fn one_word_is_a_pool_of_the_server_here() {
        let (place, pool) = target(&["no-such-pool".to_owned()], None).unwrap();
        assert_eq!(place, ConfigSource::Server(DEFAULT_URL.parse().unwrap()));
        assert_eq!(pool.as_deref(), Some("no-such-pool"));
        assert!(target(&["no/such/folder".to_owned()], None).is_err());
        assert!(target(&[], None).is_err());
        let url = "https://a:1/config/b".to_owned();
        assert_eq!(
            target(std::slice::from_ref(&url), None).unwrap(),
            (ConfigSource::Server(url.parse().unwrap()), None)
        );
    }
}

//! The command `inspect`: shows the machine that a config makes, fetched as a machine would, and the cause if it does
//! not come up.

pub(in crate::commands) mod fetch;
mod inspection;
mod settings;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, anyhow, bail};
use files::bounded;
use http::Uri;
use ignition::{Config, SpecVersion};
use inspect::{Cause, Outcome, Step, machine};
use model::fetched_pools::fetched_pools;
use model::inputs::Inputs;
use model::objects::{MachineConfig, Object};
use model::pointer_config::{Fetch, MAX_BYTES, PointerConfig};
use model::render::SelectError;
use secrets::redacted;
use serde_json::json;
use time::OffsetDateTime;

pub(crate) use self::settings::InspectSettings;

use self::fetch::{FetchRequest, fetch};
use self::inspection::{Difference, Inspection};
use self::settings::{ConfigSource, Subject};
use super::process::block_on;
use super::process::progress::Progress;
use super::rendering::{read_manifests, rendered};
use super::stores::certificate_texts::read_certificates;
use crate::source::Butane;
use crate::source::manifest::{self, Manifest};

/// Runs the command. The exit code is 1 if the machine does not come up, or two differ.
///
/// # Errors
/// There is nothing to inspect: a file is unreadable, or no pool is named.
pub(crate) fn run(settings: &InspectSettings, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
    // A URL can contain a password.
    inspect(settings, now).map_err(|error| anyhow!("{}", redacted(&format!("{error:#}"))))
}

fn inspect(settings: &InspectSettings, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
    let subject = &settings.subject()?;
    if let (Some(other), ConfigSource::Manifests(before), None) =
        (&settings.diff, &subject.place, &subject.pool)
        && let Some(ConfigSource::Manifests(after)) = ConfigSource::read(other)
    {
        return differences([before, &after], &settings.manifests.butane(), subject.spec)?
            .show(settings.json);
    }
    let got = get(settings, subject, now)?;
    if let Some(path) = &settings.file {
        return got.show_file(path);
    }
    if let Some(other) = &settings.diff {
        let other = get(settings, &otherwise(subject, other)?, now)?;
        return Difference::between(&got, &other).show(settings.json);
    }
    let code = got.show(settings.json, now)?;
    let is_refused = settings.strict && !got.warnings.is_empty();
    Ok(if is_refused { ExitCode::FAILURE } else { code })
}

/// Differences of each pool in two directories. A pool in only one of them is compared with nothing.
fn differences(
    [before, after]: [&Path; 2],
    butane: &Butane,
    spec: SpecVersion,
) -> anyhow::Result<Difference> {
    let read = |directory: &Path| read_manifests(directory.to_owned(), butane.clone(), false);
    let inputs = [read(before)?, read(after)?];
    let pools: BTreeSet<_> = inputs.iter().flat_map(|it| it.pools.keys()).collect();
    let mut all = Difference { is_any: false, json: json!({}), lines: Vec::new() };
    for pool in pools {
        let [got, other] =
            [(&inputs[0], before), (&inputs[1], after)].map(|(inputs, directory)| {
                if inputs.pools.contains_key(pool) {
                    by_inputs(inputs, directory, pool, spec)
                } else {
                    Inspection::absent(&format!("{} without pool {pool}", directory.display()))
                }
            });
        let Difference { is_any, json, lines } = Difference::between(&got, &other);
        all.is_any |= is_any;
        all.json[pool] = json;
        if !all.lines.is_empty() {
            all.lines.push(String::new());
        }
        all.lines.extend(lines);
    }
    Ok(all)
}

/// The other machine of a comparison.
fn otherwise(first: &Subject, other: &str) -> anyhow::Result<Subject> {
    let mut subject = first.clone();
    if let Some(spec) = SpecVersion::read(other) {
        subject.spec = spec;
        return Ok(subject);
    }
    if let Some(place) = ConfigSource::read(other) {
        // A pool in the first URL applies to the other one too.
        if let (None, ConfigSource::Server(url)) = (&subject.pool, &subject.place) {
            subject.pool = pool_of(url).map(str::to_owned);
        }
        subject.place = place;
        return Ok(subject);
    }
    if matches!(subject.place, ConfigSource::Saved(_)) || other.contains('/') {
        bail!("--diff {other}: file not found, and not a URL, spec or pool");
    }
    if let ConfigSource::Server(url) = &subject.place {
        subject.place = ConfigSource::Server(without_path(url)?);
    }
    subject.pool = Some(other.to_owned());
    Ok(subject)
}

/// Pool in the path `/config/POOL`.
fn pool_of(url: &Uri) -> Option<&str> {
    url.path()
        .strip_prefix("/config/")
        .map(|pool| pool.trim_end_matches('/'))
        .filter(|it| !it.is_empty())
}

fn without_path(url: &Uri) -> anyhow::Result<Uri> {
    let (scheme, authority) = (url.scheme_str().unwrap_or("https"), url.authority());
    Ok(format!("{scheme}://{}", authority.map_or("", http::uri::Authority::as_str)).parse()?)
}

fn get(
    settings: &InspectSettings,
    subject: &Subject,
    now: OffsetDateTime,
) -> anyhow::Result<Inspection> {
    let pool = subject.pool.as_deref();
    match &subject.place {
        ConfigSource::Saved(path) => saved(path),
        ConfigSource::Manifests(directory) => {
            let pool = pool.ok_or_else(|| {
                anyhow!("{0}: POOL is missing: write it after {0}", directory.display())
            })?;
            let inputs = read_manifests(directory.clone(), settings.manifests.butane(), false)?;
            Ok(by_inputs(&inputs, directory, pool, subject.spec))
        }
        ConfigSource::Server(url) => {
            let url = with_pool(url, pool)?;
            let trusted = trusted(settings)?;
            let trusted = trusted.filter(|_| url.scheme() != Some(&http::uri::Scheme::HTTP));
            let (trusted_by, trusted) = trusted.unzip();
            let fetch = fetch_of(url, trusted.unwrap_or_default(), subject.spec)?;
            by_server(&request(settings, fetch, trusted_by, now))
        }
        ConfigSource::Pointer(path) => by_pointer(settings, subject, path, now),
    }
}

/// The fetch of a machine that trusts these CAs.
fn fetch_of(url: Uri, trusted: Vec<pki::Certificate>, spec: SpecVersion) -> anyhow::Result<Fetch> {
    let host = url.host().unwrap_or_default().parse();
    let host = host.map_err(|error| anyhow!("{url}: {error}"))?;
    let pool = last_segment(&url).to_owned();
    Ok(Fetch { url, host, pool, headers: Vec::new(), spec, trusted })
}

/// Last segment of a path, which is the pool.
fn last_segment(url: &Uri) -> &str {
    url.path().trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

fn request(
    settings: &InspectSettings,
    fetch: Fetch,
    trusted_by: Option<String>,
    now: OffsetDateTime,
) -> FetchRequest {
    let (connect, at) = (settings.connect.clone(), settings.at.unwrap_or(now));
    FetchRequest { fetch, trusted_by, connect, at, now }
}

fn with_pool(url: &Uri, pool: Option<&str>) -> anyhow::Result<Uri> {
    match (url.path(), pool) {
        ("" | "/", Some(pool)) => {
            let base = url.to_string();
            let text = format!("{}/config/{pool}", base.trim_end_matches('/'));
            text.parse().with_context(|| format!("{pool:?} is not the name of a pool"))
        }
        ("" | "/", None) => bail!("{url}: POOL is missing: write it after the URL"),
        (_, None) => Ok(url.clone()),
        (_, Some(pool)) if pool_of(url) == Some(pool) => Ok(url.clone()),
        (_, Some(pool)) => {
            bail!("{url} has another path than the config of pool {pool}: leave out one of the two")
        }
    }
}

/// CAs in the flags or in the state directory, with their source.
fn trusted(settings: &InspectSettings) -> anyhow::Result<Option<(String, Vec<pki::Certificate>)>> {
    let bundle = settings.state_dir.join("ca.crt");
    let path = match &settings.ca {
        Some(path) => path,
        None if bundle.is_file() => &bundle,
        None => return Ok(None),
    };
    let name = path.display().to_string();
    let found = read_certificates(path).with_context(|| name.clone())?;
    Ok(Some((name, found)))
}

fn by_pointer(
    settings: &InspectSettings,
    subject: &Subject,
    path: &Path,
    now: OffsetDateTime,
) -> anyhow::Result<Inspection> {
    let name = path.display().to_string();
    let text = bounded::read_start(path, MAX_BYTES as u64 + 1);
    let text = text.with_context(|| format!("--pointer {name}"))?;
    let config = PointerConfig::read(&text);
    let Some((first, others)) = config.fetches().split_first() else {
        let faults: Vec<_> = config.faults().iter().map(ToString::to_string).collect();
        return Ok(Inspection::refused(&name, invalid(faults.join("; "))));
    };
    let url = match &subject.pool {
        Some(pool) => with_pool(&without_path(&first.url)?, Some(pool))?,
        None => first.url.clone(),
    };
    let asked = Fetch {
        headers: first.headers.clone(),
        ..fetch_of(url, first.trusted.clone(), subject.spec)?
    };
    let mut got = by_server(&request(settings, asked, Some(name), now))?;
    let warnings = config.warnings().iter().map(ToString::to_string);
    let others = others
        .iter()
        .map(|fetch| format!("the machine fetches {} too, which is not checked", fetch.url));
    let ignored = manifest::config_warnings(&String::from_utf8_lossy(&text));
    let seen: Vec<_> = warnings.chain(ignored).chain(others).collect();
    if let (Some(trace), false) = (&mut got.trace, seen.is_empty()) {
        trace.steps.insert(0, Step { name: "pointer", outcome: Outcome::Noted, seen, took: None });
    }
    Ok(got)
}

fn by_server(request: &FetchRequest) -> anyhow::Result<Inspection> {
    let progress =
        Progress::start(&format!("fetching {}", redacted(&request.fetch.url.to_string())));
    let (mut trace, body) = block_on(fetch(request))?;
    drop(progress);
    let name = trace.url.clone();
    let Some(body) = body else {
        return Ok(Inspection { name, trace: Some(trace), ..Inspection::default() });
    };
    let warnings = manifest::config_warnings(&String::from_utf8_lossy(&body));
    let read = read_config(&body).and_then(|config| {
        let pool = &request.fetch.pool;
        if fetched_pools(&String::from_utf8_lossy(&body)).contains(pool) {
            let way = SelectError::FetchesForever(vec![pool.clone(), pool.clone()]);
            return Err(Cause::FetchesForever(way.to_string()));
        }
        if config.declared() <= request.fetch.spec {
            return Ok(config);
        }
        let (requested, served) = (request.fetch.spec, vec![config.declared()]);
        Err(Cause::NotInSpec { requested, served, reported: String::new(), is_received: true })
    });
    let (outcome, seen) = match &read {
        Ok(config) => (Outcome::Fine, format!("valid, in spec {}", config.declared())),
        Err(cause) => (Outcome::Failed, cause.to_string()),
    };
    trace.steps.push(Step { name: "config", outcome, seen: vec![seen], took: None });
    let machine = read.map(|config| machine(&config, None));
    let machine = machine.map_err(|cause| trace.cause = Some(cause)).ok();
    Ok(Inspection { name, trace: Some(trace), machine, warnings })
}

fn by_inputs(inputs: &Inputs, directory: &Path, pool: &str, spec: SpecVersion) -> Inspection {
    let warnings = inputs.warnings.iter().map(ToString::to_string).collect();
    let name = format!("{} {pool} {spec}", directory.display());
    match rendered(inputs, pool, spec).and_then(|body| read_config(&body)) {
        Ok(config) => {
            let machine = Some(machine(&config, None));
            Inspection { name, machine, warnings, ..Inspection::default() }
        }
        Err(cause) => Inspection { warnings, ..Inspection::refused(&name, cause) },
    }
}

/// Inspects a saved config: as served, or as a MachineConfig.
fn saved(path: &Path) -> anyhow::Result<Inspection> {
    let name = path.display().to_string();
    let bytes = bounded::read(path).with_context(|| name.clone())?;
    let got = |machine, warnings| {
        let (name, machine) = (name.clone(), Some(machine));
        Inspection { name, machine, warnings, ..Inspection::default() }
    };
    let as_config = read_config(&bytes);
    if let Ok(config) = &as_config {
        let warnings = manifest::config_warnings(&String::from_utf8_lossy(&bytes));
        return Ok(got(machine(config, None), warnings));
    }
    let Manifest { objects, warnings, .. } = manifest::read(&bytes).unwrap_or_default();
    let mut configs = objects.into_iter().filter_map(|object| match object {
        Object::MachineConfig(config) => Some(config),
        _ => None,
    });
    let read = match (configs.next(), configs.next()) {
        (Some(_), Some(_)) => {
            bail!(
                "{name} has several MachineConfigs: inspect the directory with their pools instead"
            )
        }
        (Some(one), None) => read_machine_config(&one).map(|config| machine(&config, Some(&one))),
        (None, _) => as_config.map(|config| machine(&config, None)),
    };
    Ok(match read {
        Ok(machine) => got(machine, warnings),
        Err(cause) => Inspection::refused(&name, cause),
    })
}

fn read_machine_config(machine_config: &MachineConfig) -> Result<Config, Cause> {
    let text = machine_config.ignition();
    let text = text.ok_or_else(|| invalid("the MachineConfig has no Ignition config"))?;
    read_config(text.as_bytes())
}

/// Cause for a config that a machine receives and cannot use.
fn invalid(reported: impl Into<String>) -> Cause {
    Cause::InvalidConfig { reported: reported.into(), is_received: true }
}

/// Parses a foreign config, as Ignition would.
fn read_config(bytes: &[u8]) -> Result<Config, Cause> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| invalid("it is not text in UTF-8"))?;
    manifest::check_json(text).map_err(|error| invalid(format!("it {error}")))?;
    Config::parse(text).map_err(|error| invalid(error.to_string()))
}

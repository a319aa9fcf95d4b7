//! `inspect`: what a machine becomes, as it would get it, and why it does not come up.

mod fetch;
mod settings;

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use http::Uri;
use ignition::secrets::redacted;
use ignition::{Config, SpecVersion};
use model::escape::escaped;
use model::inputs::Inputs;
use model::inspect::{
    Cause, Machine, Outcome, Step, Trace, as_json, changes, changes_as_text, machine,
    machine_as_text, warnings_as_text, way_as_text,
};
use model::objects::{MachineConfig, Object};
use model::pointer_check;
use model::user_data::MAX_BYTES;
use pki::Host;
use serde_json::json;
use time::OffsetDateTime;

pub use self::settings::InspectSettings;

use self::settings::{Place, Subject};
use super::inspect::fetch::{FetchRequest, Fetched, fetch, read_authorities};
use super::rendering::{read_manifests, rendered};
use super::terminal;
use crate::files::bounded;
use crate::source::manifest::{self, Manifest};

/// How long the least differences of two machines' texts are looked for.
const TIMEOUT: Duration = Duration::from_millis(500);

/// What was got.
struct Inspection {
    /// What people call it.
    name: String,
    trace: Option<Trace>,
    machine: Option<Machine>,
    /// What is said and has no effect, one line each.
    warnings: Vec<String>,
}

impl Inspection {
    fn refused(name: &str, cause: Cause) -> Self {
        let trace = Trace { url: name.to_owned(), steps: Vec::new(), cause: Some(cause) };
        Self { name: name.to_owned(), trace: Some(trace), machine: None, warnings: Vec::new() }
    }
}

/// Shows what was asked for. The exit code is 1 where the machine would not come up, or two differ.
///
/// # Errors
/// There is nothing to inspect: a file that cannot be read, a pool that nobody names.
pub fn run(settings: &InspectSettings, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
    let subject = settings.subject()?;
    // A URL of theirs may have a password in it.
    inspected(settings, &subject, now)
        .map_err(|error| anyhow!("{}", redacted(&format!("{error:#}"))))
}

fn inspected(
    settings: &InspectSettings,
    subject: &Subject,
    now: OffsetDateTime,
) -> anyhow::Result<ExitCode> {
    if let (Some(other), Place::Manifests(before), None) =
        (&settings.diff, &subject.place, &subject.pool)
        && let Some(Place::Manifests(after)) = Place::read(other)
    {
        return differences(before, &after, subject.spec)?.show(settings.json);
    }
    let got = get(settings, subject, now)?;
    if let Some(path) = &settings.file {
        return show_file(&got, path);
    }
    if let Some(other) = &settings.diff {
        let other = get(settings, &otherwise(subject, other)?, now)?;
        return Difference::between(&got, &other).show(settings.json);
    }
    let code = show(&got, settings.json, now)?;
    let is_refused = settings.strict && !got.warnings.is_empty();
    Ok(if is_refused { ExitCode::FAILURE } else { code })
}

fn show(got: &Inspection, is_json: bool, now: OffsetDateTime) -> anyhow::Result<ExitCode> {
    if is_json {
        let page = json!({"way": got.trace, "machine": got.machine, "warnings": got.warnings});
        print_json(&page)?;
    } else {
        let look = terminal::look();
        let mut lines: Vec<_> =
            got.trace.iter().flat_map(|trace| way_as_text(trace, look)).collect();
        if let Some(machine) = &got.machine {
            if !lines.is_empty() {
                lines.push(String::new());
            }
            lines.extend(machine_as_text(machine, look, now));
        }
        lines.extend(warnings_as_text(&got.warnings, look));
        terminal::print(&lines);
    }
    Ok(if got.machine.is_some() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn show_file(got: &Inspection, path: &str) -> anyhow::Result<ExitCode> {
    let told = match &got.machine {
        Some(machine) => match machine.file(path) {
            Ok(bytes) => {
                // Whoever reads it may have seen enough.
                let _ = std::io::stdout().write_all(bytes);
                return Ok(ExitCode::SUCCESS);
            }
            Err(reason) => vec![format!("{}: {}", escaped(path), escaped(&redacted(&reason)))],
        },
        None => got
            .trace
            .iter()
            .flat_map(|trace| way_as_text(trace, model::table::TerminalStyle::PLAIN))
            .collect(),
    };
    writeln!(std::io::stderr(), "{}", told.join("\n"))?;
    Ok(ExitCode::FAILURE)
}

/// What differs between two machines, in both forms.
struct Difference {
    is_any: bool,
    json: serde_json::Value,
    lines: Vec<String>,
}

impl Difference {
    /// The difference, which is one too where either would not come up.
    fn between(got: &Inspection, other: &Inspection) -> Self {
        let look = terminal::look();
        let (Some(before), Some(after)) = (&got.machine, &other.machine) else {
            let ways = [got, other].into_iter().filter(|it| it.machine.is_none());
            let ways: Vec<_> = ways.filter_map(|it| it.trace.as_ref()).collect();
            let lines = ways.iter().flat_map(|trace| way_as_text(trace, look)).collect();
            return Self { is_any: true, json: json!({"ways": ways}), lines };
        };
        let changes = changes(before, after, Instant::now() + TIMEOUT);
        let is_any = !changes.is_empty();
        let names = json!([got.name, other.name]);
        let json = json!({"between": names, "differs": is_any, "changes": changes});
        let lines = changes_as_text(&changes, [&got.name, &other.name], look);
        Self { is_any, json, lines }
    }

    fn show(&self, is_json: bool) -> anyhow::Result<ExitCode> {
        if is_json {
            print_json(&self.json)?;
        } else {
            terminal::print(&self.lines);
        }
        Ok(if self.is_any { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// What differs for each pool of two directories. A pool that only one has differs.
fn differences(before: &Path, after: &Path, spec: SpecVersion) -> anyhow::Result<Difference> {
    let read = |directory: &Path| read_manifests(directory.to_owned(), false);
    let inputs = [read(before)?, read(after)?];
    let pools: BTreeSet<_> = inputs.iter().flat_map(|it| it.pools.keys()).collect();
    let mut all = Difference { is_any: false, json: json!({}), lines: Vec::new() };
    for pool in pools {
        let got = by_inputs(&inputs[0], before, pool, spec);
        let other = by_inputs(&inputs[1], after, pool, spec);
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

/// What moves a cursor, and JSON need not escape, is escaped as JSON does.
fn print_json(page: &serde_json::Value) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&as_json(page)?)?;
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        let is_plain = c == '\n' || matches!(escaped(c.encode_utf8(&mut [0; 4])), Cow::Borrowed(_));
        if is_plain {
            safe.push(c);
        } else {
            let units = c
                .encode_utf16(&mut [0; 2])
                .iter()
                .map(|unit| format!("\\u{unit:04x}"))
                .collect::<Vec<_>>();
            safe.push_str(&units.concat());
        }
    }
    terminal::print(&[safe]);
    Ok(())
}

/// The other one of two.
fn otherwise(first: &Subject, other: &str) -> anyhow::Result<Subject> {
    let mut subject = first.clone();
    if let Some(spec) = SpecVersion::read(other) {
        subject.spec = spec;
        return Ok(subject);
    }
    if let Some(place) = Place::read(other) {
        // A pool that the first place names by itself is the other's too.
        if subject.pool.is_none() {
            subject.pool = match &subject.place {
                Place::Server(url) => pool_of(url).map(str::to_owned),
                Place::Manifests(_) | Place::Saved(_) | Place::Pointer(_) => None,
            };
        }
        subject.place = place;
        return Ok(subject);
    }
    if matches!(subject.place, Place::Saved(_)) || other.contains('/') {
        bail!("--diff {other}: there is no such file, and it is no URL, spec or pool");
    }
    if let Place::Server(url) = &subject.place {
        subject.place = Place::Server(without_path(url)?);
    }
    subject.pool = Some(other.to_owned());
    Ok(subject)
}

/// The pool in `/config/POOL`.
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
        Place::Saved(path) => saved(path),
        Place::Manifests(directory) => {
            let pool = pool.ok_or_else(|| anyhow!("{}: of which POOL?", directory.display()))?;
            by_manifests(directory, pool, subject.spec)
        }
        Place::Server(url) => {
            let url = with_pool(url, pool)?;
            let trusted = trusted(settings)?;
            let trusted = trusted.filter(|_| url.scheme() != Some(&http::uri::Scheme::HTTP));
            by_server(&FetchRequest { trusted, ..request(settings, subject, url, now)? })
        }
        Place::Pointer(path) => by_pointer(settings, subject, path, now),
    }
}

/// A request that sends nothing along, by a machine of which it is not known whom it trusts.
fn request(
    settings: &InspectSettings,
    subject: &Subject,
    url: Uri,
    now: OffsetDateTime,
) -> anyhow::Result<FetchRequest> {
    let host = url.host().unwrap_or_default();
    let host: Host = host.parse().map_err(|error| anyhow!("{url}: {error}"))?;
    let connect = settings.connect.clone();
    let (spec, at) = (subject.spec, settings.at.unwrap_or(now));
    Ok(FetchRequest { url, host, connect, headers: Vec::new(), trusted: None, spec, at, now })
}

fn with_pool(url: &Uri, pool: Option<&str>) -> anyhow::Result<Uri> {
    match (url.path(), pool) {
        ("" | "/", Some(pool)) => {
            let base = url.to_string();
            let text = format!("{}/config/{pool}", base.trim_end_matches('/'));
            text.parse().with_context(|| format!("{pool:?} is no pool"))
        }
        ("" | "/", None) => bail!("{url}: of which POOL?"),
        (_, None) => Ok(url.clone()),
        (_, Some(pool)) if pool_of(url) == Some(pool) => Ok(url.clone()),
        (_, Some(pool)) => bail!("{url} leads to a pool already, and not to {pool}"),
    }
}

/// Whom the machine trusts, by what is given beside a URL.
fn trusted(settings: &InspectSettings) -> anyhow::Result<Option<(String, Vec<pki::Certificate>)>> {
    let bundle = settings.state_dir.join("ca.crt");
    let path = match &settings.ca {
        Some(path) => path,
        None if bundle.is_file() => &bundle,
        None => return Ok(None),
    };
    let name = path.display().to_string();
    let found = read_authorities(path).with_context(|| name.clone())?;
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
    let reading = pointer_check::read(&text);
    let Some(config) = reading.config else {
        let faults: Vec<_> = reading.faults.iter().map(ToString::to_string).collect();
        return Ok(Inspection::refused(&name, invalid(faults.join("; "))));
    };
    let mut fetches = config.fetches.into_iter();
    let first = fetches.next().ok_or_else(|| anyhow!("{name}: it fetches nothing"))?;
    let url = match &subject.pool {
        Some(pool) => with_pool(&without_path(&first.url)?, Some(pool))?,
        None => first.url,
    };
    let trusted = Some((name.clone(), first.trusted));
    let request = request(settings, subject, url, now)?;
    let mut got = by_server(&FetchRequest { headers: first.headers, trusted, ..request })?;
    let warnings = reading.warnings.iter().map(ToString::to_string);
    let others = fetches.map(|fetch| format!("{} is fetched too, and not looked at", fetch.url));
    let ignored = manifest::config_warnings(&String::from_utf8_lossy(&text));
    let seen: Vec<_> = warnings.chain(ignored).chain(others).collect();
    if let (Some(trace), false) = (&mut got.trace, seen.is_empty()) {
        trace.steps.insert(0, Step { name: "pointer", outcome: Outcome::Noted, seen, took: None });
    }
    Ok(got)
}

fn by_server(request: &FetchRequest) -> anyhow::Result<Inspection> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Fetched { mut trace, body } = runtime.block_on(fetch(request));
    // A name that is still being looked up is not waited for.
    runtime.shutdown_background();
    let name = trace.url.clone();
    let Some(body) = body else {
        return Ok(Inspection { name, trace: Some(trace), machine: None, warnings: Vec::new() });
    };
    let warnings = manifest::config_warnings(&String::from_utf8_lossy(&body));
    let read = read_config(&body).and_then(|config| {
        if config.declared() <= request.spec {
            return Ok(config);
        }
        let (asked, served) = (request.spec, vec![config.declared()]);
        Err(Cause::NotInSpec {
            asked,
            served,
            told: "the server sends another".to_owned(),
            is_received: true,
        })
    });
    let (outcome, seen) = match &read {
        Ok(config) => (Outcome::Fine, format!("valid, in spec {}", config.declared())),
        Err(cause) => (Outcome::Failed, cause.to_string()),
    };
    trace.steps.push(Step { name: "config", outcome, seen: vec![seen], took: None });
    let machine = match read {
        Ok(config) => Some(machine(&config, None)),
        Err(cause) => {
            trace.cause = Some(cause);
            None
        }
    };
    Ok(Inspection { name, trace: Some(trace), machine, warnings })
}

fn by_manifests(directory: &Path, pool: &str, spec: SpecVersion) -> anyhow::Result<Inspection> {
    let inputs = read_manifests(directory.to_owned(), false)?;
    Ok(by_inputs(&inputs, directory, pool, spec))
}

fn by_inputs(inputs: &Inputs, directory: &Path, pool: &str, spec: SpecVersion) -> Inspection {
    let warnings = inputs.warnings.iter().map(ToString::to_string).collect();
    let name = format!("{} {pool} {spec}", directory.display());
    let read = rendered(inputs, pool, spec).and_then(|body| read_config(&body));
    match read {
        Ok(config) => {
            Inspection { name, trace: None, machine: Some(machine(&config, None)), warnings }
        }
        Err(cause) => Inspection { warnings, ..Inspection::refused(&name, cause) },
    }
}

/// A config that was kept: as it was served, or as a machine config.
fn saved(path: &Path) -> anyhow::Result<Inspection> {
    let name = path.display().to_string();
    let bytes = bounded::read(path).with_context(|| name.clone())?;
    let got = |machine, warnings| Inspection {
        name: name.clone(),
        trace: None,
        machine: Some(machine),
        warnings,
    };
    let as_config = read_config(&bytes);
    if let Ok(config) = &as_config {
        let warnings = manifest::config_warnings(&String::from_utf8_lossy(&bytes));
        return Ok(got(machine(config, None), warnings));
    }
    let Manifest { objects, warnings } = manifest::read(&bytes).unwrap_or_default();
    let mut configs = objects.into_iter().filter_map(|object| match object {
        Object::MachineConfig(config) => Some(config),
        _ => None,
    });
    let read = match (configs.next(), configs.next()) {
        (Some(_), Some(_)) => bail!("{name} holds several machine configs: give them as a folder"),
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
    let text = text.ok_or_else(|| invalid("it has no Ignition config"))?;
    read_config(text.as_bytes())
}

/// What a machine has got, and cannot use.
fn invalid(told: impl Into<String>) -> Cause {
    Cause::InvalidConfig { told: told.into(), is_received: true }
}

/// Reads a config of others, as Ignition would.
fn read_config(bytes: &[u8]) -> Result<Config, Cause> {
    let text = std::str::from_utf8(bytes);
    let text = text.map_err(|_| invalid("it is no text"))?;
    manifest::check_json(text).map_err(|error| invalid(format!("it {error}")))?;
    Config::parse(text).map_err(|error| invalid(error.to_string()))
}

//! Reads a machine out of a config.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::HEXLOWER;
use ignition::Config;
use ignition::contents::{Contents, UnpackBudget};
use ignition::spec3::{Body, File, Owner, Resource, Storage, Unit, User};
use model::objects::{MachineConfig, MachineConfigSpec};
use model::render::{ENCAPSULATED, kernel_arguments};
use pki::Certificate;
use secrets::{Secret, SecretKind, SecretPlace, in_arguments};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::cause::date;
use super::kernel_arguments::KernelArguments;
use super::kind::kind;
use super::machine::{
    CertificateEntry, DiskEntry, FileEntry, Machine, NamedEntry, UnitEntry, UserEntry,
};

/// Maximum number of listed certificates of one file; a bundle of all public CAs has some 150.
const MAX_CERTIFICATES: usize = 1_000;
/// Directories with CAs of image registries.
const REGISTRIES: [&str; 2] = ["/etc/docker/certs.d/", "/etc/containers/certs.d/"];

/// Describes the machine that `config` makes, and `machine_config` if `config` does not contain it.
pub fn machine(config: &Config, machine_config: Option<&MachineConfig>) -> Machine {
    let body = config.body();
    let mut made = Machine::default();
    let (secrets, unsearched) = secrets(config, machine_config);
    let mut budget = UnpackBudget::default();
    for file in &body.storage.files {
        let secret = kinds(&secrets, &SecretPlace::File(file.path.clone()));
        let contents = contents(file, &mut budget);
        let read = contents.as_deref().map(certificates).unwrap_or_default();
        let (certificates, skipped) = read;
        let skipped = skipped.iter().map(|reason| format!("{}: {reason}", file.path));
        made.skipped.extend(skipped);
        made.certificates.extend(certificates.iter().map(|it| certificate(&file.path, it)));
        made.files.push(file_entry(file, contents, &secret, &certificates, budget));
    }
    made.files.sort_by(|one, other| one.path.cmp(&other.path));
    made.certificates.sort_by(|one, other| one.path.cmp(&other.path));
    made.nodes = nodes(&body.storage);
    made.units = body.systemd.units.iter().map(|it| unit(it, &secrets)).collect();
    made.units.sort_by(|one, other| one.name.cmp(&other.name));
    made.users = body.passwd.users.iter().map(user).collect();
    made.groups = groups(body);
    made.disks = disks(&body.storage);
    let registries = made.files.iter().filter_map(|file| registry(&file.path));
    made.registries = registries.collect::<BTreeSet<_>>().into_iter().collect();
    made.skipped.extend(unsearched);
    made.secrets = secrets;
    made.facts = facts(config, machine_config, &made.files);
    made
}

/// All secrets, and parts that were not searched, one line each.
fn secrets(config: &Config, machine_config: Option<&MachineConfig>) -> (Vec<Secret>, Vec<String>) {
    let arguments = machine_config.and_then(|it| it.spec.kernel_arguments.as_deref());
    let found: BTreeSet<_> = secrets::secrets(config, &mut UnpackBudget::default())
        .into_iter()
        .chain(in_arguments(arguments.unwrap_or_default()))
        .chain(in_arguments(&kernel_arguments(config)))
        .collect();
    let (mut secrets, mut skipped) = (Vec::new(), Vec::new());
    for secret in found {
        if let SecretKind::Unsearched(what) = secret.kind {
            skipped.push(format!("{}: {what}", secret.place));
        } else {
            secrets.push(secret);
        }
    }
    (secrets, skipped)
}

/// Kinds of the secrets at a place. The list is sorted by places.
fn kinds(secrets: &[Secret], place: &SecretPlace) -> BTreeSet<SecretKind> {
    let from = secrets.partition_point(|secret| secret.place < *place);
    let of_place = secrets[from..].iter().take_while(|secret| secret.place == *place);
    of_place.map(|secret| secret.kind).collect()
}

fn resources(file: &File) -> impl Iterator<Item = &Resource> {
    let has_source = |it: &&Resource| it.source.is_some();
    std::iter::once(&file.contents).chain(&file.append).filter(has_source)
}

/// All contents that the config puts into a file, `None` if a part is unknown.
fn contents(file: &File, budget: &mut UnpackBudget) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    for resource in resources(file) {
        match Contents::read(resource, budget) {
            Contents::Bytes(bytes) => all.extend(bytes),
            Contents::Nothing => {}
            Contents::Elsewhere(_) | Contents::Unreadable(_) => return None,
        }
    }
    Some(all)
}

fn file_entry(
    file: &File,
    contents: Option<Vec<u8>>,
    secret: &BTreeSet<SecretKind>,
    certificates: &[Certificate],
    budget: UnpackBudget,
) -> FileEntry {
    let what = match &contents {
        Some(_) if resources(file).next().is_none() => {
            "unchanged, or empty if it is new".to_owned()
        }
        Some(bytes) => kind(bytes, secret, certificates),
        None => missing(file, budget),
    };
    let compression = resources(file).find_map(|it| it.compression.clone());
    let is_secret = !secret.is_empty();
    let digest = contents.as_ref().filter(|_| !is_secret);
    FileEntry {
        path: file.path.clone(),
        mode: file.mode.map(|mode| format!("{mode:04o}")),
        owner: owner(&file.user, &file.group),
        size: contents.as_ref().map(|bytes| bytes.len() as u64),
        what,
        compression: compression.filter(|it| !it.is_empty()),
        is_appended: file.contents.source.is_none() && !file.append.is_empty(),
        sha256: digest.map(|bytes| HEXLOWER.encode(&Sha256::digest(bytes))),
        contents,
        is_secret,
    }
}

/// Reason why the contents of a file are unknown.
fn missing(file: &File, mut budget: UnpackBudget) -> String {
    let reasons = resources(file).filter_map(|it| match Contents::read(it, &mut budget) {
        Contents::Elsewhere(url) => Some(format!("fetched from {}", without_credential(&url))),
        Contents::Unreadable(reason) => Some(reason.to_string()),
        Contents::Nothing | Contents::Bytes(_) => None,
    });
    reasons.collect::<Vec<_>>().join(", ")
}

/// A URL without user information, query and fragment, which can contain secrets.
fn without_credential(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let end = rest.find('/').unwrap_or(rest.len());
    let start = rest[..end].rfind('@').map_or(0, |at| at + 1);
    format!("{scheme}://{}", &rest[start..])
}

fn owner(user: &Owner, group: &Owner) -> String {
    let text = |owner: &Owner| owner.name.clone().or_else(|| owner.id.map(|id| id.to_string()));
    match (text(user), text(group)) {
        (None, None) => "root".to_owned(),
        (user, None) => user.unwrap_or_default(),
        (user, Some(group)) => format!("{}:{group}", user.unwrap_or_else(|| "root".to_owned())),
    }
}

/// Certificates in PEM, and in base64 as in a kubeconfig, with the reasons why others are unreadable.
fn certificates(bytes: &[u8]) -> (Vec<Certificate>, Vec<String>) {
    const ENCODED: &str = "LS0tLS1CRUdJTi";
    let mut read: Vec<_> = Certificate::read_each(bytes).collect();
    if let Ok(text) = std::str::from_utf8(bytes) {
        for (at, _) in text.match_indices(ENCODED) {
            let is_end = |c: char| !c.is_ascii_alphanumeric() && !matches!(c, '+' | '/' | '=');
            let run = text[at..].split(is_end).next().unwrap_or_default();
            let pem = STANDARD.decode(run).unwrap_or_default();
            read.extend(Certificate::read_each(&pem));
        }
    }
    let mut skipped = Vec::new();
    if read.len() > MAX_CERTIFICATES {
        skipped.push(format!(
            "only the first {MAX_CERTIFICATES} of {} certificates are listed",
            read.len()
        ));
    }
    read.truncate(MAX_CERTIFICATES);
    let mut found = Vec::new();
    for (place, certificate) in (1..).zip(read) {
        match certificate {
            Ok(certificate) => found.push(certificate),
            Err(reason) => {
                let line = format!("machines cannot read certificate {place}: {reason}");
                skipped.push(line);
            }
        }
    }
    (found, skipped)
}

fn certificate(path: &str, certificate: &Certificate) -> CertificateEntry {
    CertificateEntry {
        path: path.to_owned(),
        subject: certificate.common_name.clone(),
        issuer: certificate.issuer.clone(),
        not_before: date(certificate.not_before),
        not_after: date(certificate.not_after),
        ends: certificate.not_after.unix_timestamp(),
    }
}

fn nodes(storage: &Storage) -> Vec<NamedEntry> {
    let mode = |mode: Option<i64>| mode.map(|mode| format!(", {mode:04o}")).unwrap_or_default();
    let directories = storage.directories.iter().map(|it| NamedEntry {
        name: it.path.clone(),
        what: format!("directory of {}{}", owner(&it.user, &it.group), mode(it.mode)),
    });
    let links = storage.links.iter().map(|it| {
        let target = it.target.as_deref().unwrap_or_default();
        let what = if it.hard == Some(true) { "hard link" } else { "link" };
        NamedEntry { name: it.path.clone(), what: format!("{what} to {target}") }
    });
    let mut nodes: Vec<_> = directories.chain(links).collect();
    nodes.sort_by(|one, other| one.name.cmp(&other.name));
    nodes
}

fn unit(unit: &Unit, secrets: &[Secret]) -> UnitEntry {
    let state = match (unit.mask, unit.enabled) {
        (Some(true), _) => "masked",
        (_, Some(true)) => "enabled",
        (_, Some(false)) => "disabled",
        (_, None) => "as it is",
    };
    let is_secret = |place: &SecretPlace| !kinds(secrets, place).is_empty();
    let name = &unit.name;
    let own = unit
        .contents
        .iter()
        .filter(|text| !text.is_empty())
        .map(|text| (name.clone(), text.clone(), is_secret(&SecretPlace::Unit(name.clone()))));
    let dropins = unit.dropins.iter().map(|dropin| {
        let place = SecretPlace::Dropin { unit: name.clone(), name: dropin.name.clone() };
        let text = dropin.contents.clone().unwrap_or_default();
        (format!("{name}.d/{}", dropin.name), text, is_secret(&place))
    });
    UnitEntry {
        name: name.clone(),
        state: state.to_owned(),
        has_contents: own.clone().next().is_some(),
        dropins: unit.dropins.iter().map(|dropin| dropin.name.clone()).collect(),
        texts: own.chain(dropins).collect(),
    }
}

fn user(user: &User) -> UserEntry {
    let what = [
        user.uid.map(|uid| format!("uid {uid}")),
        user.primary_group.as_ref().map(|group| format!("primary group {group}")),
        user.home_dir.as_ref().map(|home| format!("home {home}")),
        user.shell.as_ref().map(|shell| format!("shell {shell}")),
        if_true(user.system, "system"),
        if_removed(user.should_exist),
    ];
    UserEntry {
        name: user.name.clone(),
        groups: user.groups.clone(),
        ssh_keys: user.ssh_authorized_keys.len(),
        has_password: user.password_hash.as_ref().is_some_and(|hash| !hash.is_empty()),
        what: listed(what),
        password_hash: user.password_hash.clone(),
        keys: user.ssh_authorized_keys.clone(),
    }
}

fn groups(body: &Body) -> Vec<NamedEntry> {
    let groups = body.passwd.groups.iter().map(|group| {
        let gid = group.gid.map(|gid| format!("gid {gid}"));
        let what = listed([gid, if_removed(group.should_exist)]);
        NamedEntry { name: group.name.clone(), what }
    });
    groups.collect()
}

fn if_true(flag: Option<bool>, what: &str) -> Option<String> {
    (flag == Some(true)).then(|| what.to_owned())
}

fn if_removed(should_exist: Option<bool>) -> Option<String> {
    (should_exist == Some(false)).then(|| "removed".to_owned())
}

/// The known parts of a description.
fn listed(parts: impl IntoIterator<Item = Option<String>>) -> String {
    parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn disks(storage: &Storage) -> Vec<DiskEntry> {
    let mut disks = Vec::new();
    let mut add = |kind, name: &str, what: Vec<Option<String>>| {
        disks.push(DiskEntry { kind, name: name.to_owned(), what: listed(what) });
    };
    let size = |mib: Option<i64>, what: &str| mib.map(|mib| format!("{what} {mib} MiB"));
    for disk in &storage.disks {
        add("disk", &disk.device, vec![if_true(disk.wipe_table, "partition table wiped")]);
        for part in &disk.partitions {
            let label = part.label.as_deref().unwrap_or_default();
            let name = format!("{} {} {label}", disk.device, part.number);
            let (start, size) = (size(part.start_mib, "from"), size(part.size_mib, "size"));
            add("partition", name.trim_end(), vec![start, size, if_removed(part.should_exist)]);
        }
    }
    for raid in &storage.raid {
        let level = raid.level.clone().unwrap_or_default();
        let devices = format!("of {}", raid.devices.join(" "));
        add("RAID", &raid.name, vec![Some(level), Some(devices)]);
    }
    for luks in &storage.luks {
        let opened_by = |what: &str| format!("opened by {what}");
        let mut what = vec![Some(format!("on {}", luks.device.as_deref().unwrap_or_default()))];
        let servers = luks.clevis.tang.iter().map(|tang| without_credential(&tang.url));
        what.extend(servers.map(|server| Some(opened_by(&server))));
        what.push(if_true(luks.clevis.tpm2, "opened by the TPM"));
        what.push(luks.key_file.source.as_ref().map(|_| opened_by("a key in the config")));
        add("encrypted", &luks.name, what);
    }
    for system in &storage.filesystems {
        let path = system.path.as_ref().map(|path| format!("at {path}"));
        let label = system.label.as_ref().map(|label| format!("label {label}"));
        let wiped = if_true(system.wipe_filesystem, "wiped");
        add("file system", &system.device, vec![system.format.clone(), path, label, wiped]);
    }
    disks
}

fn registry(path: &str) -> Option<String> {
    let rest = REGISTRIES.iter().find_map(|directory| path.strip_prefix(directory))?;
    let (host, file) = rest.split_once('/')?;
    file.strip_suffix(".crt").map(|_| host.to_owned())
}

/// Single values. A served config contains the MachineConfig in encapsulated form.
fn facts(
    config: &Config,
    machine_config: Option<&MachineConfig>,
    files: &[FileEntry],
) -> Map<String, Value> {
    let mut facts = Map::new();
    let mut add = |name: &str, value: Value| {
        let is_empty = matches!(&value, Value::String(text) if text.is_empty())
            || matches!(&value, Value::Array(items) if items.is_empty())
            || matches!(&value, Value::Object(members) if members.is_empty())
            || value == Value::Bool(false);
        if !is_empty {
            facts.insert(name.to_owned(), value);
        }
    };
    let file = files.iter().find(|file| file.path == ENCAPSULATED);
    let contents = file.and_then(|file| file.contents.as_deref()).unwrap_or_default();
    let within = serde_json::from_slice::<MachineConfig>(contents).ok();
    let machine_config = within.as_ref().or(machine_config);
    let none = MachineConfigSpec::default();
    let spec = machine_config.map_or(&none, |it| &it.spec);
    let body = config.body();
    add("machineConfig", machine_config.map_or("", MachineConfig::name).into());
    add("ignition", config.declared().as_str().into());
    add("osImage", spec.os_image_url[..].into());
    let arguments = KernelArguments {
        ignition: body.kernel_arguments.should_exist.clone(),
        machine_config_daemon: spec.kernel_arguments.clone().unwrap_or_default(),
    };
    add("kernelArguments", json!(arguments.all()));
    add("kernelArgumentsSetBy", json!(arguments));
    add("kernelArgumentsRemoved", json!(body.kernel_arguments.should_not_exist));
    add("kernelType", spec.kernel_type[..].into());
    add("extensions", json!(spec.extensions.as_deref().unwrap_or_default()));
    add("fips", spec.fips.into());
    let references = body.ignition.config.merge.iter().chain([&body.ignition.config.replace]);
    let urls = references.filter_map(|it| it.source.as_deref()).map(|source| {
        if source.starts_with("data:") {
            "a config within it".to_owned()
        } else {
            without_credential(source)
        }
    });
    add("alsoFetches", json!(urls.collect::<Vec<_>>()));
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_reported_without_what_may_be_secret() {
        for (url, reported) in [
            ("https://u:p@h:1/a/b?token=x#y", "https://h:1/a/b"),
            ("https://h", "https://h"),
            ("s3://bucket/key@x", "s3://bucket/key@x"),
            ("arn:aws:s3:::b/k", "arn:aws:s3:::b/k"),
        ] {
            assert_eq!(without_credential(url), reported);
        }
    }

    #[test]
    fn owners_are_reported_by_name_or_number() {
        let name = |name: &str| Owner { name: Some(name.to_owned()), ..Owner::default() };
        let id = |id| Owner { id: Some(id), ..Owner::default() };
        let none = Owner::default();
        for (user, group, reported) in [
            (&none, &none, "root"),
            (&name("core"), &none, "core"),
            (&none, &name("wheel"), "root:wheel"),
            (&id(1), &id(2), "1:2"),
        ] {
            assert_eq!(owner(user, group), reported);
        }
    }
}

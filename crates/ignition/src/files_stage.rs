//! Faults of a valid config at which Ignition's files stage fails: paths below something that is no directory,
//! names that no file system takes, contents that are not what the config says of them.
//!
//! A machine that gets such a config fails after it was fetched, and does not ask again. The stage writes files,
//! directories and links first, by depth, then units and drop-ins, then its own two files. Units and drop-ins may be
//! below a link, which is followed once.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use data_encoding::HEXLOWER_PERMISSIVE;
use sha2::{Digest as _, Sha256, Sha512};

use super::config::Config;
use super::contents::{Contents, UnpackBudget, Unreadable};
use super::spec3::{Body, Resource};

/// Directory of units and drop-ins.
const UNITS: &str = "/etc/systemd/system/";
/// List of units that are enabled or disabled.
const PRESETS: &str = "/etc/systemd/system-preset/20-ignition.preset";
/// Report that the stage reads, and writes at its end.
const RESULT: &str = "/etc/.ignition-result.json";
/// Bytes of a name in Linux's file systems.
const NAME_BYTES: usize = 255;
/// Bytes of a path below `/sysroot`, with the byte that ends it.
const PATH_BYTES: usize = 4096 - "/sysroot".len();

/// Reasons why the stage fails. Each message begins with the path.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unwritable {
    /// A path is below something that is no directory.
    #[error("{path}: it is below {above}, which is not a directory")]
    Below {
        /// Path of the node, unit or drop-in.
        path: String,
        /// Path of a file, link, unit or drop-in.
        above: String,
    },
    /// A directory is at the path of a file that Ignition writes itself, or another file at that of its report.
    #[error("{0}: Ignition itself writes a file there")]
    OfIgnition(&'static str),
    /// A directory is at the path of a unit that is disabled: `systemctl`, which Ignition 2.14 asks, fails.
    #[error("{0}: it is a directory, and a unit of this name is disabled")]
    UnitIsDirectory(String),
    /// The path is `/`, which is a directory.
    #[error("/: it is a directory on every machine")]
    Root,
    /// The path has a NUL.
    #[error("{}: it has a NUL, which no path can have", .0.replace('\0', "\\0"))]
    Nul(String),
    /// The path or one of its names is too long for Linux.
    #[error("{}…: the path, or a name in it, is longer than Linux takes", shortened(.0))]
    TooLong(String),
    /// The contents of a file are not what the config says.
    #[error("{0}: its contents are {1}")]
    Packed(String, Unreadable),
    /// The contents of a file have another hash.
    #[error(
        "{0}: its contents do not have the hash in verification.hash: set or remove the hash where the contents are set"
    )]
    Hash(String),
}

impl Unwritable {
    /// Path that cannot be written, and the one in its way.
    pub fn paths(&self) -> (&str, Option<&str>) {
        match self {
            Self::Below { path, above } => (path, Some(above)),
            Self::OfIgnition(path) => (path, None),
            Self::Root => ("/", None),
            Self::UnitIsDirectory(path)
            | Self::Nul(path)
            | Self::TooLong(path)
            | Self::Packed(path, _)
            | Self::Hash(path) => (path, None),
        }
    }
}

impl Config {
    /// Checks that the files stage can write all of a valid config, as far as it depends on the config alone.
    ///
    /// # Errors
    /// The first thing that it cannot write.
    pub fn check_writable(&self) -> Result<(), Unwritable> {
        let others = &self.body.ignition.config;
        // What is fetched in its place, or changes contents of it, only the machine sees.
        if others.replace.source.is_some() {
            return Ok(());
        }
        self.check_paths()?;
        if others.merge.is_empty() { self.check_contents() } else { Ok(()) }
    }

    /// The part of [`Self::check_writable`] about paths.
    ///
    /// # Errors
    /// The first path that cannot be written.
    pub fn check_paths(&self) -> Result<(), Unwritable> {
        let nodes = Nodes::of(&self.body);
        let written = || nodes.all().map(String::as_str);
        for path in written().chain(nodes.targets.iter().copied()) {
            check_name(path)?;
        }
        if nodes.is_leaf("/") {
            return Err(Unwritable::Root);
        }
        if nodes.directories.contains(PRESETS) && nodes.writes_presets {
            return Err(Unwritable::OfIgnition(PRESETS));
        }
        if nodes.is_leaf(RESULT) || nodes.directories.contains(RESULT) {
            return Err(Unwritable::OfIgnition(RESULT));
        }
        if let Some(unit) = nodes.disabled.iter().find(|unit| nodes.is_directory(unit)) {
            return Err(Unwritable::UnitIsDirectory(unit.clone()));
        }
        let presets = nodes.writes_presets.then_some(PRESETS);
        let of_units = nodes.units.iter().map(String::as_str).chain(presets);
        let followed = of_units.map(|path| (path, nodes.follow_link(path)));
        let others = nodes.files.iter().chain(nodes.links.keys()).chain(&nodes.directories);
        let others = others.map(String::as_str).chain([RESULT]);
        let mut all = followed.chain(others.map(|path| (path, Cow::Borrowed(path))));
        all.try_for_each(|(path, place)| match nodes.above(&place) {
            Some(above) => {
                Err(Unwritable::Below { path: path.to_owned(), above: above.to_owned() })
            }
            None => Ok(()),
        })
    }

    /// The part of [`Self::check_writable`] about contents in the config.
    ///
    /// # Errors
    /// The first file whose contents are not what the config says.
    pub fn check_contents(&self) -> Result<(), Unwritable> {
        let mut budget = UnpackBudget::default();
        for file in &self.body.storage.files {
            for resource in std::iter::once(&file.contents).chain(&file.append) {
                check_resource(&file.path, resource, &mut budget)?;
            }
        }
        Ok(())
    }
}

/// Paths that the stage writes. Nothing can be below any of them but the directories.
struct Nodes<'a> {
    files: BTreeSet<String>,
    /// Links with the target of each symbolic one.
    links: BTreeMap<String, Option<&'a str>>,
    /// Units and drop-ins.
    units: BTreeSet<String>,
    directories: BTreeSet<String>,
    /// Targets of links.
    targets: Vec<&'a str>,
    /// Paths of units that are disabled, and not written.
    disabled: Vec<String>,
    writes_presets: bool,
}

impl<'a> Nodes<'a> {
    fn of(body: &'a Body) -> Self {
        let (storage, configured) = (&body.storage, &body.systemd.units);
        let says = |text: &Option<String>| text.as_ref().is_some_and(|it| !it.is_empty());
        let (mut units, mut disabled) = (BTreeSet::new(), Vec::new());
        for unit in configured {
            let dropins = unit.dropins.iter().filter(|it| says(&it.contents));
            units.extend(dropins.map(|it| format!("{UNITS}{}.d/{}", unit.name, it.name)));
            // Whatever is at the path of a masked one is removed.
            if unit.mask == Some(true) {
                continue;
            }
            let path = format!("{UNITS}{}", unit.name);
            if says(&unit.contents) {
                units.insert(path);
            } else if unit.enabled == Some(false) {
                disabled.push(path);
            }
        }
        let symbolic = storage.links.iter().map(|link| {
            let target = link.target.as_deref().filter(|_| link.hard != Some(true));
            (link.path.clone(), target)
        });
        Self {
            files: storage.files.iter().map(|file| file.path.clone()).collect(),
            links: symbolic.collect(),
            units,
            directories: storage.directories.iter().map(|it| it.path.clone()).collect(),
            targets: storage.links.iter().filter_map(|link| link.target.as_deref()).collect(),
            disabled,
            writes_presets: configured.iter().any(|unit| unit.enabled.is_some()),
        }
    }

    fn all(&self) -> impl Iterator<Item = &String> {
        self.files.iter().chain(self.links.keys()).chain(&self.units).chain(&self.directories)
    }

    fn is_leaf(&self, path: &str) -> bool {
        self.files.contains(path) || self.links.contains_key(path) || self.units.contains(path)
    }

    /// True for a directory of the config, and for one that the stage makes for what is below it.
    fn is_directory(&self, path: &str) -> bool {
        let is_below = |it: &String| it.strip_prefix(path).is_some_and(|it| it.starts_with('/'));
        self.directories.contains(path) || self.all().any(is_below)
    }

    /// The path behind the first symbolic link above `path`.
    fn follow_link<'p>(&self, path: &'p str) -> Cow<'p, str> {
        let link = parents(path).find_map(|parent| Some((parent, (*self.links.get(parent)?)?)));
        let Some((link, target)) = link else { return path.into() };
        let folder = link.rsplit_once('/').map_or("", |(folder, _)| folder);
        let from = if target.starts_with('/') { "" } else { folder };
        let mut names = Vec::new();
        for name in format!("{from}/{target}{}", &path[link.len()..]).split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()),
                name => names.push(name.to_owned()),
            }
        }
        format!("/{}", names.join("/")).into()
    }

    /// The path above `path` that is no directory.
    fn above<'p>(&self, path: &'p str) -> Option<&'p str> {
        parents(path).find(|parent| self.is_leaf(parent))
    }
}

/// Paths of the directories above `path`, that of `/`, which is empty, first.
fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').map(|(end, _)| &path[..end])
}

fn check_name(path: &str) -> Result<(), Unwritable> {
    if path.contains('\0') {
        return Err(Unwritable::Nul(path.to_owned()));
    }
    let is_long = path.len() >= PATH_BYTES || path.split('/').any(|name| name.len() > NAME_BYTES);
    if is_long { Err(Unwritable::TooLong(path.to_owned())) } else { Ok(()) }
}

/// Checks contents that the config holds. Others only the machine sees.
fn check_resource(
    path: &str,
    resource: &Resource,
    budget: &mut UnpackBudget,
) -> Result<(), Unwritable> {
    let is_packed = resource.compression.as_deref() == Some("gzip");
    let hash = resource.verification.hash.as_deref();
    if !is_packed && hash.is_none() {
        return Ok(());
    }
    let contents = match Contents::read(resource, budget) {
        Contents::Bytes(bytes) => bytes,
        Contents::Unreadable(reason @ Unreadable::NotGzip) => {
            return Err(Unwritable::Packed(path.to_owned(), reason));
        }
        // An empty source is an empty file. A malformed data URL is refused by the rules, and what unpacks to more than
        // any machine is not unpacked here.
        Contents::Nothing | Contents::Elsewhere(_) | Contents::Unreadable(_) => return Ok(()),
    };
    match hash {
        Some(hash) if !has_hash(&contents, hash) => Err(Unwritable::Hash(path.to_owned())),
        _ => Ok(()),
    }
}

/// Returns `true` if contents have this hash, `sha512-…` or `sha256-…`, its digits in either case.
pub fn has_hash(bytes: &[u8], hash: &str) -> bool {
    let Some((function, digits)) = hash.split_once('-') else { return false };
    let Ok(sum) = HEXLOWER_PERMISSIVE.decode(digits.as_bytes()) else { return false };
    match function {
        "sha512" => Sha512::digest(bytes)[..] == sum[..],
        "sha256" => Sha256::digest(bytes)[..] == sum[..],
        _ => false,
    }
}

fn shortened(path: &str) -> &str {
    let end = path.char_indices().nth(60).map_or(path.len(), |(end, _)| end);
    &path[..end]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn verdict(config: &Value) -> String {
        let mut whole = json!({"ignition": {"version": "3.4.0"}});
        whole.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let config = Config::parse(&whole.to_string()).unwrap();
        config.check_writable().map_or_else(|fault| fault.to_string(), |()| "written".to_owned())
    }

    fn files(paths: &[&str]) -> Value {
        let file = |path: &&str| json!({"path": path, "contents": {"source": "data:,x"}});
        json!({"files": paths.iter().map(file).collect::<Vec<_>>()})
    }

    #[test]
    fn nothing_is_below_what_is_no_directory() {
        let unit = json!({"name": "a.service", "contents": "[Service]\nExecStart=/x\n"});
        let dropin =
            json!({"name": "a.service", "dropins": [{"name": "b.conf", "contents": "[A]"}]});
        let empty = json!({"name": "a.service", "dropins": [{"name": "b.conf"}]});
        let enabled = json!({"name": "a.service", "enabled": false});
        let masked = json!({"name": "a.service", "mask": true, "contents": "[Unit]\n"});
        let below = |path: &str, above: &str| {
            format!("{path}: it is below {above}, which is not a directory")
        };
        for (paths, unit, expected) in [
            (vec!["/a/b", "/a/bc", "/a/c/d"], &unit, "written".to_owned()),
            (vec!["/a/b/c", "/a/b"], &unit, below("/a/b/c", "/a/b")),
            (
                vec!["/etc/systemd/system"],
                &unit,
                below("/etc/systemd/system/a.service", "/etc/systemd/system"),
            ),
            (
                vec!["/etc/systemd/system/a.service/x"],
                &unit,
                below("/etc/systemd/system/a.service/x", "/etc/systemd/system/a.service"),
            ),
            (vec!["/etc/systemd/system/a.service/x"], &masked, "written".to_owned()),
            (
                vec!["/etc/systemd/system/a.service.d"],
                &dropin,
                below("/etc/systemd/system/a.service.d/b.conf", "/etc/systemd/system/a.service.d"),
            ),
            (vec!["/etc/systemd/system/a.service.d"], &empty, "written".to_owned()),
            (
                vec!["/etc/systemd/system-preset"],
                &enabled,
                below(PRESETS, "/etc/systemd/system-preset"),
            ),
            (vec!["/etc/systemd/system-preset"], &unit, "written".to_owned()),
            (vec!["/etc"], &unit, below("/etc/systemd/system/a.service", "/etc")),
            (vec![RESULT], &unit, format!("{RESULT}: Ignition itself writes a file there")),
            (vec!["/"], &empty, "/: it is a directory on every machine".to_owned()),
        ] {
            let config = json!({"storage": files(&paths), "systemd": {"units": [unit]}});
            assert_eq!(verdict(&config), expected, "{paths:?}");
        }
        let preset = json!({
            "storage": {"directories": [{"path": PRESETS}]}, "systemd": {"units": [enabled]},
        });
        assert_eq!(verdict(&preset), format!("{PRESETS}: Ignition itself writes a file there"));
    }

    #[test]
    fn units_are_written_behind_a_link_and_disabled_where_no_directory_is() {
        let unit = json!({"name": "a.service", "contents": "[Service]\nExecStart=/x\n"});
        let below = |above: &str| {
            format!("/etc/systemd/system/a.service: it is below {above}, which is not a directory")
        };
        for (links, expected) in [
            (&[("/etc/systemd/system", "/opt/x")][..], "written".to_owned()),
            (&[("/etc/systemd/system", "../../opt/./x")], "written".to_owned()),
            (&[("/etc/systemd/system", "/opt/x/y"), ("/opt/x", "/z")], below("/opt/x")),
            (&[("/etc/systemd/system", "../file")], below("/etc/file")),
        ] {
            let of = |(path, target): &(&str, &str)| json!({"path": path, "target": target});
            let mut storage = files(&["/etc/file"]);
            storage["links"] = links.iter().map(of).collect();
            let config = json!({"storage": storage, "systemd": {"units": [unit]}});
            assert_eq!(verdict(&config), expected, "{links:?}");
        }
        for (enabled, expected) in [
            (
                false,
                "/etc/systemd/system/b.service: it is a directory, and a unit of this name is disabled",
            ),
            (true, "written"),
        ] {
            let unit = json!({"name": "b.service", "enabled": enabled});
            let storage = files(&["/etc/systemd/system/b.service/x"]);
            let config = json!({"storage": storage, "systemd": {"units": [unit]}});
            assert_eq!(verdict(&config), expected);
        }
    }

    #[test]
    fn names_are_those_of_a_file_system() {
        let long = |name| format!("/{}", "a".repeat(name));
        for (path, is_written) in [
            (long(255), true),
            (long(256), false),
            ("/ab".repeat(1362), true),
            ("/ab".repeat(1363), false),
            ("/a\0b".to_owned(), false),
        ] {
            let config = json!({"storage": files(&[&path])});
            assert_eq!(verdict(&config) == "written", is_written, "{} bytes", path.len());
        }
        let link = json!({"storage": {"links": [{"path": "/l", "target": "/a\0"}]}});
        assert_eq!(verdict(&link), "/a\\0: it has a NUL, which no path can have");
    }

    #[test]
    fn contents_are_what_the_config_says_of_them() {
        const ABC: &str = "data:;base64,H4sIAAAAAAAAA0tMSgYAwkEkNQMAAAA=";
        let sum = |digits: &str| json!({"hash": format!("sha256-{digits}")});
        let right = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        let (right, wrong) = (sum(right), sum(&"0".repeat(64)));
        let not_gzip = "/a: its contents are not gzip, which its compression says";
        let other = "/a: its contents do not have the hash in verification.hash: set or remove the hash where the \
            contents are set";
        for (contents, expected) in [
            (json!({"source": "data:,abc", "verification": right}), "written"),
            (json!({"source": "data:,abc", "verification": wrong}), other),
            (json!({"source": "https://h/abc", "verification": wrong}), "written"),
            (json!({"source": ABC, "compression": "gzip", "verification": right}), "written"),
            (json!({"source": ABC, "compression": "gzip", "verification": wrong}), other),
            (json!({"source": "data:,abc", "compression": "gzip"}), not_gzip),
            (json!({"source": "data:,", "compression": "gzip"}), not_gzip),
        ] {
            let merge = json!({"merge": [{"source": "https://h/more.ign"}]});
            let merged = json!({
                "ignition": {"version": "3.4.0", "config": merge},
                "storage": {"files": [{"path": "/a", "contents": contents}]},
            });
            assert_eq!(verdict(&merged), "written", "the fetched config can have other contents");
            let whole = json!({"storage": {"files": [{"path": "/a", "contents": contents}]}});
            assert_eq!(verdict(&whole), expected, "{contents}");
            let part = json!({"storage": {"files": [{"path": "/a", "append": [contents]}]}});
            assert_eq!(verdict(&part), expected, "{contents}");
        }
    }
}

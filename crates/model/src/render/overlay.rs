//! Merges a machine's overlay into its pool's config, as Ignition merges configs.
//!
//! The overlay adds to what the pool's machines get, and changes none of it: machine-config-daemon compares the files and
//! units of the pool's MachineConfig with those on the node, and knows nothing of overlays. An object that says so
//! replaces files of the pool, never those that the server adds.

use std::borrow::Cow;
use std::collections::BTreeSet;

use bytes::Bytes;
use ignition::spec3::{Body, Unit};
use ignition::{Config, FileSources, Form, MergeInput, SpecVersion, Unwritable, merge};

use super::compact::{CompressedContents, gzipped};
use super::select::PoolInputs;
use super::steps::{RenderError, is_of_server, prepare};

/// Reasons why an overlay cannot be merged into a pool's config.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// The overlay is invalid, or the spec cannot express it.
    #[error("overlay: {0}")]
    Overlay(ignition::Error),
    /// The pool's config cannot be rendered.
    #[error("{0}")]
    Pool(#[from] RenderError),
    /// The two are no valid config together, or the spec cannot express it.
    #[error("{0}")]
    Merged(ignition::Error),
    /// The pool's config has the path too.
    #[error("{0}: the pool's config writes it, and the object's `replaces` does not name it")]
    Taken(String),
    /// The server adds the path itself.
    #[error("{0}: the server writes it for every machine")]
    OfServer(String),
    /// One of the two would write below a path that is no directory.
    #[error("{path}: it is below {above}, which is not a directory")]
    Below {
        /// The path.
        path: String,
        /// The path above it.
        above: String,
    },
    /// Ignition's files stage cannot write the two together.
    #[error("{0}")]
    Unwritable(#[from] Unwritable),
    /// The overlay removes a kernel argument that the pool's machines need.
    #[error("kernelArguments: {0} is one of the pool's")]
    KernelArgument(String),
    /// The config has no JSON form.
    #[error("{0}")]
    Json(serde_json::Error),
}

/// A pool's config in a version and form, prepared once for the overlays of all its machines.
#[derive(Debug)]
pub struct MergeBase {
    /// The config without the sources of its files.
    config: Config,
    part: MergeInput,
    sources: FileSources,
    nodes: Nodes,
    version: SpecVersion,
    form: Form,
}

impl MergeBase {
    /// Prepares the config that [`super::render`] writes in `version`.
    ///
    /// # Errors
    /// The pool's config cannot be rendered.
    pub fn new(
        pool: &PoolInputs,
        (version, form): (SpecVersion, Form),
    ) -> Result<Self, OverlayError> {
        let config = prepare(pool, version, form, &CompressedContents::default())?;
        Self::of(config, (version, form)).map_err(OverlayError::Merged)
    }

    fn of(
        mut config: Config,
        (version, form): (SpecVersion, Form),
    ) -> Result<Self, ignition::Error> {
        let sources = FileSources::take(&mut config);
        let (part, nodes) = (MergeInput::new(&config)?, Nodes::of(config.body()));
        Ok(Self { config, part, sources, nodes, version, form })
    }

    /// Merges `overlay` into the config. The overlay's paths in `replaces` take the place of the pool's.
    ///
    /// # Errors
    /// The reason why the machine gets nothing.
    pub fn with(&self, overlay: &str, replaces: &BTreeSet<String>) -> Result<Bytes, OverlayError> {
        let mut overlay = Config::parse(overlay).map_err(OverlayError::Overlay)?;
        let of_overlay = Nodes::of(overlay.body());
        if let Some(path) = replaces.iter().find(|path| is_of_server(path)) {
            return Err(OverlayError::OfServer(path.clone()));
        }
        // Members that the overlay does not have must not stay. Units and drop-ins are merged member by member.
        let is_replaced = |path: &&String| of_overlay.has(path) && self.nodes.has(path);
        let taken_over: Vec<_> = replaces.iter().filter(is_replaced).collect();
        check(&self.nodes.without(&taken_over), &of_overlay)?;
        check_units(self.config.body(), overlay.body(), replaces)?;
        check_kernel_arguments(self.config.body(), overlay.body())?;
        // The contents of the pool's files are checked already, and are not in what is merged.
        overlay.check_contents()?;
        if self.form == Form::Compact && self.version.has_compressed_data() {
            overlay.compress_files(gzipped);
        }
        let overlay = MergeInput::new(&overlay).map_err(OverlayError::Overlay)?;
        let part = self.without(&taken_over).map_err(OverlayError::Merged)?;
        let merged = merge(&[&part, &overlay], self.version).config();
        let merged = merged.map_err(OverlayError::Merged)?;
        merged.check_paths()?;
        let mut lowered = merged.lower(self.version).map_err(OverlayError::Merged)?;
        self.sources.put_back(&mut lowered, &taken_over);
        let json = serde_json::to_vec(&lowered).map_err(OverlayError::Json)?;
        Ok(json.into_boxed_slice().into())
    }

    /// The pool's config without its files, directories and links at these paths.
    fn without(&self, paths: &[&String]) -> Result<Cow<'_, MergeInput>, ignition::Error> {
        if paths.is_empty() {
            return Ok(Cow::Borrowed(&self.part));
        }
        let mut config = self.config.clone();
        for path in paths {
            config.remove_node(path);
        }
        MergeInput::new(&config).map(Cow::Owned)
    }
}

/// Directory of units and drop-ins.
const UNITS: &str = "/etc/systemd/system/";

#[derive(Debug, Clone)]
struct Nodes {
    /// Files, links, units and drop-ins, below which nothing can be.
    leaves: BTreeSet<String>,
    directories: BTreeSet<String>,
}

impl Nodes {
    fn of(body: &Body) -> Self {
        let files = body.storage.files.iter().map(|file| file.path.clone());
        let links = body.storage.links.iter().map(|link| link.path.clone());
        let units = body.systemd.units.iter();
        let dropins = units.clone().flat_map(|unit| {
            unit.dropins.iter().map(|dropin| format!("{UNITS}{}.d/{}", unit.name, dropin.name))
        });
        let units = units.filter(|unit| unit.contents.is_some()).map(path_of);
        let leaves = files.chain(links).chain(dropins).chain(units).collect();
        let directories = body.storage.directories.iter().map(|it| it.path.clone()).collect();
        Self { leaves, directories }
    }

    fn without(&self, paths: &[&String]) -> Cow<'_, Self> {
        let mut nodes = Cow::Borrowed(self);
        for path in paths {
            let nodes = nodes.to_mut();
            nodes.leaves.remove(*path);
            nodes.directories.remove(*path);
        }
        nodes
    }

    fn has(&self, path: &str) -> bool {
        self.leaves.contains(path) || self.directories.contains(path)
    }

    /// A path of this config that is below `path`.
    fn below(&self, path: &str) -> Option<&String> {
        let start = format!("{path}/");
        [&self.leaves, &self.directories].into_iter().find_map(|paths| {
            paths.range(start.clone()..).next().filter(|it| it.starts_with(&start))
        })
    }

    /// A leaf of this config that is above `path`.
    fn above<'a>(&self, path: &'a str) -> Option<&'a str> {
        let mut parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        parents.find(|parent| self.leaves.contains(*parent))
    }
}

fn path_of(unit: &Unit) -> String {
    format!("{UNITS}{}", unit.name)
}

/// Refuses paths that both write, or that one writes below a leaf of the other.
fn check(pool: &Nodes, overlay: &Nodes) -> Result<(), OverlayError> {
    for path in overlay.leaves.iter().chain(&overlay.directories) {
        if pool.has(path) {
            let path = path.clone();
            return Err(if is_of_server(&path) {
                OverlayError::OfServer(path)
            } else {
                OverlayError::Taken(path)
            });
        }
        if let Some(above) = pool.above(path) {
            return Err(OverlayError::Below { path: path.clone(), above: above.to_owned() });
        }
    }
    for above in &overlay.leaves {
        if let Some(path) = pool.below(above) {
            return Err(OverlayError::Below { path: path.clone(), above: above.clone() });
        }
    }
    Ok(())
}

/// Refuses changes of the pool's units other than further drop-ins.
fn check_units(
    pool: &Body,
    overlay: &Body,
    replaces: &BTreeSet<String>,
) -> Result<(), OverlayError> {
    let changed = overlay.systemd.units.iter().find(|unit| {
        let is_more = unit.contents.is_some() || unit.enabled.is_some() || unit.mask.is_some();
        let is_pools = pool.systemd.units.iter().any(|it| it.name == unit.name);
        is_more && is_pools && !replaces.contains(&path_of(unit))
    });
    changed.map_or(Ok(()), |unit| Err(OverlayError::Taken(path_of(unit))))
}

/// Refuses to remove kernel arguments that the pool's config adds.
fn check_kernel_arguments(pool: &Body, overlay: &Body) -> Result<(), OverlayError> {
    let mut removed = overlay.kernel_arguments.should_not_exist.iter();
    let needed = removed.find(|it| pool.kernel_arguments.should_exist.contains(it));
    needed.map_or(Ok(()), |it| Err(OverlayError::KernelArgument(it.clone())))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::ENCAPSULATED;
    use super::*;

    fn pool() -> Value {
        json!({
            "ignition": {"version": "3.2.0", "proxy": {"httpProxy": "http://pool"}},
            "kernelArguments": {"shouldExist": ["quiet"]},
            "storage": {
                "files": [
                    {"path": "/etc/pool", "mode": 420, "contents": {"source": "data:,pool"}},
                    {"path": "/etc/zipped", "contents": {"compression": "gzip",
                        "source": "data:;base64,H4sIAAAAAAAAA0tMSgYAZ+3QIwMAAAA="}},
                    {"path": "/etc/kubernetes/kubeconfig", "contents": {"source": "data:,k"}},
                    {"path": "/etc/docker/certs.d/r/ca.crt", "contents": {"source": "data:,c"}},
                    {"path": "/etc/a/b/c", "contents": {"source": "data:,c"}},
                ],
                "directories": [{"path": "/var/lib/pool"}],
                "links": [{"path": "/etc/link", "target": "/etc/pool"}],
            },
            "systemd": {"units": [{"name": "a.service", "contents": "[Unit]\n", "enabled": true,
                "dropins": [{"name": "1.conf", "contents": "[Unit]\n"}]}]},
        })
    }

    fn base(pool: &str, variant: (SpecVersion, Form)) -> MergeBase {
        MergeBase::of(Config::parse(pool).unwrap(), variant).unwrap()
    }

    fn merged(version: SpecVersion, overlay: &Value, replaces: &[&str]) -> Result<Value, String> {
        let mut pool = pool();
        pool["ignition"]["version"] = version.as_str().into();
        if version < SpecVersion::V3_3 {
            pool.as_object_mut().unwrap().remove("kernelArguments");
        }
        let replaces = replaces.iter().map(|path| (*path).to_owned()).collect();
        let (pool, overlay) = (pool.to_string(), overlay.to_string());
        let base = base(&pool, (version, Form::Plain));
        let bytes = base.with(&overlay, &replaces);
        bytes.map(|bytes| serde_json::from_slice(&bytes).unwrap()).map_err(|it| it.to_string())
    }

    fn overlay(storage: &Value) -> Value {
        json!({"ignition": {"version": "3.1.0"}, "storage": storage})
    }

    fn file(path: &str) -> Value {
        overlay(&json!({"files": [{"path": path, "contents": {"source": "data:,n"}}]}))
    }

    #[test]
    fn an_overlay_adds_to_the_pools_config_and_changes_nothing_of_it() {
        let more = json!({
            "ignition": {"version": "3.4.0", "proxy": {"httpsProxy": "http://n"}},
            "kernelArguments": {"shouldExist": ["ip=192.0.2.7"]},
            "storage": {
                "files": [{"path": "/etc/hostname", "mode": 420, "contents": {"source": "data:,n"}}],
                "directories": [{"path": "/var/lib/n"}],
                "links": [{"path": "/etc/localtime", "target": "/usr/share/zoneinfo/UTC"}],
            },
            "systemd": {"units": [
                {"name": "a.service", "dropins": [{"name": "2.conf", "contents": "[Unit]\n"}]},
                {"name": "b.service", "contents": "[Unit]\n"},
            ]},
        });
        let result = merged(SpecVersion::V3_4, &more, &[]).unwrap();
        let before = pool();
        for list in ["files", "directories", "links"] {
            let count = before["storage"][list].as_array().unwrap().len();
            let after = result["storage"][list].as_array().unwrap();
            assert_eq!(after[..count], before["storage"][list].as_array().unwrap()[..], "{list}");
            assert_eq!(after[count..], more["storage"][list].as_array().unwrap()[..], "{list}");
        }
        assert_eq!(result["kernelArguments"]["shouldExist"], json!(["quiet", "ip=192.0.2.7"]));
        let proxy = json!({"httpProxy": "http://pool", "httpsProxy": "http://n"});
        assert_eq!(result["ignition"], json!({"proxy": proxy, "version": "3.4.0"}));
        let units = result["systemd"]["units"].as_array().unwrap();
        assert_eq!(units[0]["dropins"].as_array().unwrap().len(), 2);
        assert_eq!(units[0]["contents"], before["systemd"]["units"][0]["contents"]);
        assert_eq!(units[1]["name"], "b.service");
    }

    #[test]
    fn what_both_write_is_refused_by_its_path() {
        let taken = "the pool's config writes it, and the object's `replaces` does not name it";
        let unit =
            |unit: Value| json!({"ignition": {"version": "3.1.0"}, "systemd": {"units": [unit]}});
        let dropin = json!({"name": "a.service", "dropins": [{"name": "1.conf", "contents": ""}]});
        for (overlay, reason) in [
            (file("/etc/pool"), format!("/etc/pool: {taken}")),
            (
                overlay(&json!({"directories": [{"path": "/var/lib/pool"}]})),
                format!("/var/lib/pool: {taken}"),
            ),
            (
                overlay(&json!({"links": [{"path": "/etc/link", "target": "/x"}]})),
                format!("/etc/link: {taken}"),
            ),
            (
                file("/etc/kubernetes/kubeconfig"),
                "/etc/kubernetes/kubeconfig: the server writes it for every machine".to_owned(),
            ),
            (
                file("/etc/docker/certs.d/r/ca.crt"),
                "/etc/docker/certs.d/r/ca.crt: the server writes it for every machine".to_owned(),
            ),
            (
                file("/etc/pool/x"),
                "/etc/pool/x: it is below /etc/pool, which is not a directory".to_owned(),
            ),
            (
                file("/etc/link/x"),
                "/etc/link/x: it is below /etc/link, which is not a directory".to_owned(),
            ),
            (
                file("/etc/a/b"),
                "/etc/a/b/c: it is below /etc/a/b, which is not a directory".to_owned(),
            ),
            (
                file("/var/lib"),
                "/var/lib/pool: it is below /var/lib, which is not a directory".to_owned(),
            ),
            (
                file("/etc/systemd/system/a.service"),
                format!("/etc/systemd/system/a.service: {taken}"),
            ),
            (
                unit(json!({"name": "a.service", "enabled": false})),
                format!("/etc/systemd/system/a.service: {taken}"),
            ),
            (unit(dropin), format!("/etc/systemd/system/a.service.d/1.conf: {taken}")),
            (
                json!({"ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldNotExist": ["quiet"]}}),
                "kernelArguments: quiet is one of the pool's".to_owned(),
            ),
        ] {
            assert_eq!(merged(SpecVersion::V3_4, &overlay, &[]), Err(reason));
        }
    }

    #[test]
    fn what_is_replaced_is_replaced_as_a_whole_and_never_what_the_server_adds() {
        let result = merged(SpecVersion::V3_4, &file("/etc/zipped"), &["/etc/zipped"]).unwrap();
        let files = result["storage"]["files"].as_array().unwrap();
        let replaced = files.iter().find(|file| file["path"] == "/etc/zipped").unwrap();
        assert_eq!(*replaced, json!({"path": "/etc/zipped", "contents": {"source": "data:,n"}}));
        let as_link = overlay(&json!({"links": [{"path": "/etc/pool", "target": "/x"}]}));
        let result = merged(SpecVersion::V3_4, &as_link, &["/etc/pool"]).unwrap();
        assert!(
            result["storage"]["files"]
                .as_array()
                .unwrap()
                .iter()
                .all(|it| it["path"] != "/etc/pool")
        );
        let as_directory = overlay(&json!({
            "directories": [{"path": "/etc/pool"}],
            "files": [{"path": "/etc/pool/n", "contents": {"source": "data:,n"}}],
        }));
        let result = merged(SpecVersion::V3_4, &as_directory, &["/etc/pool"]).unwrap();
        assert_eq!(result["storage"]["directories"][1]["path"], "/etc/pool");
        // A path that the overlay does not have stays.
        let kept = merged(SpecVersion::V3_4, &file("/etc/n"), &["/etc/pool"]).unwrap();
        assert_eq!(kept["storage"]["files"].as_array().unwrap().len(), 6);
        let disabled = json!({"ignition": {"version": "3.1.0"},
            "systemd": {"units": [{"name": "a.service", "enabled": false}]}});
        let of_unit = ["/etc/systemd/system/a.service"];
        let result = merged(SpecVersion::V3_4, &disabled, &of_unit).unwrap();
        assert_eq!(result["systemd"]["units"][0]["enabled"], false);
        assert_eq!(result["systemd"]["units"][0]["contents"], "[Unit]\n");
        for path in ["/etc/kubernetes/kubeconfig", "/etc/docker/certs.d/r/ca.crt", ENCAPSULATED] {
            let error = merged(SpecVersion::V3_4, &file("/etc/n"), &[path]).unwrap_err();
            assert_eq!(error, format!("{path}: the server writes it for every machine"));
        }
    }

    #[test]
    fn an_overlay_is_said_in_each_spec_or_refused() {
        for version in SpecVersion::ALL {
            let pool = json!({"ignition": {"version": version.as_str()}}).to_string();
            let with = |overlay: &Value| {
                let base = base(&pool, (version, Form::Compact));
                base.with(&overlay.to_string(), &BTreeSet::new())
            };
            let result: Value = serde_json::from_slice(&with(&file("/etc/n")).unwrap()).unwrap();
            assert_eq!(result["ignition"]["version"], version.as_str());
            assert_eq!(result["storage"]["files"][0]["path"], "/etc/n");
            let arguments = json!({
                "ignition": {"version": "3.3.0"}, "kernelArguments": {"shouldExist": ["a"]},
            });
            assert_eq!(with(&arguments).is_ok(), version >= SpecVersion::V3_3, "{version}");
        }
    }

    #[test]
    fn in_spec_2_a_file_keeps_its_parts_and_a_file_system_its_files() {
        let pool = json!({"ignition": {"version": "3.0.0"}, "storage": {
            "filesystems": [{"path": "/var", "device": "/dev/vdb", "format": "xfs"}],
            "files": [
                {"path": "/etc/a", "contents": {"source": "data:,1"}, "append": [{"source": "data:,2"}]},
                {"path": "/var/b", "contents": {"source": "data:,3"}},
            ],
        }});
        let variant = (SpecVersion::V2_2, Form::Plain);
        let base = base(&pool.to_string(), variant);
        let more = overlay(&json!({"files": [
            {"path": "/etc/n", "contents": {"source": "data:,4"}},
            {"path": "/var/n", "contents": {"source": "data:,5"}},
        ]}));
        let merged = base.with(&more.to_string(), &BTreeSet::new()).unwrap();
        let merged: Value = serde_json::from_slice(&merged).unwrap();
        let files = merged["storage"]["files"].as_array().unwrap().iter();
        let files: Vec<_> = files
            .map(|it| json!([it["filesystem"], it["path"], it["contents"]["source"]]))
            .collect();
        assert_eq!(
            json!(files),
            json!([
                ["root", "/etc/a", "data:,1"],
                ["root", "/etc/a", "data:,2"],
                ["/var", "/b", "data:,3"],
                ["root", "/etc/n", "data:,4"],
                ["/var", "/n", "data:,5"],
            ])
        );
    }
}

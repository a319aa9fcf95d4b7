//! Sources of a config's files, set aside while the rest of the config is merged and lowered.
//!
//! Nearly all of a config is the contents of its files. What is done with the rest costs a fraction.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::config::{Config, LoweredConfig};

/// Source of a file whose own one is set aside.
const EMPTY: &str = "data:,";

/// Data URLs that were taken out of the files of a config.
#[derive(Debug)]
pub struct FileSources(BTreeMap<String, Vec<String>>);

impl FileSources {
    /// Takes the data URLs out of a valid config, which stays valid.
    pub fn take(config: &mut Config) -> Self {
        let mut by_path: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for file in &mut config.body.storage.files {
            let resources = std::iter::once(&mut file.contents).chain(&mut file.append);
            let sources = resources.filter_map(|resource| resource.source.as_mut());
            for source in sources.filter(|source| is_aside(source)) {
                let taken = std::mem::replace(source, EMPTY.to_owned());
                by_path.entry(file.path.clone()).or_default().push(taken);
            }
        }
        Self(by_path)
    }

    /// Puts the sources back into a config that was made of the first one and of others. Files at the paths in
    /// `of_others` are those of others.
    pub fn put_back(&self, config: &mut LoweredConfig, of_others: &[&String]) {
        let mut left: BTreeMap<_, _> = self.0.iter().map(|(path, it)| (path, it.iter())).collect();
        left.retain(|path, _| !of_others.contains(path));
        let files = config.0.pointer_mut("/storage/files").and_then(Value::as_array_mut);
        for file in files.into_iter().flatten() {
            let path = path(file).into_owned();
            let Some(sources) = left.get_mut(&path) else { continue };
            let mut put_back = |resource: &mut Value| {
                let source = resource.get_mut("source");
                if let Some(source) = source.filter(|it| it.as_str().is_some_and(is_aside))
                    && let Some(own) = sources.next()
                {
                    *source = own.as_str().into();
                }
            };
            // In spec 2, appended parts are files too.
            file.get_mut("contents").into_iter().for_each(&mut put_back);
            let parts = file.get_mut("append").and_then(Value::as_array_mut);
            parts.into_iter().flatten().for_each(&mut put_back);
        }
    }
}

fn is_aside(source: &str) -> bool {
    source.starts_with("data:")
}

/// Path of a file in any spec. In spec 2, the name of a file system is the path where it is mounted.
fn path(file: &Value) -> Cow<'_, str> {
    let text = |field| file.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("filesystem") {
        "" | "root" => text("path").into(),
        mounted => format!("{mounted}{}", text("path")).into(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::version::SpecVersion;

    #[test]
    fn sources_come_back_in_every_spec() {
        let file = |path: &str, name: &str| {
            json!({"path": path, "contents": {"source": format!("data:,{name}")},
                "append": [{"source": format!("data:,{name}1")}, {"source": "https://a/b"},
                    {"source": format!("data:,{name}2")}]})
        };
        let config = json!({
            "ignition": {"version": "3.0.0"},
            "storage": {
                "filesystems": [{"path": "/var", "device": "/dev/vdb", "format": "xfs"}],
                "files": [file("/etc/b", "b"), file("/var/a", "a"), {"path": "/etc/none"},
                    {"path": "/etc/more", "append": [{"source": "data:,more"}]}],
            },
        });
        let config = Config::parse(&config.to_string()).unwrap();
        for version in SpecVersion::ALL {
            let expected = config.clone().lower(version).unwrap();
            let mut aside = config.clone();
            let sources = FileSources::take(&mut aside);
            let mut lowered = aside.lower(version).unwrap();
            assert!(!json!(lowered).to_string().contains("data:,b1"), "{version}");
            sources.put_back(&mut lowered, &[]);
            assert_eq!(lowered, expected, "{version}");
        }
    }

    #[test]
    fn a_file_of_others_keeps_its_source() {
        let with = |source: &str| {
            let files = json!([{"path": "/a", "contents": {"source": source}}]);
            let config = json!({"ignition": {"version": "3.1.0"}, "storage": {"files": files}});
            Config::parse(&config.to_string()).unwrap()
        };
        let sources = FileSources::take(&mut with("data:,first"));
        let mut other = with("data:,other").lower(SpecVersion::V3_1).unwrap();
        let expected = other.clone();
        sources.put_back(&mut other, &[&"/a".to_owned()]);
        assert_eq!(other, expected);
    }
}

//! Edits of served configs: files that are set or appended, kernel arguments that are moved.

use super::config::Config;
use super::contents::{Contents, UnpackBudget};
use super::data_url;
use super::error::Error;
use super::spec3::{File, IgnitionConfig, Resource};
use super::version::SpecVersion;

impl Config {
    /// Gives the file at `path` other contents, or appends it if there is none.
    ///
    /// An existing file keeps its mode, owner and other fields. Compression and hash are removed, because they describe
    /// the old contents.
    pub fn set_file(&mut self, path: &str, contents: &[u8]) {
        match self.body.storage.files.iter_mut().find(|file| file.path == path) {
            Some(file) => {
                file.contents =
                    Resource { source: Some(data_url::encode(contents)), ..Resource::default() };
            }
            None => self.append_file(path, contents),
        }
    }

    /// Contents of the file at `path`, `None` if there is none. Contents with appended parts are
    /// [`Contents::Elsewhere`]: they depend on the file on the machine.
    pub fn file_contents(&self, path: &str) -> Option<Contents> {
        let file = self.body.storage.files.iter().find(|file| file.path == path)?;
        Some(match file.append.first() {
            Some(part) => Contents::Elsewhere(part.source.clone().unwrap_or_default()),
            None => Contents::read(&file.contents, &mut UnpackBudget::default()),
        })
    }

    /// Sets a file as [`Self::set_file`] does, and its mode to 0600.
    pub fn set_private_file(&mut self, path: &str, contents: &[u8]) {
        self.set_file(path, contents);
        for file in self.body.storage.files.iter_mut().filter(|file| file.path == path) {
            file.mode = Some(0o600);
        }
    }

    /// Removes the files at `path`.
    pub fn remove_file(&mut self, path: &str) {
        self.body.storage.files.retain(|file| file.path != path);
    }

    /// Removes the file, directory or link at `path`.
    pub fn remove_node(&mut self, path: &str) {
        self.remove_file(path);
        self.body.storage.directories.retain(|directory| directory.path != path);
        self.body.storage.links.retain(|link| link.path != path);
    }

    /// Appends a file with mode 0644 that overwrites the file on the machine.
    ///
    /// An existing entry with the same path is not detected; a config with two is refused when it is lowered.
    pub fn append_file(&mut self, path: &str, contents: &[u8]) {
        self.body.storage.files.push(File {
            path: path.to_owned(),
            overwrite: Some(true),
            contents: Resource { source: Some(data_url::encode(contents)), ..Resource::default() },
            mode: Some(0o644),
            ..File::default()
        });
    }

    /// Compresses the contents of files, and of their appended parts. `gzipped` converts a data URL to one of the
    /// gzipped bytes, or returns `None` to keep it.
    ///
    /// A hash stays: it is that of the bytes on disk. Compressed and fetched contents stay as they are. So does a
    /// config that refers to others: Ignition merges field by field, and a later config that sets other contents for
    /// one of these files without `compression` would inherit `gzip`.
    pub fn compress_files(&mut self, mut gzipped: impl FnMut(&str) -> Option<String>) {
        if self.body.ignition.config != IgnitionConfig::default() {
            return;
        }
        let files = self.body.storage.files.iter_mut();
        let resources =
            files.flat_map(|file| std::iter::once(&mut file.contents).chain(&mut file.append));
        for resource in resources {
            let is_plain = resource.compression.as_ref().is_none_or(String::is_empty);
            let source = resource.source.as_deref().filter(|source| source.starts_with("data:"));
            if let Some(url) = source.filter(|_| is_plain).and_then(&mut gzipped) {
                resource.source = Some(url);
                resource.compression = Some("gzip".to_owned());
            }
        }
    }

    /// Sets `compression` in each file before a merge, so that a later config with other contents for it does not
    /// inherit `gzip`. [`Self::finish_files`] removes it again.
    ///
    /// As with OpenShift's render controller, this includes files that only change a mode.
    pub fn prepare_files(&mut self) {
        for file in &mut self.body.storage.files {
            file.contents.compression.get_or_insert_default();
        }
    }

    /// Removes the empty `compression` of [`Self::prepare_files`], and sets `overwrite` where it is missing:
    /// machine-config-daemon always overwrites.
    pub fn finish_files(&mut self) {
        for file in &mut self.body.storage.files {
            file.contents.compression.take_if(|compression| compression.is_empty());
            file.overwrite.get_or_insert(true);
        }
    }

    /// Removes the kernel arguments and returns those that should exist.
    ///
    /// Ignition has them since spec 3.3. For an older spec they are moved into the MachineConfig, which has no field
    /// for arguments that should not exist.
    pub fn take_kernel_arguments(&mut self) -> Result<Vec<String>, Error> {
        if !self.body.kernel_arguments.should_not_exist.is_empty() {
            let path = "kernelArguments.shouldNotExist".to_owned();
            let (needs, to) = (SpecVersion::V3_3, SpecVersion::V3_2);
            return Err(Error::Unsupported { path, needs, to });
        }
        Ok(std::mem::take(&mut self.body.kernel_arguments).should_exist)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn files(config: Config) -> serde_json::Value {
        json!(config.lower(SpecVersion::V3_5).unwrap())["storage"]["files"].clone()
    }

    #[test]
    fn setting_a_file_that_is_there_changes_its_source_only() {
        let config = json!({
            "ignition": {"version": "3.2.0"},
            "storage": {"files": [{"path": "/a", "contents": {"source": "data:,old"}, "mode": 384}]},
        });
        let mut config = Config::parse(&config.to_string()).unwrap();
        config.set_file("/a", b"new");
        assert_eq!(
            files(config),
            json!([{"path": "/a", "contents": {"source": "data:,new"}, "mode": 384}])
        );
    }

    #[test]
    fn a_file_that_is_not_there_is_appended() {
        let mut config = Config::empty();
        config.set_file("/a", b"a b");
        assert_eq!(
            files(config),
            json!([{"path": "/a", "overwrite": true, "contents": {"source": "data:,a%20b"}, "mode": 420}])
        );
    }

    #[test]
    fn contents_and_appended_parts_are_compressed_and_hashes_stay() {
        let hash = json!({"hash": format!("sha256-{}", "0".repeat(64))});
        let mut config = json!({
            "ignition": {"version": "3.3.0"},
            "storage": {"files": [
                {"path": "/a", "contents": {"source": "data:,a", "verification": hash}, "mode": 384},
                {"path": "/b", "append": [{"source": "data:,b"}, {"source": "data:;base64,Yg=="}]},
                {"path": "/c", "contents": {"source": "data:,c", "compression": ""}},
            ]},
        });
        let compressed = |config: &serde_json::Value| {
            let mut config = Config::parse(&config.to_string()).unwrap();
            config.compress_files(|url| Some(format!("data:,{}", url.len())));
            files(config)
        };
        let gzip = |source| json!({"compression": "gzip", "source": source});
        let mut first = gzip("data:,7");
        first["verification"] = hash.clone();
        assert_eq!(
            compressed(&config),
            json!([
                {"path": "/a", "contents": first, "mode": 384},
                {"path": "/b", "append": [gzip("data:,7"), gzip("data:,17")]},
                {"path": "/c", "contents": gzip("data:,7")},
            ])
        );

        for reference in ["merge", "replace"] {
            let other = json!({"source": "https://example.com/other.ign"});
            let other = if reference == "merge" { json!([other]) } else { other };
            config["ignition"]["config"] = json!({reference: other});
            assert_eq!(compressed(&config), config["storage"]["files"], "{reference}");
        }
    }

    #[test]
    fn what_is_compressed_or_at_another_url_is_left_alone() {
        let config = json!({
            "ignition": {"version": "3.3.0"},
            "storage": {"files": [
                {"path": "/a", "contents": {"source": "data:,a", "compression": "gzip"}},
                {"path": "/b", "contents": {"source": "https://example.com/b"}},
                {"path": "/c", "contents": {"source": "s3://bucket/c"}},
                {"path": "/d", "contents": {"source": ""}},
                {"path": "/e", "append": [{"source": "tftp://example.com/e"}]},
                {"path": "/f"},
            ]},
        });
        let mut config = Config::parse(&config.to_string()).unwrap();
        let before = config.clone();
        config.compress_files(|url| panic!("{url}"));
        assert_eq!(config, before);
        config.body.storage.files[0].contents =
            Resource { source: Some("data:,%".to_owned()), ..Resource::default() };
        let before = config.clone();
        config.compress_files(|_| None);
        assert_eq!(config, before);
    }

    #[test]
    fn kernel_arguments_are_taken_unless_some_should_not_exist() {
        let parse = |arguments: serde_json::Value| {
            let config = json!({"ignition": {"version": "3.3.0"}, "kernelArguments": arguments});
            Config::parse(&config.to_string()).unwrap()
        };
        let mut config = parse(json!({"shouldExist": ["a", "b"]}));
        assert_eq!(config.take_kernel_arguments().unwrap(), ["a", "b"]);
        assert!(config.lower(SpecVersion::V3_1).is_ok());
        let error = parse(json!({"shouldNotExist": ["a"]})).take_kernel_arguments().unwrap_err();
        assert_eq!(
            error.to_string(),
            "kernelArguments.shouldNotExist: cannot be expressed in spec 3.2.0, it needs 3.3.0"
        );
    }
}

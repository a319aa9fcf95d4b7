//! The edits that a served config gets: files that are set or appended, kernel arguments that move elsewhere.

use super::config::Config;
use super::data_url;
use super::error::{At, Error};
use super::spec3::{File, Resource};
use super::version::SpecVersion;

impl Config {
    /// Gives the file at `path` other contents, or appends it if there is none.
    ///
    /// Of a file that is there, mode, owner and the rest stay. Compression and hash go with the old contents, which
    /// they described.
    pub fn set_file(&mut self, path: &str, contents: &[u8]) {
        match self.body.storage.files.iter_mut().find(|file| file.path == path) {
            Some(file) => {
                file.contents =
                    Resource { source: Some(data_url::encode(contents)), ..Resource::default() };
            }
            None => self.append_file(path, contents),
        }
    }

    /// Appends a file with mode 0644 that overwrites what is there on the machine.
    ///
    /// It does not look for another entry with the same path; a config with two is refused when it is lowered.
    pub fn append_file(&mut self, path: &str, contents: &[u8]) {
        self.body.storage.files.push(File {
            path: path.to_owned(),
            overwrite: Some(true),
            contents: Resource { source: Some(data_url::encode(contents)), ..Resource::default() },
            mode: Some(0o644),
            ..File::default()
        });
    }

    /// Removes the kernel arguments and returns those that should exist.
    ///
    /// Ignition knows them since spec 3.3. For an older spec they are moved into the machine config, which has no
    /// place for arguments that should not exist.
    pub fn take_kernel_arguments(&mut self) -> Result<Vec<String>, Error> {
        if !self.body.kernel_arguments.should_not_exist.is_empty() {
            let at = At::ROOT.field("kernelArguments");
            let path = at.field("shouldNotExist").to_string();
            let (needs, to) = (Some(SpecVersion::V3_3), SpecVersion::V3_2);
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
            "kernelArguments.shouldNotExist: cannot be said in spec 3.2.0, it needs 3.3.0"
        );
    }
}

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
            return Err(Error::NotSayable { path, needs, to });
        }
        Ok(std::mem::take(&mut self.body.kernel_arguments).should_exist)
    }
}

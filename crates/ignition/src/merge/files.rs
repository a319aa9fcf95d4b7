//! Adjustments of files by OpenShift's render controller, before and after Ignition's merge.

use super::super::config::Config;

impl Config {
    /// Sets `compression` in each file, so that a later config with other contents for it does not inherit `gzip`.
    /// [`Self::finish_files`] removes it again.
    ///
    /// As with the render controller, this includes files that only change a mode.
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
}

//! What OpenShift's render controller does about files, before and after Ignition's merge.

use super::super::config::Config;

impl Config {
    /// Has each file say whether its contents are compressed, so that a later config which gives a file other contents
    /// does not inherit `gzip` for them. It is undone by [`Self::finish_files`].
    ///
    /// As with the render controller, a file that only changes its mode says so as well.
    pub fn prepare_files(&mut self) {
        for file in &mut self.body.storage.files {
            file.contents.compression.get_or_insert_default();
        }
    }

    /// Leaves out what [`Self::prepare_files`] has files say, and has those overwrite what is on the machine that do
    /// not say whether they do: machine-config-daemon always does.
    pub fn finish_files(&mut self) {
        for file in &mut self.body.storage.files {
            file.contents.compression.take_if(|compression| compression.is_empty());
            file.overwrite.get_or_insert(true);
        }
    }
}

//! Versions and forms in which a config is served.

use ignition::{Form, SpecVersion};

/// Version and form of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Variant {
    pub(super) version: SpecVersion,
    pub(super) form: Form,
}

impl Variant {
    pub(super) const COUNT: usize = SpecVersion::ALL.len() * Form::ALL.len();

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let forms = |version| Form::ALL.map(|form| Self { version, form });
        SpecVersion::ALL.into_iter().flat_map(forms)
    }

    pub(super) fn index(self) -> usize {
        self.version.index() * Form::ALL.len() + self.form.index()
    }
}

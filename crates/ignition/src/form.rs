//! Chooses the form of a served config by the client's User-Agent.

use super::version::SpecVersion;

/// Encoding of file contents in a served config. Ignition writes the same bytes for either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Contents as in the config, for people and for other programs.
    Plain,
    /// Contents gzipped where that is smaller, for Ignition.
    Compact,
}

impl Form {
    /// Both forms.
    pub const ALL: [Self; 2] = [Self::Plain, Self::Compact];

    /// The form for a client with this `user_agent` that reads `version`.
    ///
    /// Ignition sends `Ignition/` and its version. Without an Ignition version in its Accept header it gets 2.2, and
    /// with it the plain form.
    pub fn of(user_agent: &str, version: SpecVersion) -> Self {
        let is_ignition = user_agent.starts_with("Ignition/");
        if is_ignition && version.has_compressed_data() { Self::Compact } else { Self::Plain }
    }

    /// The position in [`Self::ALL`], for arrays with one slot a form.
    pub const fn index(self) -> usize {
        self as usize
    }
}

#[cfg(test)]
mod tests {
    use super::super::negotiate;
    use super::*;

    #[test]
    fn ignition_itself_gets_the_compact_form_where_it_can_read_it() {
        let accept = |version: &str| {
            Some(format!("application/vnd.coreos.ignition+json;version={version}, */*;q=0.1"))
        };
        for (user_agent, accept, form) in [
            ("Ignition/2.14.0", accept("3.3.0"), Form::Compact),
            ("Ignition/2.3.0", accept("3.1.0"), Form::Compact),
            ("Ignition/2.22.0", accept("3.5.0"), Form::Compact),
            ("Ignition/3.0.0", accept("3.99.0"), Form::Compact),
            ("Ignition/v2.14.0-dirty", accept("3.3.0"), Form::Compact),
            ("Ignition/", accept("3.6.0"), Form::Compact),
            // Clients that refuse compressed data URLs.
            ("Ignition/2.1.1", accept("3.0.0"), Form::Plain),
            ("Ignition/0.35.0", accept("2.4.0"), Form::Plain),
            ("Ignition/0.35.0", accept("2.2.0"), Form::Plain),
            // Ignition fetches other resources too.
            ("Ignition/2.14.0", None, Form::Plain),
            ("Ignition/2.14.0", Some("*/*".to_owned()), Form::Plain),
            ("Ignition/2.14.0", Some("application/vnd.coreos.ignition+json".into()), Form::Plain),
            // Other programs that read configs.
            ("curl/8.14.1", accept("3.4.0"), Form::Plain),
            ("assisted-installer", accept("3.4.0"), Form::Plain),
            ("Go-http-client/1.1", accept("3.4.0"), Form::Plain),
            ("Mozilla/5.0 (like Ignition/2.14.0)", accept("3.4.0"), Form::Plain),
            ("ignition/2.14.0", accept("3.4.0"), Form::Plain),
            ("Ignition", accept("3.4.0"), Form::Plain),
            ("Ignition-validate/2.14.0", accept("3.4.0"), Form::Plain),
            ("", accept("3.4.0"), Form::Plain),
        ] {
            let version = negotiate(accept.as_deref()).unwrap();
            assert_eq!(Form::of(user_agent, version), form, "{user_agent:?} {accept:?}");
        }
    }
}

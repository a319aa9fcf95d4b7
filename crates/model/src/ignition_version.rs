//! Versions of Ignition, which machines report in their user agent.

use core::fmt;
use core::str::FromStr;

/// A version of Ignition: major, minor and patch. A suffix, as of a build from a commit, does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IgnitionVersion([u16; 3]);

impl IgnitionVersion {
    /// The version in `Ignition/2.14.0`, or `Ignition/Debian 2.14.0+ds1` of a distribution; `None` for another program.
    pub fn of_user_agent(agent: &str) -> Option<Self> {
        agent.strip_prefix("Ignition/")?.split(' ').find_map(|word| word.parse().ok())
    }
}

impl FromStr for IgnitionVersion {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        let number = bare.split(['-', '+', ' ']).next().unwrap_or_default();
        let parts: Option<Vec<u16>> = number.split('.').map(|part| part.parse().ok()).collect();
        let version = parts.and_then(|parts| parts.try_into().ok()).map(Self);
        version.ok_or_else(|| format!("{text:?}: expected MAJOR.MINOR.PATCH, such as 2.14.0"))
    }
}

impl fmt::Display for IgnitionVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self([major, minor, patch]) = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        let read = |agent| IgnitionVersion::of_user_agent(agent);
        let [old, new] = ["Ignition/2.9.0", "Ignition/2.14.0"].map(read);
        assert!(old.is_some() && old < new);
        assert_eq!(read("Ignition/v2.14.0-5-gabcdef"), new);
        assert_eq!(read("Ignition/2.14.0+dirty"), new);
        assert_eq!(read("Ignition/Debian 2.14.0+ds1-1+b6"), new);
        assert_eq!(new.map(|it| it.to_string()).as_deref(), Some("2.14.0"));
        for other in [
            "curl/8.5.0",
            "Ignition/",
            "Ignition/2.14",
            "Ignition/2.14.0.1",
            "Ignition/2.x.0",
            "Ignition/2.99999.0",
        ] {
            assert_eq!(read(other), None, "{other}");
        }
    }
}

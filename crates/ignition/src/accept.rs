//! Chooses the spec for a client from its Accept header.
//!
//! Ignition names the spec it reads: `application/vnd.coreos.ignition+json;version=3.4.0, */*;q=0.1`. Every request
//! passes through here, so one pass over the header decides and nothing is allocated.

use super::version::{SemanticVersion, SpecVersion};

/// An Accept header that names Ignition versions, none of which can be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no Ignition version in Accept can be served; served are 2.2.0 to 2.x and 3.0.0 and later 3.x"
)]
pub struct NotServable;

/// Picks the spec to serve.
///
/// Of the entries `*/vnd.coreos.ignition+json` with a valid three-part version, the servable one with the highest
/// `q` wins, the first among equals. Without any such entry (curl, a browser) 2.2.0 is served, as clients that
/// predate versioned headers expect.
///
/// - 2.2 and any later 2.x get 2.2.0,
/// - 3.0 to 3.6 get 3.N.0 whatever the patch level or pre-release,
/// - any later 3.x gets 3.6.0: within a major version a client reads what its predecessors read.
pub fn negotiate(accept: Option<&str>) -> Result<SpecVersion, NotServable> {
    let mut best: Option<(f32, SpecVersion)> = None;
    let mut names_versions = false;
    for (quality, version) in accept.unwrap_or_default().split(',').filter_map(entry) {
        names_versions = true;
        if let Some(spec) = servable(version)
            && best.is_none_or(|(highest, _)| quality > highest)
        {
            best = Some((quality, spec));
        }
    }
    match best {
        Some((_, spec)) => Ok(spec),
        None if names_versions => Err(NotServable),
        None => Ok(SpecVersion::V2_2),
    }
}

/// Parses one entry: its quality and version if it names an Ignition config.
///
/// A parameter that does not parse counts as missing; of several that do, the first counts. A missing `q` is 1.
fn entry(text: &str) -> Option<(f32, SemanticVersion)> {
    let mut parts = text.split(';').map(str::trim);
    let (_, subtype) = parts.next()?.split_once('/')?;
    if subtype != "vnd.coreos.ignition+json" {
        return None;
    }
    let mut quality = None;
    let mut version = None;
    for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        match name {
            "version" => version = version.or_else(|| SemanticVersion::read(value)),
            "q" => {
                quality = quality.or_else(|| value.parse::<f32>().ok().filter(|q| q.is_finite()));
            }
            _ => {}
        }
    }
    Some((quality.unwrap_or(1.0), version?))
}

fn servable(version: SemanticVersion) -> Option<SpecVersion> {
    match (version.major, version.minor) {
        (2, 2..) => Some(SpecVersion::V2_2),
        (3, minor) => Some(SpecVersion::spec_3(minor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(accept: &str) -> Option<&'static str> {
        negotiate(Some(accept)).ok().map(SpecVersion::as_str)
    }

    fn ignition(parameters: &str) -> Option<&'static str> {
        served(&format!("application/vnd.coreos.ignition+json{parameters}"))
    }

    #[test]
    fn a_client_without_an_ignition_entry_gets_2_2() {
        assert_eq!(negotiate(None), Ok(SpecVersion::V2_2));
        for accept in [
            "",
            "*/*",
            ",,,",
            "/",
            "application/json",
            "a/b/c;version=3.2.0",
            "application/vnd.coreos.ignition+yaml;version=3.3.0",
        ] {
            assert_eq!(served(accept), Some("2.2.0"), "{accept}");
        }
    }

    #[test]
    fn each_version_is_served_as_the_nearest_one_that_its_client_reads() {
        for (asked, answer) in [
            ("1.0.0", None),
            ("2.1.0", None),
            ("2.2.0", Some("2.2.0")),
            ("2.9.9", Some("2.2.0")),
            ("3.0.0", Some("3.0.0")),
            ("3.1.7", Some("3.1.0")),
            ("03.4.0", Some("3.4.0")),
            ("3.4.0-experimental", Some("3.4.0")),
            ("3.4.0+build", Some("3.4.0")),
            ("3.6.0", Some("3.6.0")),
            ("3.99.0", Some("3.6.0")),
            ("4.0.0", None),
            ("10.0.0", None),
        ] {
            assert_eq!(
                ignition(&format!("; version={asked}; q=0.5, */*;q=0.1")),
                answer,
                "{asked}"
            );
        }
    }

    #[test]
    fn an_entry_without_a_valid_version_is_passed_over() {
        for version in ["", "3.1", "v3.4.0", "-1.0.0", "3.4.0.0", "abc", " 3.3.0"] {
            assert_eq!(ignition(&format!(";version={version}")), Some("2.2.0"), "{version}");
        }
        assert_eq!(ignition(";VERSION=3.3.0"), Some("2.2.0"));
        assert_eq!(ignition(";version =3.3.0"), Some("2.2.0"));
    }

    #[test]
    fn the_first_valid_parameter_of_a_name_counts() {
        assert_eq!(ignition(";version=abc;version=3.3.0;version=3.1.0"), Some("3.3.0"));
        assert_eq!(ignition(";charset=utf-8;version=3.3.0;;"), Some("3.3.0"));
        assert_eq!(
            served("  application/vnd.coreos.ignition+json ;  version=3.3.0  "),
            Some("3.3.0")
        );
    }

    #[test]
    fn quality_orders_the_entries_and_defaults_to_one() {
        let two = |first: &str, second: &str| {
            let kind = "application/vnd.coreos.ignition+json";
            served(&format!("{kind};version=3.3.0{first}, {kind};version=3.1.0{second}"))
        };
        assert_eq!(two("", ""), Some("3.3.0"));
        assert_eq!(two(";q=0.3", ";q=0.9"), Some("3.1.0"));
        assert_eq!(two(";q=2", ";q=1.5"), Some("3.3.0"));
        for bad in ["", "abc", "nan", "1e999"] {
            assert_eq!(two(&format!(";q={bad}"), ";q=0.9"), Some("3.3.0"), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_served_falls_through_to_the_next_entry() {
        let kind = "application/vnd.coreos.ignition+json";
        assert_eq!(
            served(&format!("{kind};version=9.0.0, {kind};version=3.1.0;q=0.5")),
            Some("3.1.0")
        );
        assert_eq!(served(&format!("{kind};version=9.0.0, */*;q=0.1")), None);
    }
}

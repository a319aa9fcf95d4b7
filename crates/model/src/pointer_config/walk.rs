//! Follows Ignition's order of reading a pointer config: replaced and merged configs, and the CAs and timeouts at each
//! fetch.

use std::iter;

use ignition::SpecVersion;
use pki::Certificate;
use serde_json::Value;

use super::ca::{CaFault, ContentsFault, certificates, contents};
use super::fault::{Fault, Warning};
use super::fetch::{Fetch, fetch, is_of_server};
use super::fields::fields;

const MAX_NESTED: usize = 32;

/// Settings of a config for fetches.
#[derive(Debug, Clone, Default)]
struct Settings {
    /// Entries of `certificateAuthorities`, each source once.
    cas: Vec<Value>,
    http_total: Option<i64>,
    has_proxy: bool,
}

impl Settings {
    fn of(config: &Value) -> Self {
        let section = &config["ignition"];
        let entries = section["security"]["tls"]["certificateAuthorities"].as_array();
        let proxies = ["httpProxy", "httpsProxy"].map(|name| section["proxy"][name].as_str());
        Self {
            cas: entries.cloned().unwrap_or_default(),
            http_total: section["timeouts"]["httpTotal"].as_i64(),
            has_proxy: proxies.into_iter().flatten().any(|proxy| !proxy.is_empty()),
        }
    }

    /// These settings, with those of a merged config.
    fn with(&self, other: &Self) -> Self {
        let is_of =
            |entry: &&Value| !other.cas.iter().any(|later| later["source"] == entry["source"]);
        let kept = self.cas.iter().filter(is_of);
        Self {
            cas: kept.chain(&other.cas).cloned().collect(),
            http_total: other.http_total.or(self.http_total),
            has_proxy: self.has_proxy || other.has_proxy,
        }
    }
}

pub(super) struct IgnitionWalk {
    spec: SpecVersion,
    pub(super) fetches: Vec<Fetch>,
    pub(super) faults: Vec<Fault>,
    pub(super) warnings: Vec<Warning>,
    /// Entries that were read, by source: Ignition caches what it fetches.
    read: Vec<(Value, Vec<Certificate>)>,
    trusted: Vec<Certificate>,
    has_cas: bool,
    others: Vec<http::Uri>,
    nested: usize,
}

impl IgnitionWalk {
    /// Walks through a pointer config and all nested ones.
    pub(super) fn through(spec: SpecVersion, config: &Value) -> Self {
        let mut walk = Self {
            spec,
            fetches: Vec::new(),
            faults: Vec::new(),
            warnings: Vec::new(),
            read: Vec::new(),
            trusted: Vec::new(),
            has_cas: false,
            others: Vec::new(),
            nested: 0,
        };
        walk.update(&Settings::of(config));
        walk.render(config);
        let is_served = |other: &&http::Uri| {
            walk.fetches.iter().any(|fetch| fetch.url.authority() == other.authority())
        };
        let missing: Vec<_> = walk.others.iter().filter(is_served).cloned().collect();
        walk.faults.extend(missing.into_iter().map(Fault::NotServed));
        if walk.fetches.is_empty() && walk.faults.is_empty() {
            walk.faults.push(Fault::NoPointer(walk.list()));
        }
        walk
    }

    /// Name of the list of merged configs in the spec.
    fn list(&self) -> &'static str {
        if self.spec == SpecVersion::V2_2 { "append" } else { "merge" }
    }

    /// Applies CAs and timeouts; a config without CAs keeps the previous ones.
    fn update(&mut self, settings: &Settings) {
        self.check_timeout(settings.http_total);
        if settings.has_proxy && !self.warnings.contains(&Warning::Proxy) {
            self.warnings.push(Warning::Proxy);
        }
        if settings.cas.is_empty() {
            return;
        }
        self.has_cas = true;
        self.trusted.clear();
        for (index, entry) in settings.cas.iter().enumerate() {
            let known = self.read.iter().position(|(source, _)| *source == entry["source"]);
            let place = known.unwrap_or_else(|| {
                let read = self.ca(index, entry);
                self.read.push((entry["source"].clone(), read));
                self.read.len() - 1
            });
            self.trusted.extend(self.read[place].1.iter().cloned());
        }
    }

    /// Checks a timeout. Go counts in nanoseconds, in 64 bits; 0 is no limit.
    fn check_timeout(&mut self, seconds: Option<i64>) {
        const SECOND: i64 = 1_000_000_000;
        let Some(seconds) = seconds else { return };
        let nanoseconds = seconds.wrapping_mul(SECOND);
        let is_reported = |it: &Fault| matches!(it, Fault::Timeout(it) if *it == seconds);
        if nanoseconds != 0 && nanoseconds < SECOND && !self.faults.iter().any(is_reported) {
            self.faults.push(Fault::Timeout(seconds));
        }
    }

    fn ca(&mut self, index: usize, entry: &Value) -> Vec<Certificate> {
        let source = entry["source"].as_str().filter(|source| source.starts_with("data:"));
        let Some(source) = source else {
            self.warnings.push(Warning::RemoteCa(index));
            return Vec::new();
        };
        let pem = contents(source, entry).map_err(CaFault::from);
        match pem.and_then(|pem| certificates(&pem, self.spec)) {
            Ok((read, present)) => {
                if read.len() < present {
                    self.warnings.push(Warning::OnlyFirst { index, present });
                }
                read
            }
            Err(fault) => {
                self.faults.push(Fault::Ca(index, fault));
                Vec::new()
            }
        }
    }

    /// Fetches the config that replaces this one, or else the merged ones. Returns the settings afterwards.
    fn render(&mut self, config: &Value) -> Settings {
        self.check_files(config);
        let section = &config["ignition"]["config"];
        let replace = &section["replace"];
        let settings = Settings::of(config);
        if replace["source"].is_string() {
            return match self.resource("ignition.config.replace", replace) {
                Some(new) => {
                    self.update(&Settings::of(&new));
                    self.within(&new)
                }
                None => settings,
            };
        }
        let mut merged = settings;
        let list = self.list();
        for (index, resource) in section[list].as_array().into_iter().flatten().enumerate() {
            let place = format!("ignition.config.{list}[{index}]");
            if let Some(new) = self.resource(&place, resource) {
                self.update(&merged.with(&Settings::of(&new)));
                merged = merged.with(&self.within(&new));
            }
        }
        merged
    }

    /// Checks files in the config: Ignition fails at contents that do not match their description.
    fn check_files(&mut self, config: &Value) {
        for file in config["storage"]["files"].as_array().into_iter().flatten() {
            let appended = file["append"].as_array().into_iter().flatten();
            for resource in iter::once(&file["contents"]).chain(appended) {
                let source = resource["source"].as_str().filter(|it| it.starts_with("data:"));
                let contents = source.map(|it| contents(it, resource));
                if let Some(Err(fault @ (ContentsFault::NotGzip | ContentsFault::Hash))) = contents
                {
                    let path = file["path"].as_str().unwrap_or_default().to_owned();
                    self.faults.push(Fault::File(path, fault));
                }
            }
        }
    }

    fn within(&mut self, config: &Value) -> Settings {
        if self.nested == MAX_NESTED {
            self.faults.push(Fault::TooDeep);
            return Settings::default();
        }
        self.nested += 1;
        let settings = self.render(config);
        self.nested -= 1;
        settings
    }

    /// The config in a data URL, if the resource has one. Others, and faults, are recorded.
    fn resource(&mut self, place: &str, resource: &Value) -> Option<Value> {
        let source = resource["source"].as_str().unwrap_or_default();
        if source.is_empty() {
            self.faults.push(Fault::NoSource(place.to_owned()));
            return None;
        }
        if source.starts_with("data:") {
            return match self.nested_config(source, resource) {
                Ok(nested) => Some(nested),
                Err(fault) => {
                    self.faults.push(Fault::Nested(place.to_owned(), Box::new(fault)));
                    None
                }
            };
        }
        if is_of_server(source) {
            self.of_server(source, resource);
        } else {
            self.warnings.push(Warning::OtherSource(shortened(source)));
        }
        None
    }

    fn of_server(&mut self, source: &str, resource: &Value) {
        let Ok(url) = source.parse::<http::Uri>() else {
            self.faults.push(Fault::BadUrl(shortened(source)));
            return;
        };
        if !url.path().starts_with("/config/") {
            self.warnings.push(Warning::OtherSource(shortened(source)));
            self.others.push(url);
            return;
        }
        if !self.has_cas && !self.faults.iter().any(|it| matches!(it, Fault::NoCas)) {
            self.faults.push(Fault::NoCas);
        }
        match fetch(url, resource, self.spec, &self.trusted) {
            Ok((fetch, faults)) => {
                if fetch.url.port().is_none() && faults.is_empty() {
                    self.warnings.push(Warning::DefaultPort(fetch.url.clone()));
                }
                self.fetches.push(fetch);
                self.faults.extend(faults);
            }
            Err(fault) => self.faults.push(fault),
        }
    }

    fn nested_config(&self, source: &str, resource: &Value) -> Result<Value, Fault> {
        let contents = contents(source, resource).map_err(Fault::Contents)?;
        // Digits in the hash of a CA or a file can be upper case, and those of a config cannot.
        let hash = resource["verification"]["hash"].as_str().unwrap_or_default();
        if hash.contains(|digit: char| digit.is_ascii_uppercase()) {
            return Err(Fault::Contents(ContentsFault::Hash));
        }
        if contents.is_empty() {
            return Err(Fault::Empty);
        }
        let (found, config) = fields(&contents)?;
        let expected = self.spec;
        let is_2 = |spec| spec == SpecVersion::V2_2;
        // An Ignition that reads the outer config need not read a newer spec.
        if is_2(found) == is_2(expected) && found <= expected {
            Ok(config)
        } else {
            Err(Fault::OtherSpec { found, expected })
        }
    }
}

/// A source, shortened to fit into a line.
fn shortened(source: &str) -> String {
    const MAX_CHARACTERS: usize = 60;
    match source.char_indices().nth(MAX_CHARACTERS) {
        Some((end, _)) => format!("{}…", &source[..end]),
        None => source.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ignition::data_url;
    use serde_json::json;

    use super::*;

    #[test]
    fn configs_within_each_other_are_followed_so_far_and_no_further() {
        let nested = |depth: usize| {
            let mut config = json!({"ignition": {"version": "3.1.0"}});
            for _ in 0..depth {
                let source = data_url::encode(config.to_string().as_bytes());
                let config_of = json!({"merge": [{"source": source}]});
                config = json!({"ignition": {"version": "3.1.0", "config": config_of}});
            }
            IgnitionWalk::through(SpecVersion::V3_1, &config).faults
        };
        let is_too_deep =
            |faults: Vec<Fault>| faults.iter().any(|fault| matches!(fault, Fault::TooDeep));
        assert!(!is_too_deep(nested(4)));
        assert!(is_too_deep(nested(MAX_NESTED + 1)));
    }
}

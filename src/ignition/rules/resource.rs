//! What is fetched: sources, their headers, compression and hashes, and the proxies in between.
//!
//! Sources: the specs' sections `ignition`, `storage.files.contents` and "Supported Platforms".

use super::super::data_url;
use super::super::error::{At, Error};
use super::super::fields::Spec;
use super::super::spec3::{Ignition, Resource};
use super::super::url::Url;
use super::{Checked, all_unique, says};

/// The schemes of sources, and the specs that have them, first and last.
const SCHEMES: &[(&str, Spec, Spec)] = &[
    ("http", (2, 0), NEWEST),
    ("https", (2, 0), NEWEST),
    ("data", (2, 0), NEWEST),
    ("oem", (2, 0), (2, 2)),
    ("tftp", (2, 1), NEWEST),
    ("s3", (2, 1), NEWEST),
    ("gs", (3, 2), NEWEST),
    ("arn", (3, 4), NEWEST),
];
const NEWEST: Spec = (3, 6);

/// The hash functions: name, first spec, length of a sum in hexadecimal digits.
const HASHES: &[(&str, Spec, usize)] = &[("sha512", (2, 0), 128), ("sha256", (3, 1), 64)];

/// The section `ignition`.
pub(super) fn check_ignition(ignition: &Ignition, spec: Spec, at: &At<'_>) -> Checked {
    let config = at.field("config");
    check_required(&ignition.config.merge, spec, &config.field("merge"))?;
    check(&ignition.config.replace, spec, &config.field("replace"))?;
    let tls = at.field("security");
    let tls = tls.field("tls");
    let authorities = &ignition.security.tls.certificate_authorities;
    check_required(authorities, spec, &tls.field("certificateAuthorities"))?;
    let at = at.field("proxy");
    let proxy = &ignition.proxy;
    check_proxy(proxy.http_proxy.as_deref(), &at.field("httpProxy"))?;
    check_proxy(proxy.https_proxy.as_deref(), &at.field("httpsProxy"))?;
    all_unique(&proxy.no_proxy, &at.field("noProxy"), String::as_str)
}

fn check_proxy(proxy: Option<&str>, at: &At<'_>) -> Checked {
    let Some(proxy) = proxy else { return Ok(()) };
    let url = Url::parse(proxy).ok_or_else(|| at.invalid("is not a URL"))?;
    if url.is("http") || url.is("https") {
        Ok(())
    } else {
        Err(at.invalid("is not an http or https URL"))
    }
}

/// Resources that each need a source, no two of them the same.
fn check_required(resources: &[Resource], spec: Spec, at: &At<'_>) -> Checked {
    for (i, resource) in resources.iter().enumerate() {
        let at = at.item(i);
        if !says(resource.source.as_ref()) {
            return Err(at.field("source").invalid("is missing"));
        }
        check(resource, spec, &at)?;
    }
    all_unique(resources, at, |resource| &resource.source)
}

/// One resource; without a source it is an empty one.
pub(super) fn check(resource: &Resource, spec: Spec, at: &At<'_>) -> Checked {
    check_compression(resource.compression.as_deref(), at)?;
    let source = resource.source.as_deref().filter(|source| !source.is_empty());
    if let Some(hash) = &resource.verification.hash {
        let at = at.field("verification");
        let at = at.field("hash");
        if resource.source.is_none() {
            return Err(at.invalid("there is no source to verify"));
        }
        check_hash(hash, spec, &at)?;
    }
    if let Some(source) = source {
        check_url(source, spec, &at.field("source"))?;
    }
    check_headers(resource, source, &at.field("httpHeaders"))
}

fn check_headers(resource: &Resource, source: Option<&str>, at: &At<'_>) -> Checked {
    let headers = &resource.http_headers;
    for (i, header) in headers.iter().enumerate() {
        if header.name.is_empty() {
            return Err(at.item(i).field("name").invalid("is empty"));
        }
        if header.value.as_deref() == Some("") {
            return Err(at.item(i).field("value").invalid("is empty"));
        }
    }
    all_unique(headers, at, |header| &header.name)?;
    let takes_headers =
        source.and_then(Url::parse).is_some_and(|url| url.is("http") || url.is("https"));
    if headers.is_empty() || takes_headers {
        Ok(())
    } else {
        Err(at.invalid("only go with an http or https source"))
    }
}

pub(super) fn check_compression(compression: Option<&str>, at: &At<'_>) -> Checked {
    match compression {
        None | Some("" | "gzip") => Ok(()),
        Some(other) => Err(at.field("compression").invalid(format!("{other:?} is not gzip"))),
    }
}

/// `sha512-` or `sha256-` and as many characters as the sum has hexadecimal digits.
pub(super) fn check_hash(hash: &str, spec: Spec, at: &At<'_>) -> Checked {
    let Some((function, sum)) = hash.split_once('-') else {
        return Err(at.invalid("is not of the form FUNCTION-SUM"));
    };
    let Some(&(_, since, digits)) = HASHES.iter().find(|(name, ..)| *name == function) else {
        return Err(at.invalid(format!("{function:?} is not a known hash function")));
    };
    if spec < since {
        return Err(at.invalid(unknown_before(function, since)));
    }
    if sum.len() == digits {
        Ok(())
    } else {
        Err(at.invalid(format!("a {function} sum has {digits} digits, not {}", sum.len())))
    }
}

/// A source of a scheme that `spec` has.
pub(super) fn check_url(source: &str, spec: Spec, at: &At<'_>) -> Checked {
    if source.starts_with("data:") {
        // The most frequent and the longest, and its own grammar.
        return data_url::check(source).map_err(|reason| at.invalid(reason.to_string()));
    }
    let url = Url::parse(source).ok_or_else(|| at.invalid("is not a URL"))?;
    let Some(&(scheme, since, until)) = SCHEMES.iter().find(|(name, ..)| url.is(name)) else {
        return Err(at.invalid(format!("{:?} is not a scheme that Ignition fetches", url.scheme)));
    };
    if spec < since {
        return Err(at.invalid(unknown_before(&format!("the scheme {scheme}"), since)));
    }
    if spec > until {
        return Err(
            at.invalid(format!("the scheme {scheme} is gone since spec {}.{}", until.0, until.1))
        );
    }
    match scheme {
        "data" => Err(at.invalid(data_url::Malformed::Prefix.to_string())),
        "arn" => check_arn(url, at),
        "s3" => check_object_version(url, at),
        _ => Ok(()),
    }
}

/// `arn:PARTITION:s3:REGION:ACCOUNT:RESOURCE`, where the resource is `BUCKET/KEY` or `accesspoint/NAME/object/KEY`.
fn check_arn(url: Url<'_>, at: &At<'_>) -> Checked {
    let mut parts = url.body.splitn(5, ':');
    let is_s3 = parts.nth(1) == Some("s3");
    let slashes = url.body.matches('/').count();
    let enough = match parts.nth(2) {
        Some(resource) if resource.starts_with("accesspoint/") => slashes >= 2,
        Some(_) => slashes >= 1,
        None => false,
    };
    if is_s3 && enough && !url.body.starts_with('/') {
        check_object_version(url, at)
    } else {
        Err(at.invalid("is not the ARN of an object in S3"))
    }
}

fn check_object_version(url: Url<'_>, at: &At<'_>) -> Checked {
    if url.parameter("versionId").is_some_and(|version| version.is_empty()) {
        Err(at.invalid("versionId is empty"))
    } else {
        Ok(())
    }
}

/// The reason for refusing what came with a later spec.
pub(super) fn unknown_before(what: &str, since: Spec) -> String {
    format!("{what} needs spec {}.{}", since.0, since.1)
}

/// The same as an error.
pub(super) fn needs(at: &At<'_>, what: &str, since: Spec) -> Error {
    at.invalid(unknown_before(what, since))
}

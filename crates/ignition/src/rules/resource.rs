//! Resources: sources, their headers, compression and hashes, and proxies.
//!
//! Sources: the specs' sections `ignition`, `storage.files.contents` and "Supported Platforms".

use super::super::data_url;
use super::super::error::{Error, FieldPath};
use super::super::fields::Spec;
use super::super::spec3::{Ignition, Resource};
use super::super::url::Url;
use super::common::{Checked, all_unique, each, says};

/// Schemes of sources, with the first and last spec of each.
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

/// Hash functions: name, first spec, length of a sum in hexadecimal digits.
const HASHES: &[(&str, Spec, usize)] = &[("sha512", (2, 0), 128), ("sha256", (3, 1), 64)];

/// Checks the section `ignition`.
pub(super) fn check_ignition(ignition: &Ignition, spec: Spec, at: &FieldPath<'_>) -> Checked {
    check_required(&ignition.config.merge, spec, &at.field("config.merge"))?;
    check(&ignition.config.replace, spec, &at.field("config.replace"))?;
    let cas = &ignition.security.tls.certificate_authorities;
    check_required(cas, spec, &at.field("security.tls.certificateAuthorities"))?;
    let at = at.field("proxy");
    let proxy = &ignition.proxy;
    check_proxy(proxy.http_proxy.as_deref(), &at.field("httpProxy"))?;
    check_proxy(proxy.https_proxy.as_deref(), &at.field("httpsProxy"))?;
    all_unique(&proxy.no_proxy, &at.field("noProxy"), String::as_str)
}

fn check_proxy(proxy: Option<&str>, at: &FieldPath<'_>) -> Checked {
    let Some(proxy) = proxy else { return Ok(()) };
    let url = Url::parse(proxy).ok_or_else(|| at.invalid("is not a URL"))?;
    if url.is_http() { Ok(()) } else { Err(at.invalid("is not an http or https URL")) }
}

/// Checks resources that each need a source, all of them different.
fn check_required(resources: &[Resource], spec: Spec, at: &FieldPath<'_>) -> Checked {
    each(resources, at, |resource, at| {
        if !says(resource.source.as_ref()) {
            return Err(at.field("source").invalid("is missing"));
        }
        check(resource, spec, at)
    })?;
    all_unique(resources, at, |resource| &resource.source)
}

/// Checks one resource; without a source it is empty.
pub(super) fn check(resource: &Resource, spec: Spec, at: &FieldPath<'_>) -> Checked {
    check_compression(resource.compression.as_deref(), at)?;
    let source = resource.source.as_deref().filter(|source| !source.is_empty());
    if let Some(hash) = &resource.verification.hash {
        let at = at.field("verification.hash");
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

fn check_headers(resource: &Resource, source: Option<&str>, at: &FieldPath<'_>) -> Checked {
    let headers = &resource.http_headers;
    if headers.is_empty() {
        return Ok(());
    }
    each(headers, at, |header, at| {
        let is_empty = |field| Err(at.field(field).invalid("is empty"));
        match (&header.name[..], header.value.as_deref()) {
            ("", _) => is_empty("name"),
            (_, Some("")) => is_empty("value"),
            _ => Ok(()),
        }
    })?;
    all_unique(headers, at, |header| &header.name)?;
    if source.and_then(Url::parse).is_some_and(Url::is_http) {
        Ok(())
    } else {
        Err(at.invalid("need an http or https source"))
    }
}

pub(super) fn check_compression(compression: Option<&str>, at: &FieldPath<'_>) -> Checked {
    match compression {
        None | Some("" | "gzip") => Ok(()),
        Some(other) => Err(at.field("compression").invalid(format!("{other:?} is not gzip"))),
    }
}

/// Checks for `sha512-` or `sha256-`, followed by as many hexadecimal digits as the sum has.
pub(super) fn check_hash(hash: &str, spec: Spec, at: &FieldPath<'_>) -> Checked {
    let Some((function, sum)) = hash.split_once('-') else {
        return Err(at.invalid("is not of the form FUNCTION-SUM"));
    };
    let Some(&(_, since, digits)) = HASHES.iter().find(|(name, ..)| *name == function) else {
        return Err(at.invalid(format!("{function:?} is not a known hash function")));
    };
    if spec < since {
        return Err(needs(at, function, since));
    }
    if sum.len() == digits {
        Ok(())
    } else {
        Err(at.invalid(format!("a {function} sum has {digits} digits, not {}", sum.len())))
    }
}

/// Checks a source, whose scheme `spec` must have.
pub(super) fn check_url(source: &str, spec: Spec, at: &FieldPath<'_>) -> Checked {
    if source.starts_with("data:") {
        // Data URLs have a separate grammar. They come first because they are frequent and long.
        return data_url::check(source).map_err(|reason| at.invalid(reason.to_string()));
    }
    let url = Url::parse(source).ok_or_else(|| at.invalid("is not a URL"))?;
    let Some(&(scheme, since, until)) = SCHEMES.iter().find(|(name, ..)| url.is(name)) else {
        return Err(at.invalid(format!("{:?} is not a scheme that Ignition fetches", url.scheme)));
    };
    if spec < since {
        return Err(needs(at, &format!("the scheme {scheme}"), since));
    }
    if spec > until {
        return Err(
            at.invalid(format!("the scheme {scheme} was removed in spec {}.{}", until.0, until.1))
        );
    }
    match scheme {
        "data" => Err(at.invalid(data_url::Malformed::Prefix.to_string())),
        "arn" => check_arn(url, at),
        "s3" => check_object_version(url, at),
        _ => Ok(()),
    }
}

/// Checks for `arn:PARTITION:s3:REGION:ACCOUNT:RESOURCE`, where the resource is `BUCKET/KEY` or
/// `accesspoint/NAME/object/KEY`.
fn check_arn(url: Url<'_>, at: &FieldPath<'_>) -> Checked {
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

fn check_object_version(url: Url<'_>, at: &FieldPath<'_>) -> Checked {
    if url.parameter("versionId").is_some_and(|version| version.is_empty()) {
        Err(at.invalid("versionId is empty"))
    } else {
        Ok(())
    }
}

/// Error that refuses a feature of a later spec.
pub(super) fn needs(at: &FieldPath<'_>, what: &str, since: Spec) -> Error {
    at.invalid(format!("{what} needs spec {}.{}", since.0, since.1))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::tests::verdict;

    fn contents(minor: u8, contents: &Value) -> String {
        let verdict =
            verdict(minor, "storage", &json!({"files": [{"path": "/a", "contents": contents}]}));
        verdict.trim_start_matches("storage.files[0].contents.").to_owned()
    }

    #[test]
    fn sources_have_a_scheme_of_their_spec() {
        for (minor, source, reason) in [
            (0, "", "valid"),
            (0, "HTTP://h/p?q#f", "valid"),
            (0, "tftp://h/p", "valid"),
            (0, "s3://b/k?versionId=1", "valid"),
            (0, "data:,x", "valid"),
            (2, "gs://b/k", "valid"),
            (4, "arn:aws:s3:::b/k", "valid"),
            (4, "arn:aws:s3:r:1:accesspoint/n/object/k", "valid"),
            (1, "gs://b/k", "source: the scheme gs needs spec 3.2"),
            (3, "arn:aws:s3:::b/k", "source: the scheme arn needs spec 3.4"),
            (0, "oem:///x", "source: the scheme oem was removed in spec 2.2"),
            (6, "ftp://h", "source: \"ftp\" is not a scheme that Ignition fetches"),
            (6, "/path", "source: \"\" is not a scheme that Ignition fetches"),
            (6, "http://a b", "source: is not a URL"),
            (6, "s3://b/k?versionId=", "source: versionId is empty"),
            (6, "arn:aws:s3:::b/k?versionId=", "source: versionId is empty"),
            (6, "arn:aws:s3:::b", "source: is not the ARN of an object in S3"),
            (6, "arn:aws:ec2:::b/k", "source: is not the ARN of an object in S3"),
            (6, "arn:aws:s3:r:1:accesspoint/n", "source: is not the ARN of an object in S3"),
            (6, "data:,%", "source: has an incomplete percent-encoding"),
            (6, "DATA:,x", "source: does not start with data:"),
        ] {
            assert_eq!(contents(minor, &json!({"source": source})), reason, "{source}");
        }
    }

    #[test]
    fn hashes_have_a_function_of_their_spec_and_its_length() {
        let sum = |function: &str, digits| format!("{function}-{}", "0".repeat(digits));
        for (minor, hash, reason) in [
            (0, sum("sha512", 128), "valid"),
            (1, sum("sha256", 64), "valid"),
            (0, sum("sha256", 64), "verification.hash: sha256 needs spec 3.1"),
            (6, sum("sha256", 63), "verification.hash: a sha256 sum has 64 digits, not 63"),
            (6, sum("sha1", 40), "verification.hash: \"sha1\" is not a known hash function"),
            (6, "sha512".to_owned(), "verification.hash: is not of the form FUNCTION-SUM"),
        ] {
            let resource = json!({"source": "http://h", "verification": {"hash": hash}});
            assert_eq!(contents(minor, &resource), reason, "{hash}");
        }
        let resource = json!({"verification": {"hash": sum("sha512", 128)}});
        assert_eq!(contents(6, &resource), "verification.hash: there is no source to verify");
    }

    #[test]
    fn headers_have_a_name_and_go_to_http_servers() {
        let headers = |source: &str, headers: Value| {
            contents(6, &json!({"source": source, "httpHeaders": headers}))
        };
        let one = json!([{"name": "a", "value": "b"}]);
        assert_eq!(headers("https://h", one.clone()), "valid");
        assert_eq!(headers("https://h", json!([{"name": "a"}])), "valid");
        assert_eq!(headers("data:,", one), "httpHeaders: need an http or https source");
        assert_eq!(headers("https://h", json!([{"name": ""}])), "httpHeaders[0].name: is empty");
        assert_eq!(
            headers("https://h", json!([{"name": "a", "value": ""}])),
            "httpHeaders[0].value: is empty"
        );
        assert_eq!(
            headers("https://h", json!([{"name": "a"}, {"name": "a"}])),
            "httpHeaders[1]: appears twice"
        );
    }

    #[test]
    fn contents_are_compressed_with_gzip_or_not_at_all() {
        assert_eq!(contents(0, &json!({"compression": "gzip"})), "valid");
        assert_eq!(contents(0, &json!({"compression": ""})), "valid");
        assert_eq!(contents(6, &json!({"compression": "xz"})), "compression: \"xz\" is not gzip");
    }

    #[test]
    fn merged_configs_and_cas_need_a_source_and_proxies_speak_http() {
        for (ignition, reason) in [
            (json!({"config": {"replace": {}}}), "valid"),
            (json!({"config": {"merge": [{}]}}), "ignition.config.merge[0].source: is missing"),
            (
                json!({"security": {"tls": {"certificateAuthorities": [{"source": ""}]}}}),
                "ignition.security.tls.certificateAuthorities[0].source: is missing",
            ),
            (json!({"proxy": {"httpProxy": "https://p", "httpsProxy": "http://p"}}), "valid"),
            (
                json!({"proxy": {"httpProxy": ""}}),
                "ignition.proxy.httpProxy: is not an http or https URL",
            ),
            (
                json!({"proxy": {"httpsProxy": "http://a b"}}),
                "ignition.proxy.httpsProxy: is not a URL",
            ),
        ] {
            assert_eq!(verdict(6, "ignition", &ignition), reason);
        }
    }
}

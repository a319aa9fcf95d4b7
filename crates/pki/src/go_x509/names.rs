//! Names as Go takes them in certificates: domains, mailboxes, URIs.

use core::net::Ipv6Addr;

/// Returns `true` if Go takes a domain (`domainNameValid`). A constraint may begin with a dot.
pub(super) fn is_domain(domain: &str, is_constraint: bool) -> bool {
    if domain.is_empty() {
        return true;
    }
    let domain = domain.strip_prefix('.').filter(|_| is_constraint).unwrap_or(domain);
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|c| (33..=126).contains(&c));
    domain.split('.').all(is_label)
}

/// Returns `true` if Go takes a mailbox (`parseRFC2821Mailbox`): a local part and a domain.
pub(super) fn is_mailbox(text: &str) -> bool {
    let rest = match text.strip_prefix('"') {
        Some(quoted) => after_quoted(quoted.as_bytes()),
        None => after_atoms(text.as_bytes()),
    };
    let domain = rest.and_then(|rest| rest.strip_prefix(b"@"));
    domain.and_then(|domain| str::from_utf8(domain).ok()).is_some_and(|it| is_domain(it, false))
}

/// The text after a quoted local part (RFC 5321 section 4.1.2).
fn after_quoted(mut text: &[u8]) -> Option<&[u8]> {
    loop {
        let (&character, rest) = text.split_first()?;
        text = rest;
        match character {
            b'"' => return Some(text),
            b'\\' => match text.split_first()? {
                (1..=9 | 11 | 12 | 14..=127, rest) => text = rest,
                _ => return None,
            },
            1..=8 | 11 | 12 | 14..=127 => {}
            _ => return None,
        }
    }
}

/// The text after a local part of atoms separated by dots (RFC 5321 section 4.1.2); a backslash escapes a character.
fn after_atoms(mut text: &[u8]) -> Option<&[u8]> {
    let mut local = Vec::new();
    while let Some((&character, rest)) = text.split_first() {
        if character == b'\\' {
            let (&escaped, rest) = rest.split_first()?;
            local.push(escaped);
            text = rest;
        } else if character.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~.".contains(&character)
        {
            local.push(character);
            text = rest;
        } else {
            break;
        }
    }
    let is_dotted_well = !local.is_empty() && local.split(|c| *c == b'.').all(|it| !it.is_empty());
    is_dotted_well.then_some(text)
}

/// Returns `true` if Go accepts a URI of ASCII (`net/url.Parse`), and its host. Zones of IPv6 addresses are refused.
pub(super) fn is_uri(uri: &str) -> bool {
    if uri.bytes().any(|c| c < b' ' || c == 0x7f) {
        return false;
    }
    let (uri, fragment) = uri.split_once('#').unwrap_or((uri, ""));
    is_escaped_well(fragment) && (uri == "*" || is_uri_without_fragment(uri))
}

fn is_uri_without_fragment(uri: &str) -> bool {
    let Some((scheme, rest)) = scheme(uri) else { return false };
    let path = rest.split_once('?').map_or(rest, |(path, _)| path);
    if !path.starts_with('/') {
        // Without a scheme, a colon in the first segment would end one (RFC 3986 section 3.3).
        let segment = path.split('/').next().unwrap_or_default();
        return !scheme.is_empty() || !segment.contains(':') && is_escaped_well(path);
    }
    let has_authority = !scheme.is_empty() || !path.starts_with("///");
    let Some(authority) = path.strip_prefix("//").filter(|_| has_authority) else {
        return is_escaped_well(path);
    };
    let end = authority.find('/').unwrap_or(authority.len());
    let (authority, path) = authority.split_at(end);
    is_escaped_well(path) && is_authority(scheme, authority)
}

/// The scheme, empty if there is none, and the rest; `None` if a colon comes first (`getScheme`).
fn scheme(uri: &str) -> Option<(&str, &str)> {
    let is_part = |c: u8| c.is_ascii_alphanumeric() || b"+-.".contains(&c);
    let end = uri.bytes().position(|c| !is_part(c)).unwrap_or(uri.len());
    if !uri[end..].starts_with(':') {
        return Some(("", uri));
    }
    match uri.bytes().next() {
        Some(b':') => None,
        Some(first) if first.is_ascii_alphabetic() => Some((&uri[..end], &uri[end + 1..])),
        _ => Some(("", uri)),
    }
}

/// Checks user information and host (`parseAuthority`, `validUserinfo`).
fn is_authority(scheme: &str, authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let is_user = |c: u8| c.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&c);
    // A colon separates name and password, so that no escaped octet spans both.
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    user.bytes().all(is_user)
        && is_escaped_well(name)
        && is_escaped_well(password)
        && is_uri_host(scheme, host)
}

/// Checks the host (`parseHost`), and that it is a domain.
fn is_uri_host(scheme: &str, host: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|c| c.is_ascii_digit());
    if let Some(literal) = host.strip_prefix('[') {
        let Some((address, after)) = literal.rsplit_once(']') else { return false };
        let is_after = after.is_empty() || after.strip_prefix(':').is_some_and(is_port);
        return is_after && address.parse::<Ipv6Addr>().is_ok();
    }
    let is_web = ["http", "https"].iter().any(|it| scheme.eq_ignore_ascii_case(it));
    let split = if is_web { host.split_once(':') } else { host.rsplit_once(':') };
    if split.is_some_and(|(_, port)| !is_port(port)) || host.contains('[') {
        return false;
    }
    // In a host, Go accepts escapes only of the percent sign and of octets beyond ASCII, which no domain has.
    let host = host.replace("%25", "!");
    let is_allowed = |c: u8| c.is_ascii_alphanumeric() || b"!$&'()*+,;=:]<>\"-_.~".contains(&c);
    host.bytes().all(is_allowed) && is_domain(&host, false)
}

/// Returns `true` if two hexadecimal digits follow each percent sign (`unescape`).
fn is_escaped_well(text: &str) -> bool {
    let mut parts = text.as_bytes().split(|c| *c == b'%');
    parts.next();
    // The digits of an escaped octet contain no percent sign, so that the split keeps them whole.
    parts.all(|part| part.len() >= 2 && part[..2].iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Go itself judges them in `tests/it/go_verifier.rs`.
    #[test]
    fn uris_are_taken_as_go_takes_them() {
        let taken = [
            "",
            "*",
            "a",
            "a/b:c",
            "?a:b",
            "mailto:%zz",
            "http:",
            "http://",
            "https://example.com:",
            "https://example.com:8443/a%20b?%zz#%20",
            "https://a:b@example.com",
            "//example.com",
            "https://[2001:db8::1]:80/",
            "spiffe://example.com/workload",
            "///a:b",
            "x://a:1:2",
            "https://exa%25mple.com",
            "urn:uuid:1",
            "1a/b",
        ];
        for uri in taken {
            assert!(is_uri(uri), "{uri}");
        }
        let refused = [
            "::::",
            ":",
            "a\nb",
            "a:b\u{7f}",
            "1a:b",
            "https://example..com",
            "https://example.com.",
            "https://.example.com",
            "https://example.com:a",
            "http://a:1:2",
            "https://[::1",
            "https://a[::1]",
            "https://[1.2.3.4]",
            "https://exa%6dple.com",
            "https://exa%80mple.com",
            "https://a b",
            "https://a/%",
            "https://a/%2",
            "https://a/%zz",
            "a#%",
            "https://a^@b",
            "https://%4@b",
            "https://[example.com]",
            "https://a{b",
        ];
        for uri in refused {
            assert!(!is_uri(uri), "{uri}");
        }
    }

    #[test]
    fn domains_and_mailboxes_are_taken_as_go_takes_them() {
        for domain in ["", "a", "a.b", "under_score", ".a"] {
            assert!(is_domain(domain, true), "{domain}");
        }
        for domain in [".", "a.", "a..b", "..a", "a b", "é"] {
            assert!(!is_domain(domain, true), "{domain}");
        }
        assert!(!is_domain(".a", false));
        for mailbox in ["a@b", "a.b@c.d", "\"a b\"@c", "a\\ b@c", "\"a\\\"b\"@c", "a@"] {
            assert!(is_mailbox(mailbox), "{mailbox}");
        }
        for mailbox in ["", "@b", ".a@b", "a.@b", "a..b@c", "a b@c", "\"a@b", "a", "a@b..c", "a\\"]
        {
            assert!(!is_mailbox(mailbox), "{mailbox}");
        }
    }
}

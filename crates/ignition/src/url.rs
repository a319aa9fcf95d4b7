//! Splits URLs for Ignition's rules.
//!
//! Ignition parses every source with Go's `net/url`, so a URL is any text that this package accepts (RFC 3986 with its
//! leniencies), not the WHATWG grammar of the crate `url`, which would refuse some sources that machines boot with
//! today and repair others.

/// A valid URL, split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Url<'a> {
    /// Scheme as written; compare without regard to case. Empty in a relative reference.
    pub(super) scheme: &'a str,
    /// The part between the scheme and the query.
    pub(super) body: &'a str,
    pub(super) query: &'a str,
}

impl<'a> Url<'a> {
    /// Splits a URL, `None` if it is not one.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.bytes().any(|byte| byte.is_ascii_control()) || !has_whole_escapes(fragment) {
            return None;
        }
        let (scheme, rest) = split_scheme(text)?;
        let (body, query) = rest.split_once('?').unwrap_or((rest, ""));
        let url = Self { scheme, body, query };
        let path = if let Some(absolute) = body.strip_prefix('/') {
            // Without a scheme, three slashes start a path, not an empty host.
            match absolute.strip_prefix('/') {
                Some(hierarchy) if !(scheme.is_empty() && hierarchy.starts_with('/')) => {
                    let end = hierarchy.find('/').unwrap_or(hierarchy.len());
                    let (authority, path) = hierarchy.split_at(end);
                    if !is_authority(authority) {
                        return None;
                    }
                    path
                }
                _ => body,
            }
        } else if scheme.is_empty() {
            if body.split('/').next().is_some_and(|segment| segment.contains(':')) {
                return None;
            }
            body
        } else {
            // An opaque URL, such as data:,x or arn:aws:s3:::x, is accepted unparsed.
            return Some(url);
        };
        has_whole_escapes(path).then_some(url)
    }

    /// Returns `true` if the scheme is `name`.
    pub(super) fn is(&self, name: &str) -> bool {
        self.scheme.eq_ignore_ascii_case(name)
    }

    /// Returns `true` if the scheme is `http` or `https`.
    pub(super) fn is_http(self) -> bool {
        self.is("http") || self.is("https")
    }

    /// The first value of a query parameter.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = form_urlencoded::parse(self.query.as_bytes());
        pairs.find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
    }
}

/// Splits off `scheme:`, if the text begins with one.
fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let end = text.bytes().position(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(&b)));
    match (end, text.bytes().next()) {
        (Some(0), Some(b':')) => None,
        (Some(end), Some(b'a'..=b'z' | b'A'..=b'Z')) if text.as_bytes()[end] == b':' => {
            Some((&text[..end], &text[end + 1..]))
        }
        _ => Some(("", text)),
    }
}

/// Returns `true` if `[user@]host[:port]` is sound.
fn is_authority(authority: &str) -> bool {
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let user_character = |b: u8| b.is_ascii_alphanumeric() || b"-._:~!$&'()*+,;=%@".contains(&b);
    user.bytes().all(user_character) && has_whole_escapes(user) && is_host(host)
}

/// Returns `true` if `host[:port]` is sound.
fn is_host(host: &str) -> bool {
    if let Some(literal) = host.strip_prefix('[') {
        let Some((address, port)) = literal.rsplit_once(']') else { return false };
        let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
        return is_port(port)
            && has_whole_escapes(zone)
            && address.parse::<core::net::Ipv6Addr>().is_ok();
    }
    let (name, port) = host.rfind(':').map_or((host, ""), |colon| host.split_at(colon));
    let name_character = |b: u8| {
        b.is_ascii_alphanumeric() || !b.is_ascii() || b"-_.~!$&'()*+,;=:<>\"[]%".contains(&b)
    };
    // Only bytes beyond ASCII can be percent-encoded in a host name.
    let encodes_ascii = |name: &str| {
        name.split('%').skip(1).any(|code| code.starts_with(|c| ('0'..='7').contains(&c)))
    };
    is_port(port)
        && name.bytes().all(name_character)
        && has_whole_escapes(name)
        && !encodes_ascii(name)
}

fn is_port(port: &str) -> bool {
    port.is_empty() || port.strip_prefix(':').is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns `true` if every percent sign is followed by two hexadecimal digits.
pub(super) fn has_whole_escapes(text: &str) -> bool {
    let two_digits =
        |code: &str| code.len() >= 2 && code.bytes().take(2).all(|b| b.is_ascii_hexdigit());
    text.split('%').skip(1).all(two_digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sound_urls_come_apart() {
        for (text, scheme, query) in [
            ("http://example.com/a?b=c#d", "http", "b=c"),
            ("HTTPS://user:pw@[::1]:80/%20", "HTTPS", ""),
            ("s3://bucket/key?versionId=1", "s3", "versionId=1"),
            ("data:,a?b", "data", "b"),
            ("arn:aws:s3:::bucket/key", "arn", ""),
            ("http:relative", "http", ""),
            ("http://", "http", ""),
            ("http://h:/", "http", ""),
            ("http://h%C3%A9/", "http", ""),
            ("/only/path", "", ""),
            ("only/path", "", ""),
            ("///path", "", ""),
            ("1a/b", "", ""),
            ("", "", ""),
        ] {
            let url = Url::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((url.scheme, url.query), (scheme, query), "{text}");
        }
    }

    #[test]
    fn unsound_urls_are_refused() {
        for text in [
            ":a",
            "1a:b",
            "http://a b/",
            "http://h:port/",
            "http://[::1",
            "http://[x]/",
            "http://[::1]x/",
            "http://a/%zz",
            "http://a/%2",
            "http://a/#%",
            "http://a/\n",
            "http://u ser@h/",
            "http://h%41/",
        ] {
            assert_eq!(Url::parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_first_parameter_of_a_name_counts() {
        let url = Url::parse("s3://b/k?a=1&version%49d=&versionId=2").unwrap();
        assert_eq!(url.parameter("versionId").as_deref(), Some(""));
        assert_eq!(url.parameter("b"), None);
    }
}

//! What a pointer config fetches, and with which headers.

use serde_json::{Value, json};

use super::{Cases, merge, sha512};

impl Cases<'_> {
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub(super) fn urls(&mut self) {
        let url = self.site.url();
        let (_, rest) = url.split_once("://").expect("a URL");
        let (server, _) = rest.split_once('/').expect("a path");
        let (_, port) = server.rsplit_once(':').expect("a port");
        let plain = self.site.server.insecure().port();
        for (name, source) in [
            ("another pool", url.replace("/worker", "/master")),
            ("an unknown pool", url.replace("/worker", "/nobody")),
            ("a pool in upper case", url.replace("/worker", "/Worker")),
            ("a pool, percent-encoded", url.replace("/worker", "/%77orker")),
            ("a slash", format!("{url}/")),
            ("two slashes", format!("{url}//")),
            ("two slashes before", url.replace("/config/", "/config//")),
            ("a slash, percent-encoded", format!("{url}%2F")),
            ("a path further", format!("{url}/x")),
            ("the path twice", url.replace("/config/", "/config//config/")),
            ("no pool", url.replace("/worker", "/")),
            ("no slash", url.replace("/config/worker", "/config")),
            ("no path", url.replace("/config/worker", "")),
            ("another path", url.replace("/config/worker", "/healthz")),
            ("a path in upper case", url.replace("/config/", "/CONFIG/")),
            ("dots", url.replace("/config/", "/x/../config/")),
            ("dots behind", url.replace("/config/", "/config/./")),
            ("a query", format!("{url}?a=b")),
            ("a question mark", format!("{url}?")),
            ("a query with spaces", format!("{url}?a b")),
            ("a query of others", format!("{url}?\u{e9}")),
            ("a fragment", format!("{url}#a")),
            ("a broken fragment", format!("{url}#%")),
            ("a broken escape", format!("{url}%zz")),
            ("a space behind", format!("{url} ")),
            ("a space before", format!(" {url}")),
            ("a line feed behind", format!("{url}\n")),
            ("a tab in it", url.replace("/worker", "/wor\tker")),
            ("a backslash", url.replace("/config/", "\\config\\")),
            ("a quote", format!("{url}\"")),
            ("a letter of others", format!("{url}\u{e9}")),
            ("a scheme in upper case", url.replace("https", "HTTPS")),
            ("no scheme", rest.to_owned()),
            ("slashes alone", format!("//{rest}")),
            ("one slash", url.replace("://", ":/")),
            ("ftp", url.replace("https", "ftp")),
            ("httpss", url.replace("https", "httpss")),
            ("a host in upper case", url.replace("localhost", "LOCALHOST")),
            ("a host that is not named", url.replace("localhost", "127.0.0.9")),
            ("an address of IPv4 in IPv6", url.replace("localhost", "[::ffff:127.0.0.1]")),
            ("no host", format!("https://:{port}/config/worker")),
            ("a host with a space", url.replace("localhost", "local host")),
            ("a host that is encoded", url.replace("localhost", "%6cocalhost")),
            ("a user", url.replace("://", "://user@")),
            ("a user and a password", url.replace("://", "://user:pass%20word@")),
            ("no user", url.replace("://", "://@")),
            ("port 0", url.replace(port, "0")),
            ("port 70000", url.replace(port, "70000")),
            ("a long port", url.replace(port, "99999999999999999999")),
            ("port 00", url.replace(port, &format!("00{port}"))),
            ("a port that is no number", url.replace(port, "https")),
            ("port -1", url.replace(port, "-1")),
            ("a plus before the port", url.replace(port, &format!("+{port}"))),
            ("two ports", url.replace(port, &format!("{port}:{port}"))),
            ("brackets", url.replace("localhost", "[localhost]")),
            ("half a bracket", url.replace("localhost", "[::1")),
        ] {
            self.with(format!("URL: {name}"), |config| merge(config)[0]["source"] = source.into());
        }
        let source = format!("http://localhost:{plain}/config/worker");
        self.with("without TLS", |config| merge(config)[0]["source"] = source.into());
    }

    pub(super) fn resources(&mut self) {
        let url = self.site.url();
        let body = self.site.served();
        self.resource(
            "the right hash of the pool's config",
            json!({"verification": {"hash": sha512(&body)}}),
        );
        self.resource(
            "a wrong hash of the pool's config",
            json!({"verification": {"hash": sha512(b"x")}}),
        );
        self.resource("no hash of the pool's config", json!({"verification": {"hash": null}}));
        self.resource("a pool's config that is to be packed", json!({"compression": "gzip"}));
        self.resource(
            "a pool's config that is to be packed by others",
            json!({"compression": "zstd"}),
        );
        self.with("nothing to merge", |config| *merge(config) = json!([]));
        self.with("merge is null", |config| *merge(config) = Value::Null);
        self.with("merge is an object", |config| *merge(config) = json!({"source": url}));
        self.with("merge is text", |config| *merge(config) = json!([url]));
        self.with("merge of null", |config| *merge(config) = json!([null]));
        self.with("merge without a source", |config| *merge(config) = json!([{}]));
        self.with("merge with an empty source", |config| *merge(config) = json!([{"source": ""}]));
        self.with("merge of the same twice", |config| {
            *merge(config) = json!([{"source": url}, {"source": url}]);
        });
        let master = url.replace("/worker", "/master");
        let nobody = url.replace("/worker", "/nobody");
        self.with("merge of two pools", |config| {
            *merge(config) = json!([{"source": url}, {"source": master}]);
        });
        self.with("merge of one that is unknown", |config| {
            *merge(config) = json!([{"source": url}, {"source": nobody}]);
        });
        let other_path = url.replace("/config/worker", "/x");
        self.with("merge of one that is not served", |config| {
            *merge(config) = json!([{"source": url}, {"source": other_path}]);
        });
        for (name, replace) in [
            ("the pool", json!({"source": url})),
            ("an unknown pool", json!({"source": nobody})),
            ("an empty source", json!({"source": ""})),
            ("no source", json!({})),
            ("null", Value::Null),
            ("a source that is null", json!({"source": null})),
            ("a hash without a source", json!({"verification": {"hash": sha512(b"x")}})),
            ("a list", json!([{"source": url}])),
            ("a source of spaces", json!({"source": " "})),
            ("compression alone", json!({"compression": "gzip"})),
        ] {
            self.with(format!("replace: {name}"), |config| {
                config["ignition"]["config"]["replace"] = replace.clone();
            });
            self.with(format!("replace alone: {name}"), |config| {
                config["ignition"]["config"] = json!({"replace": replace});
            });
        }
    }

    pub(super) fn headers(&mut self) {
        let one = |name: &str, value: &str| json!([{"name": name, "value": value}]);
        let many = |count: usize| -> Value {
            (0..count).map(|it| json!({"name": format!("X-{it}"), "value": "y"})).collect()
        };
        let kind = "application/vnd.coreos.ignition+json";
        let accept = |version: &str| one("Accept", &format!("{kind};version={version}"));
        for (name, headers) in [
            ("one", one("X-A", "b")),
            ("none", json!([])),
            ("null", Value::Null),
            ("an object", json!({"X-A": "b"})),
            ("no value", json!([{"name": "X-A"}])),
            ("a value that is null", json!([{"name": "X-A", "value": null}])),
            ("an empty value", one("X-A", "")),
            ("a value of spaces", one("X-A", "  ")),
            ("a value that is a number", json!([{"name": "X-A", "value": 1}])),
            ("a value with a line feed", one("X-A", "b\nc")),
            ("a value with CR LF", one("X-A", "b\r\nX-B: c")),
            ("a value with a NUL", one("X-A", "b\0")),
            ("a value with a tab", one("X-A", "b\tc")),
            ("a value with DEL", one("X-A", "b\u{7f}")),
            ("a value of other letters", one("X-A", "\u{e9}")),
            ("spaces around a value", one("X-A", " b ")),
            ("a line feed behind a value", one("X-A", "b\n")),
            ("no name", json!([{"value": "b"}])),
            ("an empty name", one("", "b")),
            ("a name with a space", one("X A", "b")),
            ("a name with a colon", one("X-A:", "b")),
            ("a name with other letters", one("\u{e9}", "b")),
            ("a name in brackets", one("(a)", "b")),
            ("a name with a line feed", one("X-A\n", "b")),
            (
                "the same name twice",
                json!([{"name": "a", "value": "b"}, {"name": "a", "value": "c"}]),
            ),
            (
                "the same name in two cases",
                json!([{"name": "a", "value": "b"}, {"name": "A", "value": "c"}]),
            ),
            (
                "the second of two without a value",
                json!([{"name": "a", "value": "b"}, {"name": "b"}]),
            ),
            ("70,000 bytes", one("X-A", &"b".repeat(70_000))),
            ("10,000 bytes", one("X-A", &"b".repeat(10_000))),
            ("90 of them", many(90)),
            ("200 of them", many(200)),
            ("Accept for everything", one("Accept", "*/*")),
            ("Accept for JSON", one("accept", "application/json")),
            ("Accept for 3.1", accept("3.1.0")),
            ("Accept for 3.0", accept("3.0.0")),
            ("Accept for 2.2", accept("2.2.0")),
            ("Accept for 1.0", accept("1.0.0")),
            ("Accept for no version", accept("x")),
            ("Host", one("Host", "elsewhere.example.com")),
            ("Content-Length", one("Content-Length", "5")),
            ("Transfer-Encoding", one("Transfer-Encoding", "chunked")),
            ("Connection", one("Connection", "close")),
            ("Expect", one("Expect", "100-continue")),
            (
                "Upgrade",
                json!([{"name": "Upgrade", "value": "h2c"}, {"name": "Connection", "value": "Upgrade"}]),
            ),
            ("Range", one("Range", "bytes=0-9")),
            ("If-None-Match", one("If-None-Match", "*")),
            ("Accept-Encoding", one("Accept-Encoding", "gzip")),
            ("User-Agent", one("User-Agent", "curl/8")),
            ("Authorization", one("Authorization", "Bearer x")),
        ] {
            self.resource(format!("headers: {name}"), json!({"httpHeaders": headers}));
        }
    }
}

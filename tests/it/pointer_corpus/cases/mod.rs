//! Cases by hand: each is one thing that an administrator does, or that a tool does to them.

mod cas;
mod fetches;
mod merged;

use std::io::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256, Sha512};

use super::{Case, PointerServer};

/// All of them.
pub(super) fn all(site: &PointerServer) -> Vec<Case> {
    let mut cases = Cases { site, cases: Vec::new() };
    cases.whole_files();
    cases.specs();
    cases.cas();
    cases.ca_entries();
    cases.urls();
    cases.resources();
    cases.headers();
    cases.timeouts();
    cases.data_configs();
    cases.unread_fields();
    cases.other_sections();
    cases.cases
}

struct Cases<'a> {
    site: &'a PointerServer,
    cases: Vec<Case>,
}

fn data(contents: &[u8]) -> String {
    format!("data:;base64,{}", BASE64.encode(contents))
}

fn gzip(contents: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(contents).expect("memory");
    encoder.finish().expect("memory")
}

fn sha512(contents: &[u8]) -> String {
    format!("sha512-{}", data_encoding::HEXLOWER.encode(&Sha512::digest(contents)))
}

fn sha256(contents: &[u8]) -> String {
    format!("sha256-{}", data_encoding::HEXLOWER.encode(&Sha256::digest(contents)))
}

fn merge(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["config"]["merge"]
}

fn entry(config: &mut Value) -> &mut Value {
    &mut config["ignition"]["security"]["tls"]["certificateAuthorities"][0]
}

impl Cases<'_> {
    fn text(&mut self, name: impl Into<String>, text: impl Into<Vec<u8>>) {
        self.cases.push(Case { name: name.into(), text: text.into() });
    }

    fn with(&mut self, name: impl Into<String>, change: impl FnOnce(&mut Value)) {
        let mut config = self.site.config.clone();
        change(&mut config);
        self.text(name, config.to_string());
    }

    fn resource(&mut self, name: impl Into<String>, more: impl Into<Value>) {
        let more: Value = more.into();
        self.with(name, |config| {
            let resource = merge(config)[0].as_object_mut().expect("an object");
            resource.extend(more.as_object().expect("an object").clone());
        });
    }

    fn whole_files(&mut self) {
        let own = self.site.config.to_string();
        self.text("as it is made", own.clone());
        for (name, text) in [
            ("an empty file", String::new()),
            ("white space", " \n\t".to_owned()),
            ("a script", "#!/bin/sh\necho\n".to_owned()),
            ("cloud-config", "#cloud-config\n".to_owned()),
            ("YAML", "variant: fcos\nversion: 1.4.0\n".to_owned()),
            ("null", "null".to_owned()),
            ("an empty object", "{}".to_owned()),
            ("a list", format!("[{own}]")),
            ("base64", BASE64.encode(&own)),
            ("cut short", own[..own.len() - 1].to_owned()),
            ("twice", format!("{own}{own}")),
            ("a brace behind it", format!("{own}}}")),
            ("a comma before the end", format!("{},}}", &own[..own.len() - 1])),
            ("a comment", format!("// mine\n{own}")),
            ("a BOM", format!("\u{feff}{own}")),
            ("line feeds around it", format!("\n\n {own} \r\n")),
            ("a NUL behind it", format!("{own}\0")),
            ("CR LF", self.site.config.to_string().replace(',', ",\r\n")),
            ("single quotes", own.replace('"', "'")),
        ] {
            self.text(name, text);
        }
        self.butane();
        self.text("compressed", gzip(own.as_bytes()));
        let utf_16: Vec<u8> = own.encode_utf16().flat_map(u16::to_le_bytes).collect();
        self.text("UTF-16", utf_16);
    }

    /// The same pointer config as people write it.
    fn butane(&mut self) {
        let ca = entry(&mut self.site.config.clone())["source"].clone();
        let ignition = json!({
            "config": {"merge": [{"source": self.site.url()}]},
            "security": {"tls": {"certificate_authorities": [{"source": ca}]}},
        });
        let text = format!("variant: fcos\nversion: 1.4.0\nignition: {ignition}\n");
        let in_json = json!({"variant": "fcos", "version": "1.4.0", "ignition": ignition});
        self.text("Butane: after a comment", format!("# The pointer config\n{text}"));
        self.text("Butane: in JSON", in_json.to_string());
        self.with("Butane: in a data URL", |config| {
            *merge(config) = json!([{"source": data(text.as_bytes())}]);
        });
        self.text("Butane", text);
        self.text("Butane: invalid", "variant: fcos\nversion: 9.9.9\n");
    }

    fn specs(&mut self) {
        for version in [
            "3.0.0",
            "3.2.0",
            "3.3.0",
            "3.4.0",
            "3.5.0",
            "3.6.0",
            "3.1.1",
            "3.1",
            "3",
            "",
            "1.0.0",
            "2.3.0",
            "3.9.0",
            "4.0.0",
            " 3.1.0",
            "v3.1.0",
            "3.1.0-experimental",
            "3.1.0+x",
            "03.1.0",
            "3.5.0-experimental",
        ] {
            self.with(format!("version {version:?}"), |config| {
                config["ignition"]["version"] = version.into();
            });
        }
        self.with("a version that is a number", |config| config["ignition"]["version"] = 3.into());
        self.with("a version that is null", |config| config["ignition"]["version"] = Value::Null);
        let own = self.site.config.to_string();
        for (name, from, to) in [
            ("names in upper case", "\"source\"", "\"SOURCE\""),
            ("names in mixed case", "\"ignition\"", "\"Ignition\""),
            ("names with a long s", "\"source\"", "\"\u{17f}ource\""),
            ("a name in snake case", "certificateAuthorities", "certificate_authorities"),
            ("append for merge", "\"merge\"", "\"append\""),
        ] {
            self.text(name, own.replace(from, to));
        }
        let twice = |second: &str| format!("{}, {second}}}", &own[..own.len() - 1]);
        for (name, second) in [
            ("ignition twice, the second one empty", r#""ignition": {}"#),
            ("ignition twice, the second one null", r#""ignition": null"#),
            ("ignition twice, the second without a version", r#""Ignition": {"config": {}}"#),
            ("ignition twice, another version", r#""ignition": {"version": "2.2.0"}"#),
            ("ignition twice, nothing to merge", r#""ignition": {"config": {"merge": []}}"#),
            ("ignition twice, an element more", r#""ignition": {"config": {"merge": [{}]}}"#),
            (
                "ignition twice, no CA",
                r#""ignition": {"security": {"tls": {"certificateAuthorities": []}}}"#,
            ),
            ("ignition twice, an empty timeout", r#""ignition": {"timeouts": {}}"#),
        ] {
            self.text(name, twice(second));
        }
    }

    fn unread_fields(&mut self) {
        let own = self.site.config.to_string().into_bytes();
        let deep = |many: usize| [vec![b'['; many], vec![b']'; many]].concat();
        let half = br#""\ud800""#.to_vec();
        for (name, value) in [
            ("half a surrogate pair", half.clone()),
            ("the other half", br#""\udc00x""#.to_vec()),
            ("a pair", br#""\ud83d\ude00""#.to_vec()),
            ("no UTF-8", b"\"\xff\xfe\"".to_vec()),
            ("a control character", b"\"\x01\"".to_vec()),
            ("a line feed", b"\"\n\"".to_vec()),
            ("an unknown escape", br#""\x41""#.to_vec()),
            ("a large number", b"1e400".to_vec()),
            ("a long number", vec![b'9'; 400]),
            ("a number with a zero", b"01".to_vec()),
            ("a number with a plus", b"+1".to_vec()),
            ("NaN", b"NaN".to_vec()),
            ("True", b"True".to_vec()),
            ("depth", deep(200)),
            ("much depth", deep(9_000)),
            ("too much depth", deep(10_001)),
        ] {
            self.text(
                format!("an unread field: {name}"),
                [b"{\"x\": ", &value[..], b", ", &own[1..]].concat(),
            );
        }
        for (name, value) in [("half a surrogate pair", half), ("no UTF-8", b"\"\xff\"".to_vec())] {
            self.text(
                format!("an unread name: {name}"),
                [b"{", &value[..], b": 1, ", &own[1..]].concat(),
            );
        }
        self.with("a field of another tool", |config| config["passthrough"] = json!({"a": [1]}));
    }

    fn other_sections(&mut self) {
        for (name, section, value) in [
            (
                "a file",
                "storage",
                json!({"files": [{"path": "/etc/a", "contents": {"source": "data:,a"}}]}),
            ),
            ("a file twice", "storage", json!({"files": [{"path": "/etc/a"}, {"path": "/etc/a"}]})),
            (
                "a file's mode as text",
                "storage",
                json!({"files": [{"path": "/etc/a", "mode": "0644"}]}),
            ),
            ("a file without a slash", "storage", json!({"files": [{"path": "etc/a"}]})),
            ("storage null", "storage", Value::Null),
            ("storage a list", "storage", json!([])),
            (
                "a user",
                "passwd",
                json!({"users": [{"name": "core", "sshAuthorizedKeys": ["ssh-rsa A"]}]}),
            ),
            ("a user twice", "passwd", json!({"users": [{"name": "core"}, {"name": "core"}]})),
            ("a unit", "systemd", json!({"units": [{"name": "a.service", "enabled": true}]})),
            ("a unit that is none", "systemd", json!({"units": [{"name": "a"}]})),
            (
                "a unit with broken contents",
                "systemd",
                json!({"units": [{"name": "a.service", "contents": "[Unit"}]}),
            ),
            ("kernel arguments, which 3.1 has not", "kernelArguments", json!({"shouldExist": 1})),
        ] {
            self.with(format!("beside it: {name}"), |config| config[section] = value);
        }
    }
}

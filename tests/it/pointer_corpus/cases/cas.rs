//! The CAs that a pointer config trusts.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::{Value, json};

use super::{Cases, data, entry, gzip, sha256, sha512};

impl Cases<'_> {
    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub(super) fn cas(&mut self) {
        let pem = self.site.pem.clone();
        let lines: Vec<&str> = pem.lines().collect();
        let der = pem::parse(&pem).expect("PEM").into_contents();
        let flat: String = lines[1..lines.len() - 1].concat();
        let begin = "-----BEGIN CERTIFICATE-----\n";
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        let renamed = |name: &str| pem.replace("CERTIFICATE", name);
        let with_headers = |headers: &str| pem.replacen(begin, &format!("{begin}{headers}"), 1);
        for (name, text) in [
            ("an empty text of CAs", String::new()),
            ("no PEM", "no PEM\n".to_owned()),
            ("CR LF in PEM", pem.replace('\n', "\r\n")),
            ("CR alone in PEM", pem.replace('\n', "\r")),
            ("no line feed at the end of PEM", pem.trim_end().to_owned()),
            ("two line feeds at the end of PEM", format!("{pem}\n")),
            ("a space at the end of PEM", format!("{pem} ")),
            ("a space behind the last dash", pem.trim_end().to_owned() + " "),
            ("a comment before PEM", format!("# CA\n{pem}")),
            ("a comment after PEM", format!("{pem}# CA\n")),
            ("a comment between PEM", format!("{pem}# CA\n{pem}")),
            ("an empty line between PEM", format!("{pem}\n{pem}")),
            ("twice the same PEM", format!("{pem}{pem}")),
            ("glued PEM", format!("{}{pem}", pem.trim_end())),
            ("indented PEM", format!("  {}", pem.replace('\n', "\n  "))),
            ("PEM headers", with_headers("Subject: x\n\n")),
            ("PEM headers without an empty line", with_headers("Subject: x\n")),
            ("an empty line in PEM", with_headers("\n")),
            ("spaces in PEM", pem.replace('A', "A ")),
            ("a tab behind the first line", pem.replacen("-----\n", "-----\t\n", 1)),
            ("X509 CERTIFICATE", renamed("X509 CERTIFICATE")),
            ("TRUSTED CERTIFICATE", renamed("TRUSTED CERTIFICATE")),
            ("lower case", renamed("certificate")),
            ("PKCS7", renamed("PKCS7")),
            ("other names at both ends", pem.replacen("CERTIFICATE", "X", 1)),
            ("a key behind it", format!("{pem}{key}")),
            ("a key before it", format!("{key}{pem}")),
            ("a block cut short before it", format!("{}{pem}", &pem[..100])),
            ("a broken block before it", format!("{begin}AA=A\n-----END CERTIFICATE-----\n{pem}")),
            ("a block of nothing before it", format!("{begin}-----END CERTIFICATE-----\n{pem}")),
            ("cut short", pem[..200].to_owned()),
            ("cut in its last line", pem.trim_end()[..pem.len() - 3].to_owned()),
            ("a line less", pem.replacen(lines[3], "", 1)),
            ("a character less", pem.replacen(lines[3], &lines[3][1..], 1)),
            ("four characters less", pem.replacen(lines[3], &lines[3][4..], 1)),
            ("one long line", format!("{begin}{flat}\n-----END CERTIFICATE-----\n")),
            ("no line feed before the end", format!("{begin}{flat}-----END CERTIFICATE-----\n")),
            ("base64 of URLs", pem.replace('/', "_").replace('+', "-")),
            ("base64 without padding", pem.replace('=', "")),
            ("four dashes", pem.replacen("-----BEGIN", "----BEGIN", 1)),
            ("six dashes", pem.replace("-----BEGIN", "------BEGIN")),
            ("a NUL behind PEM", format!("{pem}\0")),
            ("a BOM before PEM", format!("\u{feff}{pem}")),
            ("JSON's line feeds", pem.replace('\n', "\\n")),
        ] {
            self.with(format!("CAs: {name}"), |config| {
                entry(config)["source"] = data(text.as_bytes()).into();
            });
        }
        self.with("CAs: DER", |config| entry(config)["source"] = data(&der).into());
        let other = [&der[..], b"\0"].concat();
        let block = |der: &[u8]| pem::encode(&pem::Pem::new("CERTIFICATE", der));
        for (name, der) in [("a byte more", &other[..]), ("a byte less", &der[..der.len() - 1])] {
            let text = block(der).replace("\r\n", "\n");
            self.with(format!("CAs: {name}"), |config| {
                entry(config)["source"] = data(text.as_bytes()).into();
            });
        }
    }

    #[expect(clippy::too_many_lines, reason = "it is a table")]
    pub(super) fn ca_entries(&mut self) {
        let pem = self.site.pem.clone();
        let pem = pem.as_bytes();
        let upper = |hash: String| {
            let (function, digits) = hash.split_once('-').expect("a hash");
            format!("{function}-{}", digits.to_uppercase())
        };
        let hash = |hash: &str| json!({"source": data(pem), "verification": {"hash": hash}});
        let packed = json!({"source": data(&gzip(pem)), "compression": "gzip"});
        let mut tail = gzip(pem);
        tail.push(0);
        let percent = percent_encode(pem, NON_ALPHANUMERIC).to_string();
        let encoded = BASE64.encode(pem);
        for (name, entry) in [
            ("the right hash", hash(&sha512(pem))),
            ("the right SHA-256", hash(&sha256(pem))),
            ("the right hash in upper case", hash(&upper(sha512(pem)))),
            ("a wrong hash", hash(&sha512(b"x"))),
            ("a short hash", hash("sha512-00")),
            ("an unknown hash", hash("md5-d41d8cd98f00b204e9800998ecf8427e")),
            ("a hash without a dash", hash("sha512")),
            ("a hash of no digits", hash(&format!("sha512-{}", "x".repeat(128)))),
            ("packed", packed.clone()),
            ("packed, the hash of what is in it", {
                let mut it = packed.clone();
                it["verification"] = json!({"hash": sha512(pem)});
                it
            }),
            ("packed, and not told", json!({"source": data(&gzip(pem))})),
            ("told to be packed", json!({"source": data(pem), "compression": "gzip"})),
            (
                "packed twice over",
                json!({"source": data(&[gzip(pem), gzip(pem)].concat()), "compression": "gzip"}),
            ),
            ("packed, a byte behind it", json!({"source": data(&tail), "compression": "gzip"})),
            ("packed by others", json!({"source": data(pem), "compression": "xz"})),
            ("no compression", json!({"source": data(pem), "compression": ""})),
            ("compression null", json!({"source": data(pem), "compression": null})),
            ("percent-encoded", json!({"source": format!("data:,{percent}")})),
            ("text/plain", json!({"source": format!("data:text/plain;base64,{encoded}")})),
            ("an unknown type", json!({"source": format!("data:pem;base64,{encoded}")})),
            ("base64 without its name", json!({"source": format!("data:,{encoded}")})),
            ("no comma", json!({"source": format!("data:;base64{encoded}")})),
            ("DATA", json!({"source": format!("DATA:;base64,{encoded}")})),
            ("a space", json!({"source": format!("data:;base64, {encoded}")})),
            ("no source", json!({})),
            ("an empty source", json!({"source": ""})),
            ("a source that is null", json!({"source": null})),
            ("a source that is PEM", json!({"source": self.site.pem})),
            ("a source that is a list", json!({"source": [data(pem)]})),
            ("a file's path", json!({"source": "file:///etc/ca.crt"})),
            ("headers", json!({"source": data(pem), "httpHeaders": [{"name": "a", "value": "b"}]})),
            ("an entry that is text", json!(data(pem))),
            ("an entry that is null", Value::Null),
        ] {
            self.with(format!("a CA's entry: {name}"), |config| *self::entry(config) = entry);
        }
        let list = |config: &mut Value, entries: Value| {
            config["ignition"]["security"]["tls"]["certificateAuthorities"] = entries;
        };
        let (own, empty) = (json!({"source": data(pem)}), json!({"source": "data:,"}));
        self.with("CAs: none", |config| list(config, json!([])));
        self.with("CAs: null", |config| list(config, Value::Null));
        self.with("CAs: no list", |config| list(config, own.clone()));
        self.with("CAs: the same source twice", |config| list(config, json!([own, own])));
        self.with("CAs: an empty one beside", |config| list(config, json!([empty, own])));
        let junk = json!({"source": data(b"junk")});
        self.with("CAs: junk beside", |config| list(config, json!([own, junk])));
        self.with("no security", |config| config["ignition"]["security"] = json!({}));
    }
}

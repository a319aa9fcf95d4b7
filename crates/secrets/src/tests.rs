mod forms;
mod innocent;
mod planted;

use ignition::data_url;
use serde_json::{Value, json};

use super::*;

fn kinds(text: &str) -> Vec<SecretKind> {
    search::find(None, text.as_bytes()).into_iter().collect()
}

fn found(config: &Value) -> Vec<(String, SecretKind)> {
    let config = Config::parse(&config.to_string()).unwrap();
    let secrets = secrets(&config, &mut UnpackBudget::default());
    secrets.into_iter().map(|secret| (secret.place.to_string(), secret.kind)).collect()
}

const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\n";

#[test]
fn each_kind_is_found_by_its_rule() {
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, KEY);
    for (text, kind) in [
        (KEY.to_owned(), SecretKind::PrivateKey),
        (format!("key: |\n{}", KEY.replace("-----B", "  -----B")), SecretKind::PrivateKey),
        (format!("tls.key: {encoded}\n"), SecretKind::PrivateKey),
        ("[WireGuard]\nPrivateKey = aGVsbG8gd29ybGQ=\n".to_owned(), SecretKind::PrivateKey),
        (
            "kind: Config\nusers:\n- user:\n    token: abcd.efghijkl\n".into(),
            SecretKind::Kubeconfig,
        ),
        (
            r#"{"kind": "Config", "users": [{"user": {"client-key-data": "c2VjcmV0IGtleQ=="}}]}"#
                .into(),
            SecretKind::Kubeconfig,
        ),
        (r#"{"auths": {"quay.io": {"auth": "dTpw"}}}"#.into(), SecretKind::RegistryLogin),
        (r#"{"quay.io": {"auth": "dTpw"}}"#.into(), SecretKind::RegistryLogin),
        ("data:\n  .dockerconfigjson: eyJhdXRocyI6e319\n".into(), SecretKind::RegistryLogin),
        (format!("root:$6$salt${}:1::", "a".repeat(86)), SecretKind::PasswordHash),
        ("Environment=DB_PASSWORD=sesame\n".into(), SecretKind::Password),
        ("ExecStart=/bin/x --password sesame\n".into(), SecretKind::Password),
        ("API_TOKEN=0123456789\n".into(), SecretKind::Token),
        ("aadClientSecret: 0123456789\n".into(), SecretKind::Token),
        ("curl -H 'Authorization: Bearer 0123456789abcdef'\n".into(), SecretKind::Token),
        ("x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln\n".into(), SecretKind::Token),
        (format!("admin:$apr1$salt1234${}\n", "a".repeat(22)), SecretKind::PasswordHash),
        ("machine h.example login me password sesame\n".into(), SecretKind::Password),
        ("machine h.example\n\tlogin me\n\tpassword sesame\n".into(), SecretKind::Password),
        ("[Service]\nSetCredential=db:sesame\n".into(), SecretKind::Password),
        ("AGE-SECRET-KEY-1QQPQZ\n".into(), SecretKind::PrivateKey),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n".into(), SecretKind::PrivateKey),
        ("HTTP_PROXY=http://user:sesame@proxy:3128\n".into(), SecretKind::UrlPassword),
    ] {
        assert!(kinds(&text).contains(&kind), "{text}: {:?}", kinds(&text));
    }
}

#[test]
fn what_only_talks_about_secrets_is_none() {
    for text in [
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
        "-----BEGIN PUBLIC KEY-----\nMIIB\n-----END PUBLIC KEY-----\n",
        "if grep -q -- '-----BEGIN RSA PRIVATE KEY-----' \"$1\"; then",
        "passwd:     files sss systemd\n",
        "the machine asks for a login and a password\n",
        "machine h.example login me password $PASSWORD\n",
        "LoadCredential=db:/run/db\nSetCredentialEncrypted=db: Whxqht\n",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@example\n",
        "PasswordAuthentication no\n",
        "TOKEN=$(cat /var/run/token)\n",
        "export PASSWORD=\"${1}\"\n",
        "ExecStart=/bin/x --token-file=/run/token --password-file /run/password\n",
        "bootstrap-token: false\n",
        "# password=sesame\n",
        "HTTP_PROXY=http://proxy:3128\n",
        "url: http://user:$PASSWORD@proxy\n",
        "ssh://git@example.com:22/x\n",
        r#"{"auths": {}}"#,
        r#"{"auths": {"quay.io": {}}}"#,
        "kind: Config\nusers:\n- user:\n    tokenFile: /run/token\n",
        "echo \"costs $1$ and more\"",
        "rotate-server-certificates: true\nserverTLSBootstrap: true\n",
    ] {
        assert_eq!(kinds(text), [], "{text}");
    }
}

#[test]
fn every_place_of_a_config_is_looked_at() {
    let header = json!([{"name": "Authorization", "value": "Bearer x"}]);
    let hash = format!("$6$salt${}", "a".repeat(86));
    let inner = json!({
        "ignition": {"version": "3.4.0"},
        "storage": {"files": [{"path": "/k", "contents": {"source": data_url::encode(KEY.as_bytes())}}]},
    });
    let config = json!({
        "ignition": {
            "version": "3.4.0",
            "config": {"merge": [{"source": "https://h/x", "httpHeaders": header}]},
            "proxy": {"httpProxy": "http://u:p@h"},
        },
        "passwd": {
            "users": [{"name": "core", "passwordHash": hash}, {"name": "root", "passwordHash": "*"}],
            "groups": [{"name": "wheel", "passwordHash": hash}],
        },
        "storage": {
            "files": [
                {"path": "/a", "append": [{"source": data_url::encode(KEY.as_bytes())}]},
                {"path": "/b", "contents": {"source": "data:,text"}},
                {"path": "/c", "contents": {"source": data_url::encode(inner.to_string().as_bytes())}},
            ],
            "luks": [{"name": "l", "device": "/dev/l", "keyFile": {"source": "data:,sesame"}}],
        },
        "systemd": {"units": [{
            "name": "u.service",
            "contents": "[Service]\nEnvironment=PASSWORD=sesame\nExecStart=/bin/true\n",
            "dropins": [{"name": "d.conf", "contents": "[Service]\nEnvironment=TOKEN=0123456789\n"}],
        }]},
    });
    let expected = [
        ("/a", SecretKind::PrivateKey),
        ("/c", SecretKind::PrivateKey),
        ("unit u.service", SecretKind::Password),
        ("drop-in u.service.d/d.conf", SecretKind::Token),
        ("user core", SecretKind::PasswordHash),
        ("group wheel", SecretKind::PasswordHash),
        ("disk l", SecretKind::DiskKey),
        ("ignition.config", SecretKind::Header),
        ("ignition.proxy", SecretKind::UrlPassword),
    ];
    assert_eq!(found(&config), expected.map(|(place, kind)| (place.to_owned(), kind)));
}

#[test]
fn texts_within_texts_end() {
    let mut text = KEY.to_owned();
    for _ in 0..10 {
        text = json!([text]).to_string();
    }
    assert_eq!(kinds(&text), []);
}

#[test]
fn what_is_too_large_to_be_searched_is_named() {
    use super::skipped::{MAX_BYTES, MAX_LINE_BYTES, MAX_NESTED, MAX_UNPACKED_BYTES};
    use std::io::Write as _;
    let unsearched = |text: &str| {
        let kinds = kinds(text).into_iter();
        kinds.filter(|kind| matches!(kind, SecretKind::Unsearched(_))).collect::<Vec<_>>()
    };
    let [bytes, line, nested, packed] =
        [Skipped::Bytes, Skipped::Line, Skipped::Nested, Skipped::Packed]
            .map(SecretKind::Unsearched);

    let file = |bytes: usize| "a\n".repeat(bytes / 2);
    assert_eq!(unsearched(&file(MAX_BYTES)), []);
    assert_eq!(unsearched(&file(MAX_BYTES + 2)), [bytes]);

    let long = |bytes: usize| format!("{}\nb\n", "a".repeat(bytes));
    assert_eq!(unsearched(&long(MAX_LINE_BYTES)), []);
    assert_eq!(unsearched(&long(MAX_LINE_BYTES + 1)), [line]);
    assert_eq!(unsearched(&format!("\0{}", long(MAX_LINE_BYTES))), [], "not text");

    // Nests a text so many times.
    let within = |depth: usize, inner: &str| {
        (0..depth).fold(inner.to_owned(), |text, _| json!({"text": text}).to_string())
    };
    assert!(kinds(&within(MAX_NESTED, KEY)).contains(&SecretKind::PrivateKey));
    assert_eq!(unsearched(&within(MAX_NESTED, KEY)), []);
    assert_eq!(unsearched(&within(MAX_NESTED + 1, KEY)), [nested]);
    assert_eq!(unsearched(&within(MAX_NESTED + 1, "word")), []);

    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(&vec![0; usize::try_from(MAX_UNPACKED_BYTES).unwrap() + 1]).unwrap();
    let source = data_url::encode_base64(&encoder.finish().unwrap());
    let files = json!({"files": [{"path": "/a", "source": source, "compression": "gzip"}]});
    assert_eq!(unsearched(&files.to_string()), [packed]);
}

//! Tokens that another issuer has signed, and keys of that issuer that are replaced.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::support::access::{credential, enforcing, get};
use crate::support::http::{Client, loopback};
use crate::support::meanwhile::{Meanwhile, meanwhile};
use crate::support::server::{Server, serving};
use crate::support::{in_repository, manifests};
use crate::support::{wait_for, wait_until};

/// An issuer of signed tokens, with its keys in a file.
struct Issuer {
    directory: TempDir,
}

struct Key {
    id: String,
    pair: KeyPair,
}

impl Key {
    fn new(id: &str) -> Self {
        Self { id: id.to_owned(), pair: KeyPair::generate().expect("a key") }
    }

    fn encoding(&self) -> EncodingKey {
        EncodingKey::from_ec_der(&self.pair.serialize_der())
    }

    fn jwk(&self) -> Value {
        let mut jwk = Jwk::from_encoding_key(&self.encoding(), Algorithm::ES256).expect("a key");
        jwk.common.key_id = Some(self.id.clone());
        serde_json::to_value(jwk).expect("JSON")
    }

    fn sign(&self, head: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(head), part(claims));
        let signed =
            jsonwebtoken::crypto::sign(message.as_bytes(), &self.encoding(), Algorithm::ES256);
        format!("Bearer {message}.{}", signed.expect("a signature"))
    }

    fn token(&self, claims: &Value) -> String {
        self.sign(&json!({"alg": "ES256", "kid": self.id}), claims)
    }
}

fn claims() -> Value {
    let now = OffsetDateTime::now_utc().unix_timestamp();
    json!({"iss": "https://issuer.example", "aud": "mcs", "sub": "rack-7", "pool": "worker",
        "exp": now + 3600})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

impl Issuer {
    fn new(keys: &[&Key]) -> Self {
        let issuer = Self { directory: tempfile::tempdir().expect("a temporary folder") };
        issuer.publish(&json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}));
        issuer
    }

    fn publish(&self, set: &Value) {
        self.replace(&set.to_string());
    }

    fn replace(&self, text: &str) {
        manifests::replace(self.directory.path(), "jwks.json", text);
    }

    fn path(&self) -> std::path::PathBuf {
        self.directory.path().join("jwks.json")
    }

    fn enforcing(&self) -> Server {
        let path = self.path();
        let path = path.to_str().expect("text");
        let flags = ["--access-jwks", path, "--access-issuer", "https://issuer.example"];
        enforcing(&[&flags[..], &["--access-audience", "mcs"]].concat())
    }
}

#[test]
fn the_verdict_of_an_attestation_service_opens_the_pools_of_its_rule() {
    let key = Key::new("a");
    let issuer = Issuer::new(&[&key]);
    let rules = json!({"rules": [{"name": "confidential", "pools": ["worker"],
        "claims": {"/submods/cpu0/ear.status": "affirming"}}]});
    manifests::replace(issuer.directory.path(), "rules.json", &rules);
    let [keys, rules] = ["jwks.json", "rules.json"].map(|file| {
        issuer.directory.path().join(file).to_str().expect("a path in UTF-8").to_owned()
    });
    let server = enforcing(&["--access-jwks", &keys, "--access-rules", &rules]);
    let expires = OffsetDateTime::now_utc().unix_timestamp() + 3600;
    let verdict = |status: &str| {
        key.token(&json!({"exp": expires, "submods": {"cpu0": {"ear.status": status}}}))
    };
    let status = |last: u8, pool: &str, token: &str| {
        get(&server.tls().from(loopback(last)), pool, Some(token)).status
    };
    assert_eq!(status(21, "worker", &verdict("affirming")), 200);
    assert_eq!(status(22, "worker", &verdict("contraindicated")), 401);
    assert_eq!(status(23, "master", &verdict("affirming")), 401);
    assert_eq!(status(24, "worker", &key.token(&claims())), 401, "it matches no rule");
}

#[test]
fn a_signed_token_opens_what_it_says_and_nothing_else() {
    let (key, unknown_key) = (Key::new("a"), Key::new("a"));
    let issuer = Issuer::new(&[&key]);
    let server = issuer.enforcing();
    let own = credential(&server, "worker");
    let now = OffsetDateTime::now_utc().unix_timestamp();
    let mut last = 20;
    let mut status = |client: Client, pool: &str, token: &str| {
        last += 1;
        get(&client.from(loopback(last)), pool, Some(token)).status
    };
    let good = key.token(&claims());
    assert_eq!(status(server.tls(), "worker", &good), 200);
    assert_eq!(status(server.tls(), "worker", &own), 200, "our own go on");
    assert_eq!(status(server.plain(), "worker", &good), 401);
    assert_eq!(status(server.tls(), "master", &good), 401);
    assert_eq!(status(server.tls(), "nowhere", &good), 503);
    for claims in [
        with("exp", json!(now - 61)),
        with("exp", json!("later")),
        with("exp", Value::Null),
        with("pool", json!("master")),
        with("pool", json!("work")),
        with("pool", json!({"worker": true})),
        with("iss", json!("https://else.example")),
        with("aud", json!("else")),
        with("sub", Value::Null),
    ] {
        assert_eq!(status(server.tls(), "worker", &key.token(&claims)), 401, "{claims}");
    }
    let early = key.token(&with("nbf", json!(now + 600)));
    assert_eq!(status(server.tls(), "worker", &early), 503, "time brings it");
    assert_eq!(status(server.tls(), "worker", &unknown_key.token(&claims())), 401);
    let unknown_token = Key::new("b").token(&claims());
    assert_eq!(status(server.tls(), "worker", &unknown_token), 503, "it may come in a moment");
    for token in forged(&key, &good) {
        assert_eq!(status(server.tls(), "worker", &token), 401, "{token}");
    }
    // A key that the token itself brings proves nothing.
    let head = json!({"alg": "ES256", "kid": "a", "jwk": unknown_key.jwk()});
    assert_eq!(status(server.tls(), "worker", &unknown_key.sign(&head, &claims())), 401);
    assert!(!server.log().contains("eyJ"), "no token is in the log: {}", server.log());
}

/// Tokens by who knows what everybody may know: the public key is no secret, and none is no algorithm.
fn forged(key: &Key, good: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let public = key.jwk();
    let secrets = [
        key.pair.public_key_pem().into_bytes(),
        key.pair.public_key_raw().to_vec(),
        public.to_string().into_bytes(),
        URL_SAFE_NO_PAD.decode(public["x"].as_str().expect("a half")).expect("base64"),
    ];
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
        let head = json!({"alg": format!("{algorithm:?}"), "kid": "a"});
        let message = format!("{}.{}", part(&head), part(&claims()));
        for secret in &secrets {
            let secret = EncodingKey::from_secret(secret);
            let signed = jsonwebtoken::crypto::sign(message.as_bytes(), &secret, algorithm);
            tokens.push(format!("Bearer {message}.{}", signed.expect("a signature")));
        }
    }
    let signature = good.rsplit('.').next().expect("a signature");
    for algorithm in ["none", "None", "NONE", ""] {
        let message = format!("{}.{}", part(&json!({"alg": algorithm})), part(&claims()));
        for end in ["", signature] {
            tokens.push(format!("Bearer {message}.{end}"));
        }
    }
    tokens
}

#[test]
fn keys_are_replaced_while_machines_boot() {
    let keys: Vec<_> = (0..5).map(|number| Key::new(&format!("k{number}"))).collect();
    let issuer = Issuer::new(&[&keys[0]]);
    let server = issuer.enforcing();
    let current = AtomicUsize::new(0);
    let status = |key: &Key, last: u8| {
        let client = server.tls().from(loopback(last));
        get(&client, "worker", Some(&key.token(&claims()))).status
    };
    let boot = |number| {
        // One that is accepted all the time that this takes.
        let key = current.load(Ordering::SeqCst);
        let answer = status(&keys[key], 100 + number);
        assert!(current.load(Ordering::SeqCst) != key || answer == 200, "{answer}");
    };
    meanwhile(3, boot, |boots| {
        for (number, pair) in (0_u8..).zip(keys.windows(2)) {
            boots.continues(10);
            issuer.publish(&json!({"keys": [pair[0].jwk(), pair[1].jwk()]}));
            wait_until("the new key", || status(&pair[1], 30 + number) == 200);
            assert_eq!(status(&pair[0], 40), 200);
            current.fetch_add(1, Ordering::SeqCst);
            issuer.publish(&json!({"keys": [pair[1].jwk()]}));
            wait_until("the old key to end", || status(&pair[0], 50 + number) == 503);
        }
        boots.continues(10);
        what_cannot_be_used_leaves_the_key_before(&issuer, &server, &keys[4], boots);
        fs::remove_file(issuer.path()).expect("a file");
        boots.continues(10);
    });
}

/// And is told.
fn what_cannot_be_used_leaves_the_key_before(
    issuer: &Issuer,
    server: &Server,
    key: &Key,
    boots: &Meanwhile<'_>,
) {
    let degraded = || server.overview()["degraded"].clone();
    let mut private = key.jwk();
    private["d"] = json!("AAAA");
    let symmetric = json!({"kty": "oct", "kid": "s", "k": "AAAA"});
    for broken in [
        "{".to_owned(),
        String::new(),
        json!({"keys": []}).to_string(),
        json!({"keys": [private]}).to_string(),
        json!({"keys": [key.jwk(), symmetric]}).to_string(),
        json!({"keys": "secret text"}).to_string(),
    ] {
        issuer.replace(&broken);
        let reported = wait_for("it to be told", || {
            let lines = degraded();
            let mut lines = lines.as_array()?.iter().filter_map(Value::as_str);
            lines.find(|line| line.contains("jwks.json")).map(str::to_owned)
        });
        assert!(reported.lines().count() == 1 && !reported.contains("secret"), "{reported}");
        boots.continues(10);
        issuer.publish(&json!({"keys": [key.jwk()]}));
        wait_until("it to be told no more", || !degraded().to_string().contains("jwks.json"));
    }
}

#[test]
fn flags_that_belong_together_are_asked_for_in_one_line() {
    let issuer = Issuer::new(&[&Key::new("a")]);
    let path = issuer.path();
    let path = path.to_str().expect("text");
    let refused = |flags: &[&str]| {
        let state = issuer.directory.path().join("state");
        let mut command = serving(&in_repository("ignition-fixtures"), &state);
        let output = command.args(flags).output().expect("the built binary");
        assert!(!output.status.success(), "{flags:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let absent = Path::new(path).with_file_name("absent.json");
    let absent = absent.to_str().expect("text");
    let all = |file| {
        ["--access-jwks", file, "--access-issuer", "i", "--access-audience", "a"].map(str::to_owned)
    };
    for (flags, named) in [
        (vec!["--access-jwks", path], "--access-issuer"),
        (vec!["--access-rules", path], "--access-jwks"),
        (vec!["--access-jwks", path, "--access-rules", absent], "absent.json: No such file"),
        (vec!["--access-jwks", path, "--access-rules", path], "expected {\"rules\""),
        (
            vec!["--access-jwks", path, "--access-rules", path, "--access-issuer", "i"],
            "cannot be used",
        ),
        (vec!["--access-jwks", path, "--access-issuer", "i"], "--access-audience"),
        (vec!["--access-jwks", path, "--access-audience", "a"], "--access-issuer"),
        (vec!["--access-issuer", "i"], "--access-jwks"),
        (vec!["--access-audience", "a"], "--access-jwks"),
        (vec!["--access-pool-claim", "c"], "--access-jwks"),
        (all(absent).iter().map(|it| &**it).collect(), "absent.json: No such file"),
    ] {
        let error = refused(&flags);
        let first = error.lines().next().unwrap_or_default();
        assert!(error.contains(named), "{flags:?}: {error}");
        assert!(first.contains("required") || first.contains(named), "{flags:?}: {error}");
    }
}

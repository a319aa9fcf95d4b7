//! Where a request comes from and what it brings: networks, headers of every kind, and tokens that
//! another issuer has signed.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey};
use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;
use time::OffsetDateTime;

use crate::access::{credential, enforcing, get, unknown};
use crate::access_storm::Stop;
use crate::support::http::{Client, Response, connect_from};
use crate::support::in_repository;
use crate::support::server::{Server, binary};
use crate::support::wait_for;

const fn loopback(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 0, 0, last))
}

fn serve(flags: &[&str]) -> Server {
    Server::serve(&in_repository("ignition-fixtures"), flags)
}

const FORWARDED: [(&str, &str); 4] = [
    ("X-Forwarded-For", "127.0.0.40"),
    ("Forwarded", "for=127.0.0.40"),
    ("X-Real-IP", "127.0.0.40"),
    ("X-Client-IP", "127.0.0.40"),
];

#[test]
fn networks_count_in_every_mode_on_both_ports_and_by_pool() {
    // In audit nobody is refused, and it is told who would be.
    for (mode, plain, elsewhere) in [("off", 200, 401), ("audit", 200, 200), ("enforce", 401, 401)]
    {
        let flags = ["127.0.0.40", "127.0.0.48/29", "master=127.0.0.64/28"];
        let flags: Vec<_> = flags.iter().flat_map(|flag| ["--allow-from", *flag]).collect();
        let server = serve(&[&["--access", mode][..], &flags].concat());
        let token = |pool: &str| (mode == "enforce").then(|| credential(&server, pool));
        for pool in ["worker", "master"] {
            let token = token(pool);
            for (last, is_of_all, is_of_master) in [
                (40, true, false),
                (41, false, false),
                (48, true, false),
                (55, true, false),
                (56, false, false),
                (63, false, false),
                (64, false, true),
                (79, false, true),
                (80, false, false),
            ] {
                let may = if pool == "master" { is_of_master } else { is_of_all };
                let status = |client: Client, more: &[(&str, &str)]| {
                    let token = token.as_deref().map(|token| ("Authorization", token));
                    let headers: Vec<_> = token.into_iter().chain(more.iter().copied()).collect();
                    let client = client.from(loopback(last));
                    client.request("GET", &format!("/config/{pool}"), &headers).status
                };
                for forwarded in [&[][..], &FORWARDED] {
                    let what = format!("{mode}: {pool} from 127.0.0.{last} {forwarded:?}");
                    let expected = if may { 200 } else { elsewhere };
                    assert_eq!(status(server.tls(), forwarded), expected, "{what}");
                    let expected = if may { plain } else { elsewhere };
                    assert_eq!(status(server.plain(), forwarded), expected, "{what}");
                }
            }
        }
        if mode == "audit" {
            let machine = server.metrics().get("/api/v1/machines/127.0.0.80").json();
            assert_eq!(machine["requests"]["would_be_refused"], "network");
        }
        // Health is everybody's.
        assert_eq!(server.plain().from(loopback(99)).get("/healthz").status, 200);
    }
}

/// A server that listens on IPv6 sees machines of IPv4 by addresses of IPv6.
#[test]
fn ipv4_counts_as_such_where_the_socket_is_one_of_ipv6() {
    for (network, status) in [("127.0.0.0/8", 200), ("::/0", 401), ("::ffff:127.0.0.0/104", 200)] {
        let server = Server::serve_on("::", &["--access", "off", "--allow-from", network]);
        for client in [server.tls(), server.plain()] {
            assert_eq!(get(&client, "worker", None).status, status, "{network}");
        }
    }
}

#[test]
fn behind_a_balancer_networks_are_those_of_its_clients() {
    let balancer = ["--proxy-from", "127.0.0.8", "--allow-from", "192.0.2.0/24"];
    let server = serve(&[&balancer[..], &["--access", "off"]].concat());
    let ask = |from: u8, header: &str| {
        let mut stream = connect_from(loopback(from), server.insecure()).expect("a connection");
        let request = format!(
            "{header}GET /config/worker HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: 192.0.2.1\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a connection");
        let mut answer = Vec::new();
        // One that is closed at once has no answer.
        let _ = stream.read_to_end(&mut answer);
        Response::parse(&answer).map(|answer| answer.status).ok()
    };
    for (from, header, expected) in [
        (8, "PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n", Some(200)),
        (8, "PROXY TCP6 ::ffff:192.0.2.9 ::1 1 2\r\n", Some(200)),
        (8, "PROXY TCP4 192.0.3.9 127.0.0.1 1 2\r\n", Some(401)),
        (8, "PROXY TCP6 ::ffff:192.0.3.9 ::1 1 2\r\n", Some(401)),
        (8, "PROXY TCP6 2001:db8::1 ::1 1 2\r\n", Some(401)),
        // Nobody is named: it is the balancer's own address that counts.
        (8, "PROXY UNKNOWN\r\n", Some(401)),
        (8, "", None),
        (9, "", Some(401)),
    ] {
        assert_eq!(ask(from, header), expected, "{header:?} from 127.0.0.{from}");
    }
    // Whoever is no balancer is not believed.
    assert_ne!(ask(9, "PROXY TCP4 192.0.2.9 127.0.0.1 1 2\r\n"), Some(200));
}

/// The answer to a head that is written as it is.
fn raw(client: &Client, headers: &[u8]) -> Option<Response> {
    let head = b"GET /config/worker HTTP/1.1\r\nHost: localhost\r\n";
    let request = [&head[..], headers, b"Connection: close\r\n\r\n"].concat();
    client.exchange(&request).ok()
}

#[test]
fn a_header_that_is_not_as_it_has_to_be_opens_nothing() {
    let server = enforcing(&[]);
    let good = credential(&server, "worker");
    let word = &good["Bearer ".len()..];
    let mut last = 20;
    let mut ask = |headers: &[u8]| {
        last += 1;
        raw(&server.tls().from(loopback(last)), headers)
    };
    for name in ["Authorization", "authorization", "AUTHORIZATION", "aUTHORIZATION"] {
        for scheme in ["Bearer", "bearer", "BEARER"] {
            let answer = ask(format!("{name}:{scheme} {word}\r\n").as_bytes());
            assert_eq!(answer.map(|answer| answer.status), Some(200), "{name} {scheme}");
        }
    }
    let line = format!("Authorization: {good}\r\n");
    let oversized = format!("Authorization: Bearer {}\r\n", "x".repeat(16 << 10));
    let padded = format!("Authorization: Bearer {}{word}\r\n", " ".repeat(16 << 10));
    let wide = word.replace('m', "\u{ff4d}");
    for headers in [
        format!("{line}{line}"),
        format!("{line}authorization: Basic eA==\r\n"),
        format!("Authorization: Basic eA==\r\n{line}"),
        format!("{line}Authorization:\r\n"),
        format!("Authorization: {good}, {good}\r\n"),
        format!("Authorization: {good},\r\n"),
        format!("Authorization: Bearer \r\n {word}\r\n"),
        format!("Authorization: Bearer\r\n\t{word}\r\n"),
        format!("Authorization: Bearer\t{word}\r\n"),
        format!("Authorization: Bearer{word}\r\n"),
        format!("Authorization: {word}\r\n"),
        format!("Authorization: Bearer Bearer {word}\r\n"),
        format!("Authorization: Bearer \"{word}\"\r\n"),
        format!("Authorization: Bearer {word}=\r\n"),
        format!("Authorization: Bearer {word}\0\r\n"),
        format!("Authorization: Bearer \0{word}\r\n"),
        format!("Authorization: Bearer {wide}\r\n"),
        format!("Authorization: Bearer \u{a0}{word}\r\n"),
        format!("Authorization: Bearer {}\r\n", word.to_ascii_lowercase()),
        format!("Authorization: Bearer {}\r\n", word.to_ascii_uppercase()),
        format!("Authorization : {good}\r\n"),
        format!(" Authorization: {good}\r\n"),
        format!("Authorization: {good}\n\r\n"),
        format!("Proxy-Authorization: {good}\r\n"),
        format!("X-Authorization: {good}\r\n"),
        format!("Cookie: Authorization={word}\r\n"),
        format!("X: y\rAuthorization: {good}\r\n"),
        oversized,
        padded,
    ] {
        let shown = headers.replace(word, "TOKEN");
        let shown = &shown[..shown.floor_char_boundary(100)];
        let Some(answer) = ask(headers.as_bytes()) else { continue };
        // Two lines that end otherwise are two headers all the same, one of which is good.
        assert!(matches!(answer.status, 400 | 401 | 431 | 503), "{shown:?}: {answer:?}");
        assert!(answer.body.len() < 200, "{shown:?}: {answer:?}");
    }
    for value in [&b"Bearer \xff\xfe"[..], b"\xc3\x28", b"", b" ", b"Bearer"] {
        let header = [b"Authorization: ", value, b"\r\n"].concat();
        let answer = ask(&header);
        assert!(answer.is_none_or(|answer| matches!(answer.status, 400 | 401)), "{value:?}");
    }
    // The line to try says how a token is read, and none of one.
    let log = server.log().replace(r#"s/.*"\(Bearer [^"]*\)".*/Authorization: \1/p"#, "");
    assert!(!log.contains("mcs-") && !log.contains("Bearer"), "{log}");
}

/// With all that there is to log, there is no token in it.
#[test]
fn no_token_is_in_the_log_nor_on_any_page() {
    let state = tempfile::tempdir().expect("a temporary folder");
    let mut command = binary();
    command
        .arg("serve")
        .args(["--v", "8"])
        .arg(in_repository("ignition-fixtures"))
        .arg("--state-dir")
        .arg(state.path());
    command.args(["--host", "localhost", "--access", "enforce"]);
    let server = Server::prepared(command).until_ready();
    let path = state.path().join("user-data/worker.ign");
    let text = fs::read_to_string(&path).expect("a pointer config");
    let pointer: Value = serde_json::from_str(&text).expect("JSON");
    let header = &pointer["ignition"]["config"]["merge"][0]["httpHeaders"][0]["value"];
    let good = header.as_str().expect("a token");
    let tls = Client::tls(server.secure(), &fs::read(state.path().join("ca.crt")).expect("the CA"));
    assert_eq!(get(&tls, "worker", Some(good)).status, 200);
    assert_eq!(get(&server.plain(), "worker", Some(good)).status, 401);
    assert_eq!(get(&tls, "master", Some(good)).status, 401);
    let word = &good["Bearer mcs-".len()..];
    for page in ["/", "/metrics", "/readyz", "/api/v1/overview", "/api/v1/machines"] {
        let text = String::from_utf8_lossy(&server.metrics().get(page).body).into_owned();
        assert!(!text.contains(word) && !text.contains("mcs-"), "{page}: {text}");
    }
    for flags in [&["--json"][..], &[]] {
        let output = binary().arg("inspect").arg("--pointer").arg(&path).args(flags).output();
        let output = output.expect("the built binary");
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(output.status.success() && text.contains("worker"), "{text}");
        assert!(!text.contains(word), "{flags:?}: {text}");
    }
    let log = server.log();
    let line = log.lines().find(|line| line.contains(word) || line.contains("mcs-"));
    assert_eq!(line, None);
    let arguments = fs::read(format!("/proc/{}/cmdline", server.pid())).expect("procfs");
    assert!(!String::from_utf8_lossy(&arguments).contains("mcs-"));
}

/// An issuer of signed tokens, with its keys in a file.
struct Issuer {
    folder: TempDir,
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
        let issuer = Self { folder: tempfile::tempdir().expect("a temporary folder") };
        issuer.publish(&json!({"keys": keys.iter().map(|key| key.jwk()).collect::<Vec<_>>()}));
        issuer
    }

    fn publish(&self, set: &Value) {
        self.replace(&set.to_string());
    }

    fn replace(&self, text: &str) {
        let new = self.folder.path().join("new");
        fs::write(&new, text).expect("a writable folder");
        fs::rename(new, self.path()).expect("a rename");
    }

    fn path(&self) -> std::path::PathBuf {
        self.folder.path().join("jwks.json")
    }

    fn enforcing(&self) -> Server {
        let path = self.path();
        let path = path.to_str().expect("text");
        let flags = ["--access-jwks", path, "--access-issuer", "https://issuer.example"];
        enforcing(&[&flags[..], &["--access-audience", "mcs"]].concat())
    }
}

#[test]
fn a_signed_token_opens_what_it_says_and_nothing_else() {
    let (key, stranger) = (Key::new("a"), Key::new("a"));
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
    assert_eq!(status(server.tls(), "worker", &stranger.token(&claims())), 401);
    let unknown_key = Key::new("b").token(&claims());
    assert_eq!(status(server.tls(), "worker", &unknown_key), 503, "it may come in a moment");
    // The public key is no secret, and none is no algorithm.
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
            let token = format!("Bearer {message}.{}", signed.expect("a signature"));
            assert_eq!(status(server.tls(), "worker", &token), 401, "{algorithm:?}");
        }
    }
    let signature = good.rsplit('.').next().expect("a signature");
    for algorithm in ["none", "None", "NONE", ""] {
        let message = format!("{}.{}", part(&json!({"alg": algorithm})), part(&claims()));
        for end in ["", signature] {
            let token = format!("Bearer {message}.{end}");
            assert_eq!(status(server.tls(), "worker", &token), 401, "{algorithm}");
        }
    }
    // A key that the token brings along is a stranger's word.
    let head = json!({"alg": "ES256", "kid": "a", "jwk": stranger.jwk()});
    assert_eq!(status(server.tls(), "worker", &stranger.sign(&head, &claims())), 401);
    assert!(!server.log().contains("eyJ"), "no token is in the log: {}", server.log());
}

#[test]
fn keys_are_replaced_while_machines_boot() {
    let keys: Vec<_> = (0..5).map(|number| Key::new(&format!("k{number}"))).collect();
    let issuer = Issuer::new(&[&keys[0]]);
    let server = issuer.enforcing();
    let (stop, boots, current) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|threads| {
        let going_on = Stop(&stop);
        for number in 0..3 {
            let (server, keys) = (&server, &keys);
            let (stop, boots, current) = (&stop, &boots, &current);
            threads.spawn(move || {
                let _stop = Stop(stop);
                let client = server.tls().from(loopback(100 + number));
                while !stop.load(Ordering::SeqCst) {
                    // One that is accepted all the time that this takes.
                    let key = current.load(Ordering::SeqCst);
                    let token = keys[usize::try_from(key).expect("an index")].token(&claims());
                    let answer = get(&client, "worker", Some(&token));
                    let is_so_still = current.load(Ordering::SeqCst) == key;
                    assert!(!is_so_still || answer.status == 200, "{answer:?}");
                    boots.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let status = |key: &Key, last: u8| {
            let client = server.tls().from(loopback(last));
            get(&client, "worker", Some(&key.token(&claims()))).status
        };
        let await_boots = || {
            let before = boots.load(Ordering::SeqCst);
            wait_for("machines to boot", || {
                assert!(!stop.load(Ordering::SeqCst), "a machine was refused");
                (boots.load(Ordering::SeqCst) > before + 10).then_some(())
            });
        };
        for (number, pair) in (0_u8..).zip(keys.windows(2)) {
            await_boots();
            issuer.publish(&json!({"keys": [pair[0].jwk(), pair[1].jwk()]}));
            wait_for("the new key", || (status(&pair[1], 30 + number) == 200).then_some(()));
            assert_eq!(status(&pair[0], 40), 200);
            current.fetch_add(1, Ordering::SeqCst);
            issuer.publish(&json!({"keys": [pair[1].jwk()]}));
            wait_for("the old key to end", || (status(&pair[0], 50 + number) == 503).then_some(()));
        }
        await_boots();
        // What cannot be used leaves the one before, and is told.
        let key = keys.last().expect("a key");
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
            let told = wait_for("it to be told", || {
                let overview = server.metrics().get("/api/v1/overview").json();
                let lines = overview["degraded"].as_array()?.clone();
                let mut lines = lines.iter().filter_map(Value::as_str);
                lines.find(|line| line.contains("jwks.json")).map(str::to_owned)
            });
            assert!(told.lines().count() == 1 && !told.contains("secret"), "{told}");
            await_boots();
            issuer.publish(&json!({"keys": [key.jwk()]}));
            wait_for("it to be told no more", || {
                let overview = server.metrics().get("/api/v1/overview").json();
                (!overview["degraded"].to_string().contains("jwks.json")).then_some(())
            });
        }
        fs::remove_file(issuer.path()).expect("a file");
        await_boots();
        drop(going_on);
    });
}

#[test]
fn flags_that_belong_together_are_asked_for_in_one_line() {
    let issuer = Issuer::new(&[&Key::new("a")]);
    let path = issuer.path();
    let path = path.to_str().expect("text");
    let refused = |flags: &[&str]| {
        let mut command = binary();
        let state = issuer.folder.path().join("state");
        command.arg("serve").arg(in_repository("ignition-fixtures"));
        command.arg("--state-dir").arg(state).args(flags);
        let output = command.output().expect("the built binary");
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

/// Six ways to fail, one after the other on connections that stay, so that what the machine does
/// besides slows all of them alike.
#[test]
fn how_long_a_refusal_takes_does_not_tell_why() {
    const ROUNDS: usize = 240;
    let server = enforcing(&[]);
    credential(&server, "worker");
    let add = |name: &str, pool: &str, until: &str| {
        let mut command = binary();
        command.args(["tokens", "add", name, "--pool", pool, "--until", until]);
        let output = command.arg("--state-dir").arg(server.state()).output();
        let output = output.expect("the built binary");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        format!("Bearer {}", String::from_utf8_lossy(&output.stdout).trim())
    };
    let [ended, other, revoked] =
        [("e", "worker", "2s"), ("o", "master", "1h"), ("r", "worker", "1h")]
            .map(|(name, pool, until)| add(name, pool, until));
    let mut command = binary();
    command.args(["tokens", "revoke", "r", "--state-dir"]).arg(server.state());
    assert!(command.output().expect("the built binary").status.success());
    let ways = [
        ("missing", None),
        ("malformed", Some("Bearer mcs-AAAA".to_owned())),
        ("unknown", Some(unknown())),
        ("ended", Some(ended)),
        ("other pool", Some(other)),
        ("revoked", Some(revoked)),
    ];
    for (name, credential) in &ways[3..] {
        wait_for(name, || {
            let client = server.tls().from(loopback(90));
            let answer = get(&client, "worker", credential.as_deref());
            (answer.status == 401).then_some(())
        });
    }
    let mut times = ways.each_ref().map(|_| Vec::new());
    for round in 0..ROUNDS {
        // Another source each few rounds: none fails so often that it has to wait.
        let address = Ipv4Addr::new(127, 1, 0, u8::try_from(1 + round / 12).expect("few"));
        let mut stream = server.tls().from(address.into()).connect().expect("a connection");
        for step in 0..=ways.len() {
            let index = (step + round) % ways.len();
            let header = ways[index].1.as_ref();
            let header = header.map_or_else(String::new, |it| format!("Authorization: {it}\r\n"));
            let head = format!("GET /config/worker HTTP/1.1\r\nHost: localhost\r\n{header}\r\n");
            let started = Instant::now();
            stream.write_all(head.as_bytes()).expect("a connection");
            let mut buffer = [0; 4096];
            let read = stream.read(&mut buffer).expect("an answer");
            let took = started.elapsed();
            let status = Response::parse(&buffer[..read]).expect("an answer").status;
            assert_eq!(status, if index == 2 { 503 } else { 401 }, "{}", ways[index].0);
            // The first one on a connection has work of its own.
            if step > 0 {
                times[index].push(took);
            }
        }
    }
    // What a way takes by itself shows in its quick answers: the slow ones waited for a processor.
    let quick = times.map(|mut times| {
        times.sort();
        times[times.len() / 10]
    });
    for ((name, _), took) in ways.iter().zip(&quick) {
        println!("{name}: {took:?}");
    }
    let (least, most) = (quick.iter().min(), quick.iter().max());
    let (least, most) = (*least.expect("six"), *most.expect("six"));
    // Processors and schedulers make more of a difference than a hash.
    assert!(most < least * 3 / 2 + Duration::from_micros(50), "{quick:?}");
}

//! Secrets in less usual forms. All values are generated at run time.

use serde_json::json;

use super::super::search::find;
use super::SecretKind::{
    self, EncryptionKey, Kubeconfig, KubernetesSecret, Password, PasswordHash, PrivateKey,
    SharedKey, Token,
};
use super::planted::{base64, hex, made, pem, word};

type Planted = (&'static str, String, SecretKind);

fn assert_found(planted: &[Planted]) {
    let missed: Vec<_> = planted
        .iter()
        .filter_map(|(path, text, kind)| {
            let found = find(Some(path), text.as_bytes());
            (!found.contains(kind)).then(|| format!("{path}: {kind}, found {found:?}: {text}"))
        })
        .collect();
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

/// A key of so many bytes in base64 that begins like a path.
fn slashed(bytes: usize) -> String {
    format!("/{}", &base64(bytes)[1..])
}

/// Passwords and keys that begin like a path, a tag or a format.
fn beginning_with_a_sign() -> Vec<Planted> {
    let putty = |first: &str| {
        let (public, private) = (base64(40), &base64(40)[1..]);
        format!(
            "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\n{public}\nPrivate-Lines: 1\n{first}{private}\n"
        )
    };
    let encryption = |key| {
        json!({
            "kind": "EncryptionConfiguration",
            "resources": [{"providers": [{"aesgcm": {"keys": [{"name": "a", "secret": key}]}}]}],
        })
    };
    let mut all = vec![
        ("/etc/wireguard/wg0.conf", format!("PrivateKey = {}\n", slashed(32)), PrivateKey),
        (
            "/etc/kubernetes/encryption.yaml",
            format!(
                "kind: EncryptionConfiguration\nresources:\n- providers:\n  - aescbc:\n      keys:\n      - name: key1\n        secret: {}\n",
                slashed(32)
            ),
            EncryptionKey,
        ),
        ("/etc/kubernetes/encryption.json", encryption(slashed(32)).to_string(), EncryptionKey),
        ("/etc/kubernetes/encryption.json", encryption(slashed(16)).to_string(), EncryptionKey),
        ("/etc/azure.env", format!("A=AccountName=a;AccountKey={};B=c\n", slashed(64)), SharedKey),
        ("/root/.aws/credentials", format!("aws_secret_access_key=/{}\n", word(39)), Token),
        ("/root/a.key", putty("/"), PrivateKey),
        ("/root/a.key", putty("+"), PrivateKey),
        ("/etc/a.pem", pem("PRIVATE KEY").replacen("-----\n", "-----\n+", 1), PrivateKey),
        ("/etc/app.yaml", "password: |\n  %Sesame1\n".into(), Password),
        ("/etc/app.json", json!({"password": "%Sesame1"}).to_string(), Password),
        ("/etc/app.json", json!({"password": "/sesame1"}).to_string(), Password),
    ];
    let passwords =
        ["!Sesame1", "@Sesame1", "*Sesame1", "/Sesame1", ".sesame1", "~sesame1", "%Sesame1"];
    all.extend(passwords.map(|it| ("/etc/default/db", format!("DB_PASSWORD={it}\n"), Password)));
    all.extend(passwords.map(|it| ("/etc/app.yaml", format!("password: \"{it}\"\n"), Password)));
    all
}

#[test]
fn what_begins_with_a_sign_is_found() {
    assert_found(&beginning_with_a_sign());
}

const LIST: &str = "apiVersion: v1\nitems:\n- apiVersion: v1\n  data:\n    a: b\n  kind: ConfigMap\n\
                - apiVersion: v1\n  data:\n    x: MDEyMzQ1Njc=\n  kind: Secret\n  metadata:\n    name: s\nkind: List\n";
const OWNED: &str =
    "kind: Secret\nmetadata:\n  ownerReferences:\n  - apiVersion: v1\n    kind: Pod\ndata:\n";

/// The same command, block or object, written in another way.
fn written_otherwise() -> Vec<Planted> {
    let key = base64(32);
    let data = "  x: MDEyMzQ1Njc=\n";
    let mut all = vec![
        ("/etc/s.yaml", LIST.to_owned(), KubernetesSecret),
        ("/etc/s.yaml", format!("{OWNED}{data}"), KubernetesSecret),
        ("/etc/s.yaml", format!("kind: \"Secret\"\ndata:\n{data}"), KubernetesSecret),
        (
            "/etc/s.yaml",
            format!("kind: Secret # of the database\ndata: # all\n{data}"),
            KubernetesSecret,
        ),
        ("/etc/s.yaml", "kind: Secret\nstringData: {x: y}\n".to_owned(), KubernetesSecret),
        (
            "/etc/kubeconfig",
            "kind: Config\nusers:\n- user: {password: sesame}\n".to_owned(),
            Kubeconfig,
        ),
        (
            "/etc/encryption.yaml",
            format!(
                "kind: EncryptionConfiguration\nresources: [{{providers: [{{aescbc: {{keys: [{{name: a, secret: {key}}}]}}}}]}}]\n"
            ),
            EncryptionKey,
        ),
        ("/etc/ipsec.secrets", "2001:db8::1 2001:db8::2 : PSK \"sesame\"\n".to_owned(), SharedKey),
        ("/etc/ipsec.secrets", format!(": PSK 0x{}\n", hex(32)), SharedKey),
        ("/etc/ipsec.secrets", "%any : PSK 0tsesame\n".to_owned(), SharedKey),
        (
            "/etc/rndc.key",
            format!("key \"a\" {{ algorithm hmac-md5; secret \"{key}\"; }};\n"),
            SharedKey,
        ),
        ("/etc/rndc.key", format!("key a {{\n  secret  \"{key}\" ;\n}};\n"), SharedKey),
        (
            "/etc/named/K.private",
            format!("Private-key-format: v1.3\nAlgorithm: 8\nPrivateExponent: {}\n", base64(128)),
            PrivateKey,
        ),
        ("/etc/shadow", format!("root:_J9..{}:19000:0:99999:7:::\n", word(15)), PasswordHash),
        ("/etc/web/users", format!("me:_J9..{}\n", word(15)), PasswordHash),
        ("/etc/chrony.keys", format!("1 {}\n", hex(40)), SharedKey),
    ];
    for text in [
        "curl -sku me:sesame https://h\n",
        "curl -fsS \\\n  -u me:sesame \\\n  https://h\n",
        "true \\\n\ncurl \\\n  -u me:sesame https://h\n",
        "/usr/bin/curl \\\n  --user \"me:sesame\" https://h\n",
        "curl -d '{\"user\":\"me\",\"password\":\"sesame\"}' https://h\n",
        "password: | # the database's\n  sesame\n",
        "password: |\n\n\n  sesame\n",
        "password: &a |\n  sesame\n",
        "password: !!str >-\n  sesame\n",
        "db: {user: me, password: sesame}\n",
        "db: {host: {name: a}, 'password': sesame}\n",
    ] {
        all.push(("/etc/some", text.to_owned(), Password));
    }
    all
}

#[test]
fn what_is_written_otherwise_is_found() {
    assert_found(&written_otherwise());
}

#[test]
fn texts_in_programs_are_found() {
    let password = |path, text: &str| (path, text.to_owned(), Password);
    assert_found(&[
        password("/usr/bin/a.py", "password = 'sesame'\n"),
        password("/usr/bin/a.py", "PASSWORD = b\"sesame\"\n"),
        password("/usr/bin/a.py", "connect(user='me', password='sesame')\n"),
        password("/usr/bin/a.py", "config = {'user': name, 'password': 'sesame'}\n"),
        password("/usr/bin/a.py", "run('x --password sesame --user me')\n"),
        password("/usr/bin/a", "#!/usr/bin/perl\nmy $password = 'sesame';\n"),
    ]);
}

#[test]
fn tokens_of_more_issuers_are_found() {
    let capital = |length| made(length, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
    let token = format!("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.{}", word(43));
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, token);
    let tokens = [
        format!("mcs-{}", word(43)),
        format!("sk-{}T3BlbkFJ{}", word(20), word(20)),
        format!("sk-svcacct-{}T3BlbkFJ{}", word(74), word(74)),
        format!("sk-admin-{}", word(74)),
        format!("A3TX{}", capital(16)),
        format!("ABSK{}", word(120)),
        format!("HRKU-AA{}", word(58)),
        format!("API-{}", capital(26)),
        format!("s.{}", word(24)),
        format!("SK{}", hex(32)),
        format!("pplx-{}", word(48)),
        format!("sk_prod_{}", word(24)),
        format!("EAAA{}", word(60)),
        format!("pat.{}.{}.{}", word(22), hex(24), word(20)),
        format!("rdme_{}", hex(70)),
        format!("pnu_{}", word(36)),
        format!("tk-us-{}", word(48)),
        format!("duffel_live_{}", word(43)),
        format!("shippo_test_{}", hex(40)),
        format!("A3-{}-{}-{}-{}-{}", capital(6), capital(11), capital(5), capital(5), capital(5)),
        encoded,
    ];
    assert_found(&tokens.map(|token| ("/etc/motd", format!("use {token} for it\n"), Token)));
}

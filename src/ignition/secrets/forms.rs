//! Secrets in the less usual forms that the same things have. All values are made up here, at run time.

use serde_json::json;

use super::SecretKind::{self, EncryptionKey, Password, PrivateKey, SharedKey, Token};
use super::planted::{base64, pem, word};
use super::search::find;

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

/// A key of so many bytes in base64 that begins as a path does.
fn slashed(bytes: usize) -> String {
    format!("/{}", &base64(bytes)[1..])
}

/// Passwords and keys that begin as a path, a tag or a format does.
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

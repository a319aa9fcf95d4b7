//! Files with secrets. All values are generated; those that other scanners would report are built at run time.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use serde_json::json;

use super::super::search::find;
use super::super::*;

/// So many characters of an alphabet, pseudorandom.
pub(super) fn made(length: usize, alphabet: &str) -> String {
    let alphabet: Vec<char> = alphabet.chars().collect();
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % alphabet.len()
    };
    (0..length).map(|_| alphabet[next()]).collect()
}

const WORD: &str = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
const HEX: &str = "0123456789abcdef";

pub(super) fn word(length: usize) -> String {
    made(length, WORD)
}

pub(super) fn hex(length: usize) -> String {
    made(length, HEX)
}

pub(super) fn base64(bytes: usize) -> String {
    STANDARD.encode(made(bytes, WORD))
}

pub(super) fn pem(label: &str) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", base64(300))
}

/// Encodes an element of DER.
pub(super) fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
    let length = u16::try_from(contents.len()).unwrap().to_be_bytes();
    [&[tag, 0x82], &length[..], contents].concat()
}

fn key_der(version: u8, rest: &[u8]) -> Vec<u8> {
    der(0x30, &[&[2, 1, version], rest].concat())
}

/// RSA by PKCS #1, EC by SEC 1, PKCS #8, PKCS #8 encrypted, PKCS #12.
fn der_keys() -> [(&'static str, Vec<u8>); 5] {
    let big = vec![0x55; 128];
    let rsa_oid = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
    let pbes2 = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 5, 13, 5, 0];
    let data = [6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 7, 1];
    [
        ("/etc/a.der", key_der(0, &[der(2, &big), der(2, &[1, 0, 1]), der(2, &big)].concat())),
        ("/etc/b.der", key_der(1, &[&[4, 32][..], &big[..32]].concat())),
        ("/etc/c.der", key_der(0, &[der(0x30, &rsa_oid), der(4, &big)].concat())),
        ("/etc/d.der", der(0x30, &[der(0x30, &pbes2), der(4, &big)].concat())),
        ("/etc/e.bin", key_der(3, &der(0x30, &[&data[..], &big].concat()))),
    ]
}

#[allow(clippy::too_many_lines, reason = "it is a table")]
fn planted() -> Vec<(&'static str, Vec<u8>, SecretKind)> {
    use SecretKind::{
        DiskKey, EncryptionKey, Kubeconfig, KubernetesSecret, Password, PasswordHash, PrivateKey,
        RegistryLogin, SharedKey, SignedUrl, Token, UrlPassword,
    };
    let mut all: Vec<(&'static str, Vec<u8>, SecretKind)> = Vec::new();
    let mut add = |path, text: String, kind| all.push((path, text.into_bytes(), kind));
    for label in [
        "PRIVATE KEY",
        "RSA PRIVATE KEY",
        "EC PRIVATE KEY",
        "DSA PRIVATE KEY",
        "ENCRYPTED PRIVATE KEY",
        "OPENSSH PRIVATE KEY",
        "TSS2 PRIVATE KEY",
        "OpenVPN Static key V1",
    ] {
        add("/etc/a.pem", pem(label), PrivateKey);
    }
    add(
        "/etc/pgp.asc",
        format!(
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: GnuPG v2\n\n{}\n-----END PGP PRIVATE KEY BLOCK-----\n",
            base64(300)
        ),
        PrivateKey,
    );
    add(
        "/etc/pgp.asc",
        format!("-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{}\n", base64(300)),
        PrivateKey,
    );
    add(
        "/root/a.key",
        format!(
            "PuTTY-User-Key-File-3: ssh-ed25519\nEncryption: none\nPublic-Lines: 1\n{}\nPrivate-Lines: 1\n{}\n",
            base64(40),
            base64(40)
        ),
        PrivateKey,
    );
    add(
        "/root/ssh2",
        format!("---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: \"x\"\n{}\n", base64(100)),
        PrivateKey,
    );
    add(
        "/root/minisign.key",
        format!("untrusted comment: minisign encrypted secret key\n{}\n", base64(100)),
        PrivateKey,
    );
    add(
        "/etc/default/app",
        format!("KEY=\"-----BEGIN PRIVATE KEY-----\\n{}\\n\"\n", base64(60)),
        PrivateKey,
    );
    add(
        "/etc/jwk.json",
        json!({"kty": "EC", "crv": "P-256", "x": "a", "y": "b", "d": word(43)}).to_string(),
        PrivateKey,
    );
    add("/etc/jwks.json", json!({"keys": [{"kty": "oct", "k": word(43)}]}).to_string(), PrivateKey);
    add(
        "/etc/named/K.private",
        format!("Private-key-format: v1.3\nAlgorithm: 13\nPrivateKey: {}\n", base64(32)),
        PrivateKey,
    );
    add(
        "/etc/wireguard/wg0.conf",
        format!("[Interface]\nPrivateKey = {}\n", base64(32)),
        PrivateKey,
    );
    add("/etc/wireguard/wg0.conf", format!("[Peer]\nPresharedKey = {}\n", base64(32)), SharedKey);
    add(
        "/etc/age.txt",
        format!("AGE-SECRET-KEY-1{}\n", made(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L")),
        PrivateKey,
    );
    add(
        "/etc/gcp.json",
        json!({"type": "service_account", "private_key": pem("PRIVATE KEY")}).to_string(),
        PrivateKey,
    );
    add(
        "/etc/kubernetes/encryption.yaml",
        format!(
            "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n  \
         providers:\n  - aescbc:\n      keys:\n      - name: key1\n        secret: {}\n",
            base64(32)
        ),
        EncryptionKey,
    );
    add("/etc/kubernetes/encryption.json", json!({
        "kind": "EncryptionConfiguration",
        "resources": [{"providers": [{"secretbox": {"keys": [{"name": "a", "secret": base64(32)}]}}]}],
    }).to_string(), EncryptionKey);
    add(
        "/etc/kubernetes/manifests/s.yaml",
        format!("apiVersion: v1\nkind: Secret\nmetadata:\n  name: s\ndata:\n  x: {}\n", base64(8)),
        KubernetesSecret,
    );
    add(
        "/etc/kubernetes/s.json",
        json!({"kind": "Secret", "stringData": {"x": "y"}}).to_string(),
        KubernetesSecret,
    );
    add(
        "/etc/kubernetes/pod.yaml",
        "kind: Pod\nspec:\n  containers:\n  - env:\n    - name: DB_PASSWORD\n      value: sesame\n"
            .into(),
        Password,
    );
    add(
        "/etc/kubernetes/pod.json",
        json!({"env": [{"name": "API_TOKEN", "value": "0123456789"}]}).to_string(),
        Token,
    );
    add(
        "/etc/kubernetes/kubelet.kubeconfig",
        "kind: Config\nusers:\n- user:\n    token: abcd.efghijkl\n".into(),
        Kubeconfig,
    );
    add("/etc/app.yaml", "db:\n  password: |\n    sesame\n  host: x\n".into(), Password);
    add("/etc/app.yaml", "db:\n  password: >-\n    sesame\n".into(), Password);
    add("/etc/app.yaml", format!("- api_token: |2\n    {}\n", word(20)), Token);
    add(
        "/etc/app.yaml",
        format!("key: |\n  {}", pem("RSA PRIVATE KEY").replace('\n', "\n  ")),
        PrivateKey,
    );
    add("/etc/chrony.keys", format!("# id type key\n1 SHA256 HEX:{}\n", hex(64)), SharedKey);
    add("/etc/chrony.keys", "7 MD5 sesame\n".into(), SharedKey);
    add("/etc/ntp/keys", format!("1 M {}\n", word(20)), SharedKey);
    add(
        "/etc/rndc.key",
        format!(
            "key \"rndc-key\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{}\";\n}};\n",
            base64(32)
        ),
        SharedKey,
    );
    add("/etc/ipsec.secrets", "192.0.2.1 %any : PSK \"sesame open\"\n".into(), SharedKey);
    add("/etc/ipsec.d/a.secrets", format!(": PSK 0s{}\n", base64(20)), SharedKey);
    add("/etc/ipsec.secrets", "carol : EAP \"sesame\"\n".into(), Password);
    add(
        "/etc/swanctl/swanctl.conf",
        "secrets {\n  ike-1 {\n    secret = \"sesame-open\"\n  }\n}\n".into(),
        Token,
    );
    add("/etc/racoon/psk.txt", "192.0.2.1 sesame\n".into(), Password);
    add("/etc/ppp/chap-secrets", "# client server secret\nme * sesame *\n".into(), Password);
    add("/etc/ppp/pap-secrets", "me\t*\t\"sesame\"\n".into(), Password);
    add("/root/.pgpass", "db.example.com:5432:*:me:sesame\n".into(), Password);
    add("/root/.netrc", "machine h.example\n  login me\n  password sesame\n".into(), Password);
    add("/root/.my.cnf", "[client]\nuser=me\npassword=sesame\n".into(), Password);
    add("/root/.git-credentials", "https://me:sesame@git.example.com\n".into(), UrlPassword);
    add("/root/.npmrc", format!("//registry.example.com/:_authToken={}\n", word(30)), Token);
    add("/root/.pypirc", "[pypi]\nusername: me\npassword: sesame\n".into(), Password);
    add(
        "/root/.aws/credentials",
        format!("[default]\naws_secret_access_key = {}\n", word(40)),
        Token,
    );
    add("/etc/shadow", format!("root:$6$salt${}:19000:0:99999:7:::\n", word(86)), PasswordHash);
    add("/etc/shadow", format!("me:{}:19000:0:99999:7:::\n", made(13, WORD)), PasswordHash);
    add("/etc/shadow", format!("me:$y$j9T$salt${}:19000::::::\n", word(43)), PasswordHash);
    add("/etc/nginx/htpasswd", "me:rqXexS6ZhobKA\n".into(), PasswordHash);
    add("/etc/web/users", "me:rqXexS6ZhobKA\n".into(), PasswordHash);
    add("/etc/web/users", format!("me:$apr1$salt1234${}\n", word(22)), PasswordHash);
    add("/etc/web/users", format!("me:$2y$05${}\n", word(53)), PasswordHash);
    add("/etc/web/users", format!("me:{{SHA}}{}=\n", word(27)), PasswordHash);
    add("/etc/ldap/init.ldif", format!("userPassword: {{SSHA}}{}\n", base64(24)), PasswordHash);
    add("/etc/dovecot/users", format!("me:{{SHA512-CRYPT}}$6$salt${}\n", word(86)), PasswordHash);
    add(
        "/boot/grub2/user.cfg",
        format!("GRUB2_PASSWORD=grub.pbkdf2.sha512.10000.{}.{}\n", hex(128), hex(128)),
        PasswordHash,
    );
    add(
        "/etc/grub.d/01_users",
        format!("password_pbkdf2 root grub.pbkdf2.sha512.10000.{}.{}\n", hex(64), hex(64)),
        PasswordHash,
    );
    add("/etc/pgbouncer/userlist.txt", format!("\"me\" \"md5{}\"\n", hex(32)), PasswordHash);
    add(
        "/etc/pg.sql",
        format!(
            "ALTER ROLE me PASSWORD 'SCRAM-SHA-256$4096:{}${}:{}';\n",
            base64(16),
            base64(32),
            base64(32)
        ),
        PasswordHash,
    );
    add(
        "/etc/samba/smbpasswd",
        format!(
            "me:1000:{}:{}:[U          ]:LCT-00000000:\n",
            "X".repeat(32),
            hex(32).to_uppercase()
        ),
        PasswordHash,
    );
    for (prefix, rest) in [
        ("ghp_", word(36)),
        ("gho_", word(36)),
        ("github_pat_", word(82)),
        ("glpat-", word(20)),
        ("gldt-", word(20)),
        ("xoxb-", format!("{}-{}-{}", made(12, "0123456789"), made(13, "0123456789"), word(24))),
        ("xoxp-", format!("{}-{}", made(12, "0123456789"), hex(32))),
        ("npm_", word(36)),
        ("pypi-AgEIcHlwaS5vcmc", word(60)),
        ("AKIA", made(16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567")),
        ("AIza", word(35)),
        ("ya29.", word(60)),
        ("GOCSPX-", word(28)),
        ("dop_v1_", hex(64)),
        ("hvs.", word(95)),
        ("sha256~", word(43)),
        ("tskey-auth-", word(30)),
        ("glsa_", format!("{}_{}", word(32), hex(8))),
        ("SG.", format!("{}.{}", word(22), word(43))),
        ("sk_live_", word(24)),
        ("dckr_pat_", word(27)),
        ("hf_", word(34)),
        ("https://hooks.slack.com/services/", format!("T{}/B{}/{}", word(8), word(8), word(24))),
        ("K10", format!("{}::server:{}", hex(64), hex(32))),
    ] {
        add("/etc/motd", format!("use {prefix}{rest} for it\n"), Token);
    }
    add("/usr/local/bin/a", "curl -u me:sesame https://h.example/x\n".into(), Password);
    add("/usr/local/bin/a", "curl -sSf --user 'me:sesame' https://h.example/x\n".into(), Password);
    add("/usr/local/bin/a", "curl -sS -ume:sesame https://h.example/x\n".into(), Password);
    add(
        "/usr/local/bin/a",
        "curl -H 'Authorization: Basic bWU6c2VzYW1l' https://h\n".into(),
        Password,
    );
    add("/usr/local/bin/a", format!("curl -H \"PRIVATE-TOKEN: {}\" https://h\n", word(24)), Token);
    add("/usr/local/bin/a", "podman login -u me -p sesame registry.example.com\n".into(), Password);
    add(
        "/usr/local/bin/a",
        "skopeo copy --src-creds=me:sesame docker://a dir:b\n".into(),
        Password,
    );
    add("/usr/local/bin/a", "sshpass -p sesame ssh me@h\n".into(), Password);
    add("/usr/local/bin/a", "echo 'root:sesame' | chpasswd\n".into(), Password);
    add("/usr/local/bin/a", "echo sesame | passwd --stdin root\n".into(), Password);
    add("/usr/local/bin/a", "openssl req -passin pass:sesame\n".into(), Password);
    add(
        "/etc/azure.env",
        format!(
            "CONNECTION=\"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={};EndpointSuffix=core.windows.net\"\n",
            base64(64)
        ),
        SharedKey,
    );
    add(
        "/usr/local/bin/a",
        format!(
            "wget 'https://a.blob.core.windows.net/c/x?sv=2022-11-02&sp=r&se=2030-01-01&sig={}%3D'\n",
            word(43)
        ),
        SignedUrl,
    );
    add(
        "/etc/urls",
        format!(
            "https://b.s3.amazonaws.com/x?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=600&X-Amz-Signature={}\n",
            hex(64)
        ),
        SignedUrl,
    );
    add("/etc/azure.conf", format!("id: {}8Q~{}\n", word(3), word(34)), Token);
    add("/etc/x.jwt", "x eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln\n".into(), Token);
    add("/etc/redis.conf", "requirepass sesame\n".into(), Password);
    add("/etc/nslcd.conf", "binddn cn=me\nbindpw sesame\n".into(), Password);
    add("/etc/sssd/sssd.conf", "ldap_default_authtok = sesame\n".into(), Password);
    add(
        "/etc/keepalived/keepalived.conf",
        "authentication {\n  auth_type PASS\n  auth_pass 1234\n}\n".into(),
        Password,
    );
    add("/etc/haproxy.cfg", "  stats auth me:sesame\n".into(), Password);
    add("/etc/haproxy.cfg", "userlist u\n  user me insecure-password sesame\n".into(), Password);
    add("/etc/frr/frr.conf", " neighbor 192.0.2.1 password sesame\n".into(), Password);
    add(
        "/etc/snmp/snmpd.conf",
        "createUser me SHA \"sesame-open\" AES \"sesame-shut\"\n".into(),
        Password,
    );
    add("/etc/snmp/snmpd.conf", "rocommunity sesame 192.0.2.0/24\n".into(), Password);
    add("/etc/postfix/sasl_passwd", "[smtp.example.com]:587 me:sesame\n".into(), Password);
    add("/etc/ssmtp/ssmtp.conf", "AuthUser=me\nAuthPass=sesame\n".into(), Password);
    add("/etc/msmtprc", "user me\npassword sesame\n".into(), Password);
    add("/etc/iscsi/iscsid.conf", "node.session.auth.password = sesame\n".into(), Password);
    add("/etc/samba/creds", "username=me\npassword=sesame\n".into(), Password);
    add("/etc/fstab", "//nas/x /x cifs username=me,password=sesame 0 0\n".into(), Password);
    add(
        "/etc/NetworkManager/system-connections/w",
        "[wifi-security]\npsk=sesame-open\n".into(),
        SharedKey,
    );
    add("/etc/wpa_supplicant.conf", "network={\n  psk=\"sesame-open\"\n}\n".into(), SharedKey);
    add("/etc/hostapd.conf", "wpa_passphrase=sesame-open\n".into(), Password);
    add(
        "/etc/ceph/ceph.client.admin.keyring",
        format!("[client.admin]\n\tkey = {}\n", base64(28)),
        SharedKey,
    );
    add("/etc/consul.d/a.json", json!({"encrypt": base64(32)}).to_string(), SharedKey);
    add("/etc/munge/munge.key", word(128), SharedKey);
    add("/var/lib/rabbitmq/.erlang.cookie", word(20), SharedKey);
    add("/etc/corosync/authkey", word(128), SharedKey);
    add("/etc/cryptsetup-keys.d/data.key", "sesame".into(), DiskKey);
    add("/etc/kubernetes/token", word(40), Token);
    add("/etc/db/password", "sesame\n".into(), Password);
    add("/etc/libvirt/a.xml", "<domain><password>sesame</password></domain>\n".into(), Password);
    add("/etc/tomcat/users.xml", "<user username=\"me\" password=\"sesame\"/>\n".into(), Password);
    add("/etc/puppet/a.pp", "  password => 'sesame',\n".into(), Password);
    add("/etc/cloud/a.yaml", "users:\n- name: me\n  plain_text_passwd: sesame\n".into(), Password);
    add("/root/ks.cfg", "rootpw --plaintext sesame\n".into(), Password);
    add("/etc/nvme/hostkey", format!("DHHC-1:00:{}:\n", base64(36)), SharedKey);
    add(
        "/var/lib/kubelet/config.json",
        json!({"auths": {"quay.io": {"auth": "dTpw"}}}).to_string(),
        RegistryLogin,
    );
    add("/etc/systemd/system/a.service", "[Service]\nSetCredential=db:sesame\n".into(), Password);
    add("/etc/zabbix/web.conf.php", "$DB['PASSWORD'] = 'sesame';\n".into(), Password);
    add("/etc/keystore.yaml", format!("p12: {}\n", STANDARD.encode(&der_keys()[4].1)), PrivateKey);
    let binary: [&[u8]; 3] = [
        &[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2],
        &[5, 2, 0, 0, 0, 0x40, 0, 1],
        b"openssh-key-v1\0\0\0\0\x04none",
    ];
    let binary = binary.into_iter().map(|bytes| ("/etc/some.bin", bytes.to_vec(), PrivateKey));
    all.extend(binary);
    all.extend(der_keys().map(|(path, bytes)| (path, bytes, PrivateKey)));
    all
}

#[test]
fn everything_that_is_planted_is_found() {
    let planted = planted();
    assert!(planted.len() >= 100, "{}", planted.len());
    let missed: Vec<_> = planted
        .iter()
        .filter_map(|(path, bytes, kind)| {
            let found = find(Some(path), bytes);
            (!found.contains(kind)).then(|| {
                format!("{path}: {kind}, found {found:?}: {}", String::from_utf8_lossy(bytes))
            })
        })
        .collect();
    assert!(missed.is_empty(), "{} missed:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn what_is_planted_in_a_config_is_found_at_its_place_also_compressed() {
    for (path, bytes, kind) in planted() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), Compression::fast());
        std::io::Write::write_all(&mut encoder, &bytes).unwrap();
        let packed = ignition::data_url::encode_base64(&encoder.finish().unwrap());
        let config = json!({
            "ignition": {"version": "3.4.0"},
            "storage": {"files": [{"path": path, "contents": {"source": packed, "compression": "gzip"}}]},
        });
        let config = Config::parse(&config.to_string()).unwrap();
        let found: BTreeSet<_> =
            secrets(&config, &mut UnpackBudget::default()).into_iter().collect();
        let expected = Secret { place: SecretPlace::File(path.to_owned()), kind };
        assert!(found.contains(&expected), "{path}: {kind}: {found:?}");
    }
}

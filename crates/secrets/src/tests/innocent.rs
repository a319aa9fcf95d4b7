//! Files of machines that only look as if they contained a secret.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::super::search::find;
use super::planted::{base64, der, hex, pem, word};

/// Files, each with its path.
#[allow(clippy::too_many_lines, reason = "it is a table")]
fn innocent() -> Vec<(&'static str, Vec<u8>)> {
    let hash = hex(64);
    let public_key = der(0x30, &[der(0x30, &[6, 3, 0x2a, 3, 4]), der(3, &[0; 65])].concat());
    let certificate =
        der(0x30, &[der(0x30, &[0xa0, 3, 2, 1, 2, 2, 1, 1]), der(0x30, &[6, 1, 1])].concat());
    let signature = der(0x30, &[der(2, &[1; 32]), der(2, &[1; 32])].concat());
    let mut all = vec![
        ("/etc/a.der", public_key.clone()),
        ("/etc/a.crt", certificate),
        ("/etc/a.sig", signature),
        ("/etc/a.yaml", format!("key: {}\n", STANDARD.encode(public_key)).into_bytes()),
        ("/etc/gzip", [&[0x1f, 0x8b, 8, 0], &[0x30; 64][..]].concat()),
        ("/etc/pubring.gpg", [&[0x99, 1, 13, 4][..], &[1; 64]].concat()),
    ];
    let texts: [(&str, String); 80] = [
        ("/etc/pam.d/system-auth", "password    requisite     pam_pwquality.so\npassword sufficient pam_unix.so sha512 shadow\n".into()),
        ("/etc/nsswitch.conf", "passwd:     files sss systemd\nshadow:     files\n".into()),
        ("/etc/ssh/sshd_config", "PasswordAuthentication no\nPermitEmptyPasswords no\nAuthorizedKeysFile .ssh/authorized_keys\n".into()),
        ("/etc/passwd", "root:x:0:0:root:/root:/bin/bash\nme:!:1000:1000::/home/me:/bin/sh\n".into()),
        ("/etc/shadow", "root:*:19000:0:99999:7:::\nme:!!:19000::::::\nx::19000::::::\n".into()),
        ("/etc/group", "wheel:x:10:me\n".into()),
        ("/etc/chrony.conf", "pool 2.rhel.pool.ntp.org iburst\nkeyfile /etc/chrony.keys\nmakestep 1.0 3\n".into()),
        ("/etc/sums", format!("{hash}  file.tar.gz\nsha256:{hash}\nmd5: {}\n", hex(32))),
        ("/etc/image.yaml", format!("image: quay.io/a/b@sha256:{hash}\n")),
        ("/etc/kubelet.yaml", "rotateCertificates: true\nauthentication:\n  webhook:\n    enabled: true\n  x509:\n    clientCAFile: /etc/kubernetes/ca.crt\n".into()),
        ("/etc/pod.yaml", "kind: Pod\nspec:\n  containers:\n  - env:\n    - name: PASSWORD\n      valueFrom:\n        secretKeyRef:\n          name: db\n          key: password\n".into()),
        ("/etc/pod.yaml", "volumes:\n- name: s\n  secret:\n    secretName: db-password\n".into()),
        ("/etc/pod.yaml", "volumes:\n- secret: my-long-secret-name\n".into()),
        ("/etc/pod.yaml", "- name: TOKEN_FILE\n  value: /run/token\n- name: LOG_LEVEL\n  value: info\n".into()),
        ("/etc/role.yaml", "kind: Role\nrules:\n- resources: [secrets, tokenreviews]\n  verbs: [get]\n".into()),
        ("/etc/cm.yaml", "apiVersion: v1\nkind: ConfigMap\ndata:\n  a: b\n".into()),
        ("/etc/secret.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: empty\n".into()),
        ("/etc/kubeconfig", "kind: Config\nusers:\n- user:\n    tokenFile: /run/token\n".into()),
        ("/etc/kubeconfig", "kind: Config\nusers:\n- user:\n    client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n".into()),
        ("/etc/a.sh", "TOKEN=$(cat /var/run/token)\nexport PASSWORD=\"${1}\"\n".into()),
        ("/etc/a.sh", "if grep -q -- '-----BEGIN RSA PRIVATE KEY-----' \"$1\"; then :; fi\n".into()),
        ("/etc/a.sh", "sed -n '/-----BEGIN PRIVATE KEY-----/,/-----END PRIVATE KEY-----/p'\n".into()),
        ("/etc/a.sh", "curl -u \"$USER:$PASSWORD\" https://h\ncurl -u me https://h\n".into()),
        ("/etc/a.sh", "curl -fsSL --retry 5 https://h.example/a -o /b -H 'Accept: x'\n".into()),
        ("/etc/a.sh", "podman login --authfile /x -p \"$P\" h\nmkdir -p /etc/x\nsshpass -f /run/p ssh h\n".into()),
        ("/etc/a.sh", "podman run -p 8080:80 --name x y\ndocker login\nmkdir -p /a\n".into()),
        ("/etc/a.sh", "echo \"$USER:$P\" | chpasswd\necho done | tee log\n".into()),
        ("/etc/a.sh", "openssl x509 -in a -passin env:P\nopenssl rand -hex 32\n".into()),
        ("/etc/a.sh", "read -rsp 'Password: ' password\necho \"Enter the password: now\"\n".into()),
        ("/etc/a.sh", "# password=sesame\n; token=0123456789\n// secret = \"0123456789\"\n".into()),
        ("/etc/a.sh", "bypass=yes-please\ncompass=north-west\nPWD=/home/me\n".into()),
        ("/etc/a.sh", "for key in a b; do monkey=bananas-for-all; done\n".into()),
        ("/etc/a.sh", "LS_COLORS=$1$2$3\necho \"costs $1$ and more\"\n".into()),
        ("/etc/a.service", "[Service]\nExecStart=/bin/x --token-file=/run/token --password-file /run/password\n".into()),
        ("/etc/a.service", "[Service]\nLoadCredential=db:/run/db\nSetCredentialEncrypted=db: Whxqht\n".into()),
        ("/etc/a.service", "[Unit]\nDescription=Rotate the token: daily\nAfter=network.target\n".into()),
        ("/etc/proxy.env", "HTTP_PROXY=http://proxy:3128\nNO_PROXY=.cluster.local,10.0.0.0/8\n".into()),
        ("/etc/urls", "url: http://user:$PASSWORD@proxy\nssh://git@example.com:22/x\nhttps://h:443/a@b\n".into()),
        ("/etc/urls", "https://h/a?version=1&sig=short\nhttps://h/?signature=verified-by-the-server-itself\n".into()),
        ("/root/.ssh/authorized_keys", format!("ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI{} me@example\n", word(43))),
        ("/etc/ca.crt", "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n".into()),
        ("/etc/ca.crt", pem("CERTIFICATE")),
        ("/etc/a.pub", pem("PUBLIC KEY")),
        ("/etc/a.asc", format!("-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n{}\n", base64(200))),
        ("/etc/dh.pem", pem("DH PARAMETERS")),
        ("/etc/readme", "the machine asks for a login and a password\nA password is needed.\n".into()),
        ("/etc/readme", "-----BEGIN PRIVATE KEY----- is how such a file begins\n".into()),
        ("/etc/readme", "tokens of GitHub begin with ghp_, those of GitLab with glpat- and Slack's with xoxb-\n".into()),
        ("/etc/readme", format!("ghp_{}\nglpat-{}\n", "x".repeat(36), "X".repeat(20))),
        ("/etc/readme", "the basic authentication of bearer tokens is documented elsewhere\n".into()),
        ("/etc/netrc", "machine h.example login me password $PASSWORD\n".into()),
        ("/etc/jwk.json", json!({"keys": [{"kty": "EC", "x": "a", "y": "b"}, {"kty": "RSA", "n": "a", "e": "AQAB"}]}).to_string()),
        ("/etc/auth.json", json!({"auths": {}}).to_string()),
        ("/etc/auth.json", json!({"auths": {"quay.io": {}}}).to_string()),
        ("/etc/a.json", json!({"name": "password", "type": "string", "value": "$PASSWORD"}).to_string()),
        ("/etc/schema.json", json!({"properties": {"password": {"type": "string"}, "token": {"type": "string"}}}).to_string()),
        ("/etc/ipsec.conf", "conn a\n  authby=secret\n  left=%any\n".into()),
        ("/etc/ipsec.secrets", ": RSA server.key\n".into()),
        ("/etc/named.conf", "key \"a\" { algorithm hmac-sha256; };\ninclude \"/etc/rndc.key\";\n".into()),
        ("/etc/sysctl.d/a.conf", "kernel.keys.maxkeys = 65536\nkernel.keys.root_maxbytes=25000000\nnet.ipv4.tcp_fastopen_key = 0\n".into()),
        ("/etc/crio/crio.conf", "[crio.image]\nglobal_auth_file = \"/var/lib/kubelet/config.json\"\npause_image_auth_file = \"\"\n".into()),
        ("/etc/a.env", "PASSWORD=/run/secrets/db1\nA_PASSWORD=./db\nB_PASSWORD=~/db1\nC_PASSWORD=%d/db1\nD_PASSWORD=/password\n".into()),
        ("/etc/a.env", "API_TOKEN=/var/lib/App1/Tokens/Release2/Current3/Machine4/Default5\nPRIVATE_KEY=/etc/pki/Host1.pem\n".into()),
        ("/etc/a.yaml", "password: !vault x\npasswd: *alias\ntoken: !!str x\nuserPassword: '%s'\ndbPassword: \"%PASSWORD%\"\nadminPassword: '@PASSWORD@'\n".into()),
        ("/etc/a.json", json!({"password": "/run/secrets/db1", "token": "/run/token", "userPassword": "%s", "dbPassword": "<password>"}).to_string()),
        ("/etc/a.yaml", "args:\n- --pair-secret=machine-config-server/tls\n- --tls-secret=my-tls-secret\n- --tls-secret=$(NS)/tls\n".into()),
        ("/etc/ssl/openssl.cnf", "challengePassword\t\t= A challenge password\nchallengePassword_min = 4\n".into()),
        ("/etc/mount", "fs=ext4,pass=2,opts=ro\n".into()),
        ("/etc/a.txt", format!("1700000000 {}\n4096 LongNameOfSomething123\n", hex(32))),
        ("/etc/bash_completion.d/a", "declare -A OPTS=(\n  [PASSWORD]='--opt --other'\n)\n".into()),
        ("/usr/bin/a.py", "password = get_password()\ntoken = os.environ['APP_TOKEN']\nself.password = self.given.password\nlogin(password=password, token=session.current_token)\n".into()),
        ("/usr/bin/a", "#!/usr/bin/env python3\ntoken = tokens.next_of_them\npassword: Optional[str] = None\n".into()),
        ("/usr/bin/a", "#!/usr/bin/perl\nmy $password = shift || prompt_for_it;\n".into()),
        ("/usr/bin/a.sh", "password=$(get)\npassword = get_password(user, 'x')\ntoken = os.environ['APP_TOKEN']\n".into()),
        ("/etc/cm.yaml", "kind: ConfigMap\ndata:\n  a: b\ntarget:\n  kind: Secret\n".into()),
        ("/etc/list.yaml", "kind: List\nitems:\n- apiVersion: v1\n  data:\n    a: b\n  kind: ConfigMap\n- apiVersion: v1\n  kind: Secret\n  metadata: {}\n".into()),
        ("/etc/readme", "API-AUTHENTICATION-IS-DESCRIBED, s.replaceAllTheThingsInTheMap, A3T, EAAA and SK are no tokens\n".into()),
        ("/usr/bin/a.rs", "json!({\"jks\": {\"create\": true, \"password\": PASSWORD}})\n".into()),
        ("/etc/readme", "password: \"…\"\npair({\"a\": b, \"secret\": \"namespace/secret\"})\n".into()),
        ("/etc/times", "at 10:20: token\n10:20:30:me:abcdefghijklm\nuser:abcdefghijklm\n".into()),
    ];
    all.extend(texts.map(|(path, text)| (path, text.into_bytes())));
    all
}

#[test]
fn what_only_looks_like_a_secret_is_none() {
    let taken: Vec<_> = innocent()
        .into_iter()
        .filter_map(|(path, bytes)| {
            let found = find(Some(path), &bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            (!found.is_empty()).then(|| format!("{path}: {found:?}: {text}"))
        })
        .collect();
    assert!(taken.is_empty(), "{}", taken.join("\n"));
}

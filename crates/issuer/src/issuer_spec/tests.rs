//! Tests of valid and invalid issuers.

use serde_json::json;

use super::*;

fn cluster_issuer() -> ObjectName {
    ObjectName::new(CLUSTER_ISSUER, "", "a")
}

#[test]
fn an_issuer_is_read_with_its_policy() {
    let spec = json!({
        "signer": {"machineConfigServer": {}},
        "policy": {
            "dnsNames": ["*.example.com"], "ipAddresses": ["192.0.2.0/24", "2001:db8::1"],
            "uris": ["spiffe://a/*"], "subjects": ["O=x"], "usages": ["server auth", "signing"],
            "maxDuration": "36h0m0s", "isCA": true,
        },
    });
    let read = IssuerSpec::read(&spec, &cluster_issuer()).unwrap();
    assert_eq!(read.signer, SignerSpec::MachineConfigServer);
    let Policy { dns_names, addresses, uris, subjects, usages, longest, is_ca } = read.policy;
    assert_eq!(
        (dns_names, uris),
        (vec!["*.example.com".to_owned()], vec!["spiffe://a/*".to_owned()])
    );
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(addresses, ["192.0.2.0/24", "2001:db8::1/128"]);
    assert_eq!((subjects, is_ca), (vec!["O=x".to_owned()], true));
    assert_eq!(usages, [Usage::DIGITAL_SIGNATURE, Usage::SERVER_AUTH].into());
    assert_eq!(longest, Duration::from_secs(36 * 3600));

    let of_namespace = ObjectName::new(ISSUER, "ns", "a");
    let spec = json!({"signer": {"secret": {"name": "own"}}});
    let read = IssuerSpec::read(&spec, &of_namespace).unwrap();
    assert_eq!(read.signer, SignerSpec::Secret("own".to_owned()));
    assert_eq!(read.policy, Policy::default());
}

#[test]
fn an_issuer_that_is_not_understood_is_none() {
    let with = |policy: Value| json!({"signer": {"secret": {"name": "a"}}, "policy": policy});
    for (spec, expected) in [
        (json!(null), "its spec cannot be read"),
        (json!({}), "missing field `signer`"),
        (json!({"signer": {}}), "its spec cannot be read"),
        (json!({"signer": {"somebody": {}}}), "unknown variant `somebody`"),
        (json!({"signer": {"secret": {"name": 1}}}), "invalid type"),
        (with(json!({"dnsName": ["a"]})), "unknown field `dnsName`"),
        (with(json!({"isCA": "yes"})), "invalid type"),
        (with(json!({"ipAddresses": ["a"]})), "\"a\" is not an address or a network"),
        (with(json!({"usages": ["a"]})), "\"a\" is not a known key usage"),
        (with(json!({"maxDuration": "a"})), "\"a\" is not a duration"),
    ] {
        let error = IssuerSpec::read(&spec, &cluster_issuer()).unwrap_err();
        assert!(error.contains(expected), "{spec}: {error}");
    }
    let of_namespace = ObjectName::new(ISSUER, "ns", "a");
    let spec = json!({"signer": {"machineConfigServer": {}}});
    let error = IssuerSpec::read(&spec, &of_namespace).unwrap_err();
    assert_eq!(error, "only a ClusterIssuer can use the server's signing CA");
}

#[test]
fn a_ca_beyond_the_cluster_is_read_from_an_issuer_of_its_own_or_from_a_signer() {
    let fields = json!({
        "url": "https://ca/pkix", "caName": "servers", "recipient": "CN=ca", "expectSender": "CN=ra",
        "senderKID": "4711", "secretRef": {"name": "a"}, "allowSHA1": true,
        "certSecretRef": {"name": "b", "cacertRef": "https.crt", "trustedRef": "roots.crt"},
    });
    let of_its_own = ObjectName::new(CMPV2_ISSUER, "", "a");
    let mut whole = fields.clone();
    whole["policy"] = json!({"dnsNames": ["*"]});
    let read = IssuerSpec::read(&whole, &of_its_own).unwrap();
    assert_eq!(read.policy.dns_names, ["*"]);
    let as_signer = json!({"signer": {"cmpv2": fields}, "policy": {"dnsNames": ["*"]}});
    assert_eq!(IssuerSpec::read(&as_signer, &cluster_issuer()).unwrap(), read);
    let SignerSpec::Upstream(upstream) = read.signer else { panic!("another signer") };
    assert_eq!(upstream.secrets(), ["a", "b"].into());
    assert_eq!(upstream.recipient.as_ref().unwrap().to_string(), "CN=ca");
    assert!(upstream.allow_sha1 && !upstream.allow_http);
    let names = [&upstream.cas, &upstream.trusted].map(|it| it.as_ref().unwrap().to_string());
    assert_eq!(names, ["https.crt of Secret b", "roots.crt of Secret b"]);
    let ProofSpec::Password { password, reference } = upstream.proof else { panic!("a pair") };
    assert_eq!(
        (password.to_string().as_str(), reference.as_str()),
        ("password of Secret a", "4711")
    );
}

#[test]
fn without_a_password_a_pair_signs_and_what_nobody_names_has_its_usual_key() {
    let of_its_own = ObjectName::new(CMPV2_ISSUER, "", "a");
    let read = |spec: Value| match IssuerSpec::read(&spec, &of_its_own)?.signer {
        SignerSpec::Upstream(upstream) => Ok(*upstream),
        other => Err(format!("{other:?}")),
    };
    let upstream = read(json!({"url": "u", "certSecretRef": {"name": "b"}})).unwrap();
    let ProofSpec::Certificate { certificate, key } = &upstream.proof else { panic!("a password") };
    let names = [certificate, key].map(ToString::to_string);
    assert_eq!(names, ["tls.crt of Secret b", "tls.key of Secret b"]);
    assert_eq!(upstream.cas, upstream.trusted);
    assert_eq!(upstream.trusted.unwrap().to_string(), "ca.crt of Secret b");
    for (spec, expected) in [
        (json!(null), "its spec cannot be read"),
        (
            json!({"url": "u"}),
            "neither secretRef nor certSecretRef is set: one must authenticate the request",
        ),
        (json!({"secretRef": {"name": "a"}}), "missing field `url`"),
        (json!({"url": "u", "signer": {}}), "unknown field `signer`"),
        (json!({"url": "u", "secretRef": {"name": "a", "keyRef": "b"}}), "unknown field `keyRef`"),
        (
            json!({"url": "u", "secretRef": {"name": "a"}, "recipient": "ca"}),
            "recipient: \"ca\" is not a name",
        ),
        (
            json!({"url": "u", "secretRef": {"name": "a"}, "policy": {"names": []}}),
            "unknown field `names`",
        ),
    ] {
        let error = read(spec.clone()).unwrap_err();
        assert!(error.contains(expected), "{spec}: {error}");
    }
}

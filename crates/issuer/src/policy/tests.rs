//! Tests of requests that policies cover, and of others.

use super::*;

fn policy() -> Policy {
    Policy {
        dns_names: vec!["a.example.com".to_owned(), "*.apps.example.com".to_owned()],
        addresses: ["192.0.2.0/24", "198.51.100.7/32", "::/0"]
            .map(|network| network.parse().unwrap())
            .into(),
        uris: vec!["spiffe://example.com/*".to_owned()],
        subjects: vec!["O=Example".to_owned(), "OU=*".to_owned(), "CN=user *".to_owned()],
        ..Policy::default()
    }
}

fn requested(request: SigningRequest) -> RequestedCertificate {
    RequestedCertificate { request, usages: BTreeSet::new(), is_ca: false, duration: None }
}

fn names(dns_names: &[&str]) -> SigningRequest {
    let dns_names = dns_names.iter().map(|&name| name.to_owned()).collect();
    SigningRequest { dns_names, ..SigningRequest::default() }
}

fn usages(words: &[&str]) -> BTreeSet<Usage> {
    words.iter().map(|word| word.parse().unwrap()).collect()
}

fn refusals(policy: &Policy, requested: RequestedCertificate) -> Vec<String> {
    policy.grant(requested, &ReservedNames::default()).err().unwrap_or_default()
}

#[test]
fn names_are_signed_that_the_policy_lists() {
    for (name, is_allowed) in [
        ("a.example.com", true),
        ("A.Example.com", true),
        ("b.example.com", false),
        ("a.apps.example.com", true),
        ("a.b.apps.example.com", true),
        ("*.apps.example.com", true),
        ("apps.example.com", false),
        ("anapps.example.com", false),
        ("*.example.com", false),
    ] {
        let refused = refusals(&policy(), requested(names(&[name])));
        let expected = format!("the issuer's dnsNames do not cover {name}");
        assert_eq!(refused, if is_allowed { vec![] } else { vec![expected] }, "{name}");
    }
    for name in ["", "a b", "*", "a.apps.example.com.", "*.*.apps.example.com", "192.0.2.1"] {
        let refused = refusals(&policy(), requested(names(&[name])));
        assert_eq!(refused, [format!("{name:?} is not a DNS name")], "{name:?}");
    }
    assert_eq!(refusals(&policy(), requested(names(&[]))), ["requests no name"]);
    let all = Policy { dns_names: vec!["*".to_owned()], ..Policy::default() };
    assert_eq!(refusals(&all, requested(names(&["*.example.org"]))), [""; 0]);
}

#[test]
fn by_default_no_name_is_signed_and_no_ca() {
    let refused = refusals(
        &Policy::default(),
        RequestedCertificate { is_ca: true, ..requested(names(&["a"])) },
    );
    assert_eq!(
        refused,
        [
            "the issuer's dnsNames do not cover a",
            "requests a CA certificate, and the issuer's policy does not have isCA: true",
        ]
    );
}

#[test]
fn addresses_uris_and_subjects_are_signed_that_the_policy_lists() {
    let text = |kind: &str, value: &str| (kind.to_owned(), value.to_owned());
    let good = SigningRequest {
        addresses: vec!["192.0.2.1".parse().unwrap()],
        uris: vec!["spiffe://example.com/ns/a".to_owned()],
        subject: vec![text("CN", "a.example.com"), text("O", "Example"), text("OU", "any")],
        ..SigningRequest::default()
    };
    assert_eq!(refusals(&policy(), requested(good)), [""; 0]);
    let bad = SigningRequest {
        addresses: vec!["203.0.113.1".parse().unwrap()],
        uris: vec!["spiffe://example.org/ns/a".to_owned()],
        subject: vec![text("CN", "b.example.com"), text("O", "Example Two"), text("C", "NO")],
        others: vec!["the extension 1.2.3".to_owned()],
        ..SigningRequest::default()
    };
    assert_eq!(
        refusals(&policy(), requested(bad)),
        [
            "the issuer's ipAddresses do not cover 203.0.113.1",
            "the issuer's uris do not cover \"spiffe://example.org/ns/a\"",
            "the issuer's subjects do not cover \"CN=b.example.com\"",
            "the issuer's subjects do not cover \"O=Example Two\"",
            "the issuer's subjects do not cover \"C=NO\"",
            "requests the extension 1.2.3, which this issuer never signs",
        ]
    );
    for (name, is_allowed) in [
        ("user a", true),
        ("192.0.2.9", true),
        ("::ffff:192.0.2.9", true),
        ("203.0.113.9", false),
        ("::ffff:203.0.113.9", false),
    ] {
        let request =
            SigningRequest { subject: vec![text("CN", name)], ..SigningRequest::default() };
        assert_eq!(refusals(&policy(), requested(request)).is_empty(), is_allowed, "{name}");
    }
}

#[test]
fn names_of_the_server_have_to_be_listed_as_they_are() {
    let reserved: ReservedNames = [
        "api.apps.example.com",
        "a.example.com",
        "*.wild.apps.example.com",
        "::ffff:192.0.2.5",
        "198.51.100.7",
        "2001:db8::7",
    ]
    .into_iter()
    .collect();
    for (name, is_allowed) in [
        ("b.apps.example.com", true),
        ("api.apps.example.com", false),
        ("API.apps.example.com", false),
        ("*.apps.example.com", false),
        ("*.b.apps.example.com", true),
        ("web.wild.apps.example.com", false),
        ("*.wild.apps.example.com", false),
        ("a.web.wild.apps.example.com", true),
        ("a.example.com", true),
    ] {
        let granted = policy().grant(requested(names(&[name])), &reserved);
        assert_eq!(granted.is_ok(), is_allowed, "{name}");
    }
    for (address, is_allowed) in [
        ("192.0.2.6", true),
        ("192.0.2.5", false),
        ("198.51.100.7", true),
        ("::ffff:192.0.2.6", true),
        ("::ffff:192.0.2.5", false),
        ("::ffff:198.51.100.7", true),
        ("::ffff:203.0.113.1", false),
        ("2001:db8::7", false),
        ("2001:db8::8", true),
    ] {
        let addresses = vec![address.parse().unwrap()];
        let request = SigningRequest { addresses, ..SigningRequest::default() };
        assert_eq!(policy().grant(requested(request), &reserved).is_ok(), is_allowed, "{address}");
    }
    // Some clients read a common name like a DNS name.
    let any = Policy { subjects: vec!["CN=*".to_owned()], ..policy() };
    for (name, is_allowed) in [
        ("other", true),
        ("a.example.com", true),
        ("api.apps.example.com", false),
        ("api.apps.example.com.", false),
        ("*.apps.example.com", false),
        ("web.wild.apps.example.com", false),
        ("192.0.2.5", false),
        ("::ffff:192.0.2.5", false),
        ("::ffff:c000:205", false),
    ] {
        let subject = vec![("CN".to_owned(), name.to_owned())];
        let request = SigningRequest { subject, ..SigningRequest::default() };
        assert_eq!(any.grant(requested(request), &reserved).is_ok(), is_allowed, "{name}");
    }
}

#[test]
fn usages_are_signed_that_the_policy_lists_and_none_means_the_policy_s() {
    let granted = |asked_usages: &[&str], in_request: &[&str]| {
        let request = SigningRequest { usages: usages(in_request), ..names(&["a.example.com"]) };
        let requested = RequestedCertificate { usages: usages(asked_usages), ..requested(request) };
        policy().grant(requested, &ReservedNames::default()).map(|grant| grant.usages)
    };
    let both = ["server auth", "client auth"];
    let default = [&["digital signature", "key encipherment"][..], &both].concat();
    assert_eq!(granted(&[], &[]), Ok(usages(&default)));
    let signature = [&["digital signature"][..], &both].concat();
    assert_eq!(granted(&[], &["digital signature"]), Ok(usages(&signature)));
    let server = ["digital signature", "server auth"];
    assert_eq!(granted(&server, &server), Ok(usages(&server)));
    assert_eq!(
        granted(&server, &["client auth"]),
        Err(vec![
            "its PKCS #10 request has the usage client auth, which its usages lack".to_owned()
        ])
    );
    for word in ["code signing", "cert sign", "any"] {
        let refused = vec![format!("the issuer's usages lack {word}")];
        assert_eq!(granted(&["digital signature", word], &[]), Err(refused));
    }
}

#[test]
fn a_ca_is_signed_where_the_policy_says_so() {
    let policy = Policy { is_ca: true, ..policy() };
    let ask = |is_ca, in_request| RequestedCertificate {
        is_ca,
        ..requested(SigningRequest { is_ca: in_request, ..names(&["a.example.com"]) })
    };
    let grant = policy.grant(ask(true, Some(true)), &ReservedNames::default()).unwrap();
    assert!(grant.is_ca);
    let all = ["digital signature", "key encipherment", "cert sign", "crl sign"];
    assert_eq!(grant.usages, usages(&all));
    assert!(!policy.grant(ask(false, None), &ReservedNames::default()).unwrap().is_ca);
    for (is_ca, in_request) in [(true, false), (false, true)] {
        assert_eq!(
            refusals(&policy, ask(is_ca, Some(in_request))),
            ["its basic constraints contradict its isCA"]
        );
    }
}

#[test]
fn a_certificate_is_valid_no_longer_than_the_policy_says() {
    let grant = |longest: u64, asked_for: Option<u64>| {
        let policy = Policy { longest: Duration::from_secs(longest), ..policy() };
        let duration = asked_for.map(Duration::from_secs);
        let requested = RequestedCertificate { duration, ..requested(names(&["a.example.com"])) };
        policy.grant(requested, &ReservedNames::default()).map(|grant| grant.duration.as_secs())
    };
    assert_eq!(grant(7200, Some(7200)), Ok(7200));
    assert_eq!(
        grant(7200, Some(9015)),
        Err(vec![
            "requests a validity of 2h30m15s, longer than the issuer's maxDuration, 2h".to_owned()
        ])
    );
    assert_eq!(grant(7200, None), Ok(7200), "not the usual time, which is longer");
    assert_eq!(grant(u64::MAX, None), Ok(LONGEST.as_secs()));
    assert!(grant(7200, Some(0)).is_err());
}

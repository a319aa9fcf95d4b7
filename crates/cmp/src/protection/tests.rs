//! Tests of protections that are accepted and refused.

use super::*;

fn mac_of(owf: ObjectIdentifier, mac: ObjectIdentifier, rounds: u64) -> AlgorithmIdentifierOwned {
    let algorithm = |oid| AlgorithmIdentifierOwned { oid, parameters: None };
    let parameters = PbmParameter {
        salt: OctetString::new(*b"salt").unwrap(),
        owf: algorithm(owf),
        iteration_count: rounds,
        mac: algorithm(mac),
    };
    let parameters = Some(Any::encode_from(&parameters).unwrap());
    AlgorithmIdentifierOwned { oid: PASSWORD_MAC, parameters }
}

/// The expected MAC was made with Python's `hashlib` and `hmac`, by the standard's text.
#[test]
fn a_password_makes_the_mac_of_the_standard() {
    let password = Password::new(b"password".to_vec());
    let mac = PasswordMac::read(&mac_of(SHA256, HMAC_SHA256, 100), false).unwrap();
    let made = hmac::sign(&mac.key(&password), b"message");
    assert_eq!(
        data_encoding::HEXLOWER.encode(made.as_ref()),
        "e26aceb629359e6b9f052de13affd0a4a8fdf1985e70fb3ed8374410d50e0788"
    );
    for (owf, mac) in [(SHA384, HMAC_SHA384), (SHA512, HMAC_SHA512), (SHA256, HMAC_SHA512)] {
        assert!(PasswordMac::read(&mac_of(owf, mac, 100_000), false).is_ok());
    }
}

#[test]
fn weak_and_costly_ways_to_use_a_password_are_refused() {
    let read = |owf, mac, rounds, sha1| PasswordMac::read(&mac_of(owf, mac, rounds), sha1).err();
    for (owf, mac) in [(SHA1, HMAC_SHA256), (SHA256, HMAC_SHA1), (SHA256, HMAC_WITH_SHA1)] {
        assert_eq!(read(owf, mac, 500, false), Some(ProtectionFault::Sha1));
        assert_eq!(read(owf, mac, 500, true), None);
    }
    for rounds in [0, 99, 100_001, u64::MAX] {
        let fault = Some(ProtectionFault::Iterations(rounds));
        assert_eq!(read(SHA256, HMAC_SHA256, rounds, true), fault);
    }
    let unknown = Some(ProtectionFault::Unknown(SHA256.to_string()));
    assert_eq!(read(SHA256, SHA256, 500, true), unknown);
}

#[test]
fn a_password_is_not_reported() {
    let credential =
        Credential::Password { secret: Password::new(b"hush".to_vec()), reference: Vec::new() };
    let reported = format!("{credential:?}");
    assert!(
        reported.contains("Password(..)")
            && !reported.contains("hush")
            && !reported.contains("104")
    );
}

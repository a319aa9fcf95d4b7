//! Answers of CMP servers: as they come, and with what they say in a message that is believed.

use std::sync::LazyLock;

use super::NOW;
use aws_lc_rs::{digest, hmac};
use cmp::{
    Credential, Message, MessageInputs, Password, Request, Settings, Step, Transaction,
    protected_message, protected_part,
};
use cmpv2::header::{PkiHeader, Pvno};
use cmpv2::parameter::PbmParameter;
use der::asn1::{Any, ObjectIdentifier, OctetString};
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;

/// A request whose certificate is among the seeds.
const CSR: &[u8] = include_bytes!("cmp.csr.der");
const INPUTS: MessageInputs = MessageInputs { now: NOW, nonce: [1; 16], salt: [2; 16] };
const ID: [u8; 16] = [3; 16];

/// How an answer is protected, by as few rounds as are taken, and the key for it.
static PROTECTION: LazyLock<(AlgorithmIdentifierOwned, hmac::Key)> = LazyLock::new(|| {
    let oid = |text| ObjectIdentifier::new(text).expect("an object identifier");
    let algorithm = |text| AlgorithmIdentifierOwned { oid: oid(text), parameters: None };
    let parameters = PbmParameter {
        salt: OctetString::new([0; 8]).expect("a salt"),
        owf: algorithm("2.16.840.1.101.3.4.2.1"),
        iteration_count: 100,
        mac: algorithm("1.2.840.113549.2.9"),
    };
    let mut key = [&b"secret"[..], &[0; 8]].concat();
    for _ in 0..100 {
        key = digest::digest(&digest::SHA256, &key).as_ref().to_vec();
    }
    let parameters = Some(Any::encode_from(&parameters).expect("DER"));
    let algorithm = AlgorithmIdentifierOwned { oid: oid("1.2.840.113533.7.66.13"), parameters };
    (algorithm, hmac::Key::new(hmac::HMAC_SHA256, &key))
});

fn begin() -> Transaction {
    let secret = Password::new(b"secret".to_vec());
    let settings = Settings {
        credential: Credential::Password { secret, reference: Vec::new() },
        recipient: None,
        expected_sender: None,
        trusted: Vec::new(),
        allow_sha1: true,
        implicit_confirm: true,
    };
    Transaction::begin(settings, Request::Signing(CSR), ID, INPUTS).expect("a request").0
}

/// The message with the same body in an answer that is believed.
fn believed(message: &Message<'_>) -> Option<Vec<u8>> {
    let octets = |bytes: [u8; 16]| OctetString::new(bytes).ok();
    let (algorithm, key) = &*PROTECTION;
    let header = PkiHeader {
        pvno: Pvno::Cmp2000,
        sender: GeneralName::DirectoryName(Name::default()),
        recipient: GeneralName::DirectoryName(Name::default()),
        message_time: None,
        protection_alg: Some(algorithm.clone()),
        sender_kid: None,
        recip_kid: None,
        trans_id: octets(ID),
        sender_nonce: octets([4; 16]),
        recip_nonce: octets(INPUTS.nonce),
        free_text: None,
        general_info: message.header.general_info.clone(),
    };
    let protected = protected_part(&header, &message.body().ok()?).ok()?;
    let mac = hmac::sign(key, &protected);
    protected_message(&protected, Some(mac.as_ref()), &message.extra_certificates).ok()
}

/// Judges one input.
pub fn run(bytes: &[u8]) {
    // Nobody knows the password and the nonces.
    let error = begin().take(bytes, INPUTS).expect_err("an answer that nobody protected");
    let _ = error.to_string();
    let Ok(message) = Message::read(bytes) else { return };
    let _ = (message.answer(), message.protected());
    let Some(bytes) = believed(&message) else { return };
    let mut transaction = begin();
    match transaction.take(&bytes, INPUTS) {
        Ok(Step::Done(enrolled)) => {
            let csr = CSR.windows(enrolled.certificate.key_info.len());
            assert!(csr.into_iter().any(|it| it == enrolled.certificate.key_info));
            let _ = (enrolled.chain, enrolled.cas, enrolled.modified);
        }
        Ok(Step::Send(next)) => {
            let next = Message::read(&next).expect("a message of ours");
            let nonce = next.header.recip_nonce.expect("the server's nonce");
            assert_eq!(nonce.as_bytes(), [4; 16]);
            // The same answer again: to a poll, or to nothing.
            let _ = transaction.take(&bytes, INPUTS);
        }
        Ok(Step::Wait { .. }) => panic!("nothing was polled for"),
        Err(error) => drop(error.to_string()),
    }
}

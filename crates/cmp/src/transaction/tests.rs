use der::Decode as _;
use der::asn1::{Any, ObjectIdentifier};
use pki::{KeyAlgorithm, VALIDITY};
use rcgen::KeyPair;

use super::*;
use crate::test_ca::{Ca, NOW, password, settings};

const ID: [u8; 16] = *b"one transaction.";

fn inputs(byte: u8) -> MessageInputs {
    MessageInputs { now: NOW, nonce: [byte; 16], salt: [byte; 16] }
}

fn begin(settings: Settings, key: &KeyPair) -> (Transaction, Vec<u8>) {
    let subject = "CN=a".parse().unwrap();
    let request = Request::First { subject: &subject, hosts: &[], key };
    Transaction::begin(settings, request, ID, inputs(1)).unwrap()
}

fn sent(step: Step) -> Vec<u8> {
    let Step::Send(bytes) = step else { panic!("{step:?}") };
    bytes
}

#[test]
fn a_transaction_ends_with_what_was_asked_for_and_nothing_is_said_after_it() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let (mut transaction, first) = begin(settings(password(), &ca), &key);
    let certificate = ca.issue(&key);
    let answer = ca.answer(&first, Kind::Ip, &ca.certificates(&certificate), &password());
    let confirmation = sent(transaction.take(&answer, inputs(2)).unwrap());
    // The same answer does not acknowledge the confirmation.
    let error = transaction.take(&answer, inputs(3)).unwrap_err();
    assert!(matches!(error, CmpError::WrongNonce), "{error}");
    let end = ca.answer(&confirmation, Kind::PkiConf, &[5, 0], &password());
    let Step::Done(enrolled) = transaction.take(&end, inputs(4)).unwrap() else {
        panic!("it goes on")
    };
    assert_eq!(enrolled.certificate, certificate);
    assert_eq!((enrolled.chain, enrolled.cas), (vec![], vec![ca.certificate.clone()]));
    let error = transaction.take(&end, inputs(5)).unwrap_err();
    assert!(matches!(error, CmpError::Over), "{error}");
    assert!(matches!(transaction.poll(inputs(6)), Err(CmpError::Over)));
}

#[test]
fn messages_differ_in_nonce_and_salt_and_say_whose_they_are() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let (mut transaction, first) = begin(settings(password(), &ca), &key);
    let answer = ca.answer(&first, Kind::Ip, &ca.certificates(&ca.issue(&key)), &password());
    let second = sent(transaction.take(&answer, inputs(2)).unwrap());
    let (first, second) = (Message::read(&first).unwrap(), Message::read(&second).unwrap());
    for (message, byte) in [(&first, 1), (&second, 2)] {
        let header = &message.header;
        let is = |field: &Option<OctetString>, bytes: &[u8]| {
            field.as_ref().is_some_and(|it| it.as_bytes() == bytes)
        };
        assert!(is(&header.trans_id, &ID) && is(&header.sender_kid, b"b"));
        assert!(is(&header.sender_nonce, &[byte; 16]));
    }
    assert_eq!(first.header.recip_nonce, None);
    assert_eq!(second.header.recip_nonce.unwrap().as_bytes(), [9; 16]);
    assert_ne!(first.header.protection_alg, second.header.protection_alg, "the salt");
}

#[test]
fn every_kind_of_key_signs_requests_and_answers() {
    for (name, algorithm) in KeyAlgorithm::ALL {
        let ca = Ca::with(algorithm);
        let mut wanted = settings(ca.credential(algorithm.generate().unwrap()), &ca);
        wanted.expected_sender = Some(ca.name());
        let key = algorithm.generate().unwrap();
        let (mut transaction, first) = begin(wanted, &key);
        let own = transaction.settings.credential.certificates()[0].clone();
        let read = Message::read(&first).unwrap();
        assert_eq!(read.extra_certificates, std::slice::from_ref(&own));
        let algorithm = read.header.protection_alg.clone().unwrap().to_der().unwrap();
        let algorithm = Any::from_der(&algorithm).unwrap();
        let protection = read.protection.as_ref().unwrap().as_bytes().unwrap();
        assert!(
            own.has_signed(&read.protected().unwrap(), algorithm.value(), protection),
            "{name}"
        );
        let by = Credential::Certificate {
            chain: vec![ca.certificate.clone()],
            key: KeyPair::from_pem(&ca.key.serialize_pem()).unwrap(),
        };
        let answer = ca.answer(&first, Kind::Ip, &ca.certificates(&ca.issue(&key)), &by);
        let _ = sent(transaction.take(&answer, inputs(2)).unwrap());
        // Years later the signer's certificate has expired.
        let (mut transaction, first) = begin(transaction.settings, &key);
        let answer = ca.answer(&first, Kind::Ip, &ca.certificates(&ca.issue(&key)), &by);
        let error = transaction
            .take(&answer, MessageInputs { now: NOW + VALIDITY * 2, ..inputs(2) })
            .unwrap_err();
        assert!(error.to_string().contains("the signer is not trusted"), "{error}");
    }
}

#[test]
fn a_signature_in_place_of_a_password_counts_if_its_signer_is_allowed() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let by = Credential::Certificate {
        chain: vec![ca.certificate.clone()],
        key: KeyPair::from_pem(&ca.key.serialize_pem()).unwrap(),
    };
    let contents = ca.certificates(&ca.issue(&key));
    let take = |settings: Settings| {
        let (mut transaction, first) = begin(settings, &key);
        let answer = ca.answer(&first, Kind::Ip, &contents, &by);
        transaction.take(&answer, inputs(2)).map(sent).map_err(|error| error.to_string())
    };
    let wanted = || settings(password(), &ca);
    let error = take(wanted()).unwrap_err();
    assert!(
        error.contains("confirm this sender with --recipient or --expect-sender (expectSender)"),
        "{error}"
    );
    let named = |trusted| Settings { recipient: Some(ca.name()), trusted, ..wanted() };
    let error = take(named(Vec::new())).unwrap_err();
    assert!(error.contains("--trusted (trustedRef) is not set"), "{error}");
    take(named(vec![ca.certificate.clone()])).unwrap();
}

#[test]
fn a_certificate_that_may_sign_certificates_alone_signs_no_answer() {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, "a");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let certificate = Certificate::from_der(params.self_signed(&key).unwrap().der()).unwrap();
    let ca = Ca { certificate: certificate.clone(), key };
    let by = Credential::Certificate {
        chain: vec![certificate],
        key: KeyPair::from_pem(&ca.key.serialize_pem()).unwrap(),
    };
    let key = KeyPair::generate().unwrap();
    let wanted = Settings { recipient: Some(ca.name()), ..settings(password(), &ca) };
    let (mut transaction, first) = begin(wanted, &key);
    let answer = ca.answer(&first, Kind::PkiConf, &[5, 0], &by);
    let error = transaction.take(&answer, inputs(2)).unwrap_err().to_string();
    assert!(error.contains("must not be used for signatures"), "{error}");
}

#[test]
fn a_certificate_is_confirmed_by_the_hash_of_its_signature() {
    for (algorithm, length) in
        [(KeyAlgorithm::P256, 32), (KeyAlgorithm::P384, 48), (KeyAlgorithm::P521, 64)]
    {
        let certificate = Ca::with(algorithm).certificate;
        assert_eq!(protection::confirmation_hash(&certificate).unwrap().len(), length);
    }
}

#[test]
fn why_a_certificate_is_rejected_is_reported_whatever_the_server_says_to_that() {
    let (ca, key, other) = (Ca::new(), KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let rejecting = || {
        let (mut transaction, first) = begin(settings(password(), &ca), &key);
        let contents = ca.certificates(&ca.issue(&other));
        let answer = ca.answer(&first, Kind::Ip, &contents, &password());
        let _ = sent(transaction.take(&answer, inputs(2)).unwrap());
        transaction
    };
    assert!(matches!(rejecting().take(b"none", inputs(3)), Err(CmpError::WrongKey)));
    let mut transaction = rejecting();
    assert!(matches!(transaction.rejected(), Some(CmpError::WrongKey)));
    assert!(transaction.rejected().is_none());
}

#[test]
fn a_machine_may_not_answer_in_the_name_of_the_ca_nor_with_a_password_that_was_not_used() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let machine = || ca.credential(KeyPair::generate().unwrap());
    let mut wanted = settings(machine(), &ca);
    wanted.recipient = Some(ca.name());
    let (mut transaction, first) = begin(wanted, &key);
    let contents = ca.certificates(&ca.issue(&key));
    for (by, reason) in
        [(machine(), "has the key that signed it"), (password(), "and the request was not")]
    {
        let answer = ca.answer(&first, Kind::Ip, &contents, &by);
        let error = transaction.take(&answer, inputs(2)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_mac_that_is_not_known_here_is_not_taken_for_a_signature() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let answer_by = |first: &[u8], mac: &str| {
        let known = ca.answer(first, Kind::Ip, &ca.certificates(&ca.issue(&key)), &password());
        let Message { mut header, .. } = Message::read(&known).unwrap();
        header.protection_alg.as_mut().unwrap().oid = ObjectIdentifier::new(mac).unwrap();
        let body = Message::read(&known).unwrap().body().unwrap();
        message::protected_message(
            &message::protected_part(&header, &body).unwrap(),
            Some(&[1; 32]),
            &[],
        )
        .unwrap()
    };
    for mac in ["1.2.840.113549.1.5.14", "1.2.840.113533.7.66.30", "1.2.840.113533.7.66.16"] {
        for trusted in [vec![], vec![ca.certificate.clone()]] {
            let wanted =
                Settings { recipient: Some(ca.name()), trusted, ..settings(password(), &ca) };
            let (mut transaction, first) = begin(wanted, &key);
            let answer = answer_by(&first, mac);
            let error = transaction.take(&answer, inputs(2)).unwrap_err().to_string();
            assert!(error.contains(&format!("is not supported ({mac})")), "{error}");
        }
    }
}

#[test]
fn a_poll_waits_as_long_as_it_is_told_within_reason() {
    for (reported, waited) in [(-5, 1), (0, 1), (60, 60), (i64::MAX, 365 * 86_400)] {
        let reports = [PollRep { request_id: 0, check_after: reported, reason: None }];
        let Step::Wait { time, reason } = wait(&reports).unwrap() else { panic!("it goes on") };
        assert_eq!((time.as_secs(), reason.as_str()), (waited, ""));
    }
    assert!(wait(&[]).is_err());
}

#[test]
fn a_server_that_says_to_wait_in_answer_to_a_poll_is_asked_again_a_minute_later() {
    let (ca, key) = (Ca::new(), KeyPair::generate().unwrap());
    let status = || StatusInfo { status: 3, text: Some(vec!["slow".to_owned()]), failures: None };
    let answer = |request_id| {
        let response = CertResponse { request_id, status: status(), certified: None, info: None };
        CertRep { cas: None, responses: vec![response] }.to_der().unwrap()
    };
    let error = message::ErrorContent { status: status(), code: None, details: None };
    let error = error.to_der().unwrap();
    let polled = |message: &[u8]| {
        let body = Message::read(message).unwrap().body().unwrap();
        let expected = |request| vec![PollReq { request_id: request }].to_der().unwrap();
        let is = |request| body == message::body(Kind::PollReq, &expected(request)).unwrap();
        [0, -1].into_iter().find(|request| is(*request)).expect("a poll")
    };
    let cases = [
        (Kind::Ip, answer(0), 0, Kind::Ip, answer(0), 0),
        (Kind::Error, error.clone(), -1, Kind::Error, error.clone(), -1),
        (Kind::Error, error.clone(), -1, Kind::Ip, answer(0), 0),
        (Kind::Ip, answer(0), 0, Kind::Error, error, 0),
    ];
    for (kind, contents, request, again, more, next) in cases {
        let (mut transaction, first) = begin(settings(password(), &ca), &key);
        let waiting = ca.answer(&first, kind, &contents, &password());
        let poll = sent(transaction.take(&waiting, inputs(2)).unwrap());
        assert_eq!(polled(&poll), request);
        let waiting = ca.answer(&poll, again, &more, &password());
        let step = transaction.take(&waiting, inputs(3)).unwrap();
        let Step::Wait { time, reason } = step else { panic!("{step:?}") };
        assert_eq!((time.as_secs(), reason.as_str()), (60, "slow"));
        let poll = transaction.poll(inputs(4)).unwrap();
        assert_eq!(polled(&poll), next, "{kind:?}, {again:?}");
        let answer = ca.answer(&poll, Kind::Ip, &ca.certificates(&ca.issue(&key)), &password());
        let _ = sent(transaction.take(&answer, inputs(5)).unwrap());
    }
}

//! Certificates, and messages that go out.

use cmpv2::r#gen::InfoTypeAndValue;
use cmpv2::header::{PkiHeader, Pvno};
use der::asn1::{Any, BitString, Null, OctetString};
use der::{Decode as _, Encode as _};
use rcgen::{
    BasicConstraints, CustomExtension, IsCa, Issuer, SanType, SigningKey as _, SubjectPublicKeyInfo,
};
use x509_cert::Certificate;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::spki::SubjectPublicKeyInfoOwned;

use super::encoding::{
    Answer, Answered, answer_to, error, later, oid, refusal, sequence, status, tagged,
};
use super::pairs::{Pair, named, unnamed};
use super::protection::{password_mac, pbm, protection};
use super::quirk::Quirk;
use super::requests::Wanted;
use super::{NAME, NONCE, Open, SECRET, Shared, lock};

const IMPLICIT_CONFIRM: &str = "1.3.6.1.5.5.7.4.13";

impl Shared {
    /// The certificate for a request.
    pub(super) fn issue(&self, wanted: &Wanted) -> Vec<u8> {
        let subject = wanted.subject.to_string();
        let mut params = match subject.strip_prefix("CN=") {
            Some(name) => named(name),
            None if subject.is_empty() => unnamed(),
            None => panic!("a common name alone, and not {subject}"),
        };
        if self.quirk() == Quirk::MakesCa {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        if self.quirk() == Quirk::NamesMore {
            let more = "other.example.com".try_into().expect("a name");
            params.subject_alt_names = vec![SanType::DnsName(more)];
        } else if let Some(names) = &wanted.names {
            let value = names.extn_value.as_bytes().to_vec();
            params
                .custom_extensions
                .push(CustomExtension::from_oid_content(&[2, 5, 29, 17], value));
        }
        let mut key = wanted.key.clone();
        if self.quirk() == Quirk::WrongKey {
            let own = rcgen::PublicKeyData::subject_public_key_info(&self.machine.key);
            key = SubjectPublicKeyInfoOwned::from_der(&own).expect("a key");
        }
        let by =
            if self.quirk() == Quirk::IssuedByUnknownCa { &self.unknown_ca } else { &self.issuing };
        let key = SubjectPublicKeyInfo::from_der(&key.to_der().expect("DER")).expect("a key");
        let issued = params.signed_by(&key, &Issuer::from_params(&by.params, &by.key));
        let der = issued.expect("a certificate").der().to_vec();
        let parsed = Certificate::from_der(&der).expect("a certificate");
        lock(&self.serials).push(parsed.tbs_certificate.serial_number.as_bytes().to_vec());
        der
    }

    pub(super) fn first(&self, header: &PkiHeader<'_>, open: &Open, by_password: bool) -> Vec<u8> {
        let waiting = || Answered { request: 0, status: status(3, &[], &[]), certified: None };
        match self.quirk() {
            Quirk::Waits(_) | Quirk::WaitsAgain | Quirk::FirstNonce => {
                let answer = Answer { cas: None, answers: vec![waiting()] };
                self.write(
                    header,
                    answer_to(open.kind),
                    &answer.to_der().expect("DER"),
                    by_password,
                )
            }
            Quirk::WaitsByError(_) => {
                self.write(header, 23, &error(&status(3, &[], &[])), by_password)
            }
            Quirk::LaterUnasked => self.write(header, 26, &later(), by_password),
            Quirk::Error | Quirk::UnprotectedError => {
                self.write(header, 23, &error(&refusal()), by_password)
            }
            _ => self.certificates(header, open, by_password),
        }
    }

    pub(super) fn certificates(
        &self,
        header: &PkiHeader<'_>,
        open: &Open,
        by_password: bool,
    ) -> Vec<u8> {
        let certificate = tagged(0, &open.issued);
        let certified = Any::from_der(&sequence(&[&certificate])).expect("DER");
        let answer = || {
            let (status, certified) = match self.quirk() {
                Quirk::Refuses => (refusal(), None),
                Quirk::NoCertificate => (status(0, &[], &[]), None),
                Quirk::Mods => (status(1, &["shorter"], &[]), Some(certified.clone())),
                _ => (status(0, &[], &[]), Some(certified.clone())),
            };
            let request = if self.quirk() == Quirk::OtherRequest { 7 } else { 0 };
            Answered { request, status, certified }
        };
        let many = if self.quirk() == Quirk::TwoCertificates { 2 } else { 1 };
        let cas = Some(vec![Any::from_der(&self.root.der).expect("DER")]);
        let cas = cas.filter(|_| self.quirk() != Quirk::NoRoot);
        let answers = (0..many).map(|_| answer()).collect();
        let kind = match (self.quirk(), open.kind) {
            (Quirk::OtherKind, _) => 8,
            (_, kind) => answer_to(kind),
        };
        let answer = Answer { cas, answers }.to_der().expect("DER");
        let mut header = header.clone();
        if self.quirk() == Quirk::FirstNonce {
            header.sender_nonce = OctetString::new(&open.first_nonce[..]).ok();
        }
        self.write(&header, kind, &answer, by_password)
    }

    pub(super) fn write(
        &self,
        to: &PkiHeader<'_>,
        kind: u8,
        contents: &[u8],
        by_password: bool,
    ) -> Vec<u8> {
        let quirk = self.quirk();
        let signer = match quirk {
            Quirk::SignedByMachine => &self.machine,
            Quirk::SignedByUnknownCa => &self.unknown_ca,
            _ => &self.issuing,
        };
        let name = match quirk {
            Quirk::WrongSender => "CN=somebody else",
            Quirk::SignedByMachine => "CN=machine",
            _ => NAME,
        };
        let name = match quirk {
            Quirk::NoSender => Name::default(),
            _ => name.parse().expect("a name"),
        };
        let octets = |bytes: &[u8]| Some(OctetString::new(bytes).expect("octets"));
        let implicit = InfoTypeAndValue { oid: oid(IMPLICIT_CONFIRM), value: Some(Null.into()) };
        let mut header = PkiHeader {
            pvno: Pvno::Cmp2000,
            sender: GeneralName::DirectoryName(name),
            recipient: to.sender.clone(),
            message_time: None,
            protection_alg: Some(protection(quirk, by_password)),
            sender_kid: None,
            recip_kid: None,
            trans_id: to.trans_id.clone(),
            sender_nonce: octets(NONCE),
            recip_nonce: to.sender_nonce.clone(),
            free_text: None,
            general_info: (quirk == Quirk::Implicit).then(|| vec![implicit]),
        };
        match quirk {
            Quirk::WrongTransaction => header.trans_id = octets(&[0; 16]),
            Quirk::NoTransaction => header.trans_id = None,
            Quirk::WrongNonce => header.recip_nonce = octets(&[0; 16]),
            Quirk::NoNonce => header.recip_nonce = None,
            _ => {}
        }
        if quirk == Quirk::UnprotectedError || quirk == Quirk::Unprotected {
            header.protection_alg = None;
        }
        self.protect(&header, &tagged(kind, contents), by_password, signer)
    }

    fn protect(
        &self,
        header: &PkiHeader<'_>,
        body: &[u8],
        by_password: bool,
        signer: &Pair,
    ) -> Vec<u8> {
        let header = header.to_der().expect("DER");
        let protected = sequence(&[&header, body]);
        let mut protection = if by_password {
            let secret = if self.quirk() == Quirk::WrongSecret { "another" } else { SECRET };
            password_mac(secret, &pbm(self.quirk()), &protected)
        } else {
            signer.key.sign(&protected).expect("a signature")
        };
        if self.quirk() == Quirk::Changed {
            protection[7] ^= 1;
        }
        let protection = BitString::from_bytes(&protection).expect("bits").to_der().expect("DER");
        let protection = tagged(0, &protection);
        let is_bare = matches!(self.quirk(), Quirk::UnprotectedError | Quirk::Unprotected);
        let mut extra = vec![&signer.der[..], &self.issuing.der];
        if self.quirk() != Quirk::NoRoot {
            extra.push(&self.root.der);
        }
        let extra = tagged(1, &sequence(&extra));
        sequence(&[&header, body, if is_bare { &[] } else { &protection }, &extra])
    }
}

//! A small CA that speaks CMPv2 over HTTP and misbehaves as it is told. It reads and writes by the message crates and
//! by what little those lack, not by the code under test; `openssl cmp` as its client shows that it speaks the protocol.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use aws_lc_rs::{digest, hmac, signature};
use cmpv2::r#gen::InfoTypeAndValue;
use cmpv2::header::{PkiHeader, Pvno};
use cmpv2::parameter::PbmParameter;
use crmf::controls::CertId;
use crmf::pop::ProofOfPossession;
use crmf::request::CertReqMessages;
use der::asn1::{Any, AnyRef, BitString, Int, Null, ObjectIdentifier, OctetString};
use der::{Decode as _, Encode as _, Sequence, Tag, TagNumber, Tagged as _};
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DistinguishedName, DnType, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SanType, SigningKey as _, SubjectPublicKeyInfo,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use x509_cert::Certificate;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;
use x509_cert::request::CertReq;
use x509_cert::spki::{AlgorithmIdentifierOwned, SubjectPublicKeyInfoOwned};

pub(crate) const SECRET: &str = "a password";
pub(crate) const REFERENCE: &str = "4711";
/// Whose name is in the answers.
pub(crate) const NAME: &str = "CN=issuing";

const PASSWORD_MAC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113533.7.66.13");
const SHA1: &str = "1.3.14.3.2.26";
const SHA256: &str = "2.16.840.1.101.3.4.2.1";
const HMAC_SHA1: &str = "1.3.6.1.5.5.8.1.2";
const HMAC_SHA256: &str = "1.2.840.113549.2.9";
const ECDSA_SHA256: &str = "1.2.840.10045.4.3.2";
const IMPLICIT_CONFIRM: &str = "1.3.6.1.5.5.7.4.13";
const OLD_CERTIFICATE: &str = "1.3.6.1.5.5.7.5.1.5";
const ALTERNATIVE_NAME: &str = "2.5.29.17";
const EXTENSION_REQUEST: &str = "1.2.840.113549.1.9.14";
const NONCE: &[u8] = b"nonce of the CA.";

/// What the CA does otherwise than it should, or may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    None,
    /// A message as it should be, but for one thing.
    WrongTransaction,
    NoTransaction,
    WrongNonce,
    NoNonce,
    /// Somebody else's name as the sender, and none.
    WrongSender,
    NoSender,
    WrongSecret,
    Unprotected,
    Changed,
    /// A MAC of SHA-1.
    Sha1,
    FewRounds,
    ManyRounds,
    /// Signed by a machine that has a certificate of this CA.
    SignedByMachine,
    /// Signed by a CA of the same name that nobody knows.
    SignedByStranger,
    /// A certificate for a key of the CA's own.
    WrongKey,
    /// A certificate by a CA of the same name that nobody knows.
    OfStranger,
    NoCertificate,
    /// A CA's certificate, and one for another name.
    MakesCa,
    NamesMore,
    TwoCertificates,
    OtherRequest,
    OtherKind,
    /// A refusal in the answer, as an error message, and as one that anybody may have written.
    Refuses,
    Error,
    UnprotectedError,
    Mods,
    Implicit,
    /// No certificate of its root comes along.
    NoRoot,
    /// So many polls: after a status, and after an error message that says to wait.
    Waits(usize),
    WaitsByError(usize),
    /// Every poll has the first answer once more, which says to wait and not how long.
    WaitsAgain,
    /// A poll's answer without a poll.
    LaterUnasked,
    /// The delayed answer repeats the first nonce.
    FirstNonce,
    /// Something else than a confirmation at the end.
    NeverConfirms,
    /// No message at all.
    Huge,
    NotFound,
    /// The answer of a proxy before a server that is away.
    Unavailable,
    /// Knows no transaction of before.
    Forgets,
    Redirect,
    WrongType,
    Garbage,
    Trailing,
    CutShort,
    Silent,
}

/// What a CA saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    /// A request, by the number of its body; whether by a password.
    Request {
        kind: u8,
        by_password: bool,
    },
    /// A poll.
    Poll,
    /// A confirmation, and a rejection with what it says.
    Confirmed,
    Rejected(String),
    /// Whatever came while it was away.
    TurnedAway,
}

struct Pair {
    der: Vec<u8>,
    key: KeyPair,
    params: CertificateParams,
}

impl Pair {
    fn new(name: &str, by: Option<&Self>, is_ca: bool) -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = named(name);
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params.key_usages =
                vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        }
        let made = match by {
            Some(by) => {
                let issuer = Issuer::from_params(&by.params, &by.key);
                params.signed_by(&key, &issuer)
            }
            None => params.self_signed(&key),
        };
        let der = made.expect("a certificate").der().to_vec();
        Self { der, key, params }
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = unnamed();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn unnamed() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.use_authority_key_identifier_extension = true;
    params
}

/// A transaction that is open.
#[derive(Default)]
struct Open {
    kind: u8,
    first_nonce: Vec<u8>,
    issued: Vec<u8>,
    polls: usize,
}

struct Shared {
    quirk: Mutex<Quirk>,
    root: Pair,
    issuing: Pair,
    stranger: Pair,
    machine: Pair,
    seen: Mutex<Vec<Seen>>,
    /// By their ids.
    open: Mutex<BTreeMap<Vec<u8>, Open>>,
    /// The last certificates, by serial number.
    serials: Mutex<Vec<Vec<u8>>>,
    ended: AtomicBool,
    tls: Option<Arc<ServerConfig>>,
}

/// A CA that listens. It ends with this value.
pub(crate) struct CmpCa {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl CmpCa {
    pub(crate) fn start(quirk: Quirk) -> Self {
        Self::start_with(quirk, false)
    }

    /// The same over TLS, by a certificate of its root for localhost.
    pub(crate) fn start_tls() -> Self {
        Self::start_with(Quirk::None, true)
    }

    fn start_with(quirk: Quirk, is_tls: bool) -> Self {
        let root = Pair::new("root", None, true);
        let issuing = Pair::new("issuing", Some(&root), true);
        let unknown = Pair::new("root", None, true);
        let stranger = Pair::new("issuing", Some(&unknown), true);
        let machine = Pair::new("machine", Some(&issuing), false);
        let tls = is_tls.then(|| tls(&root));
        let shared = Arc::new(Shared {
            quirk: Mutex::new(quirk),
            root,
            issuing,
            stranger,
            machine,
            seen: Mutex::default(),
            open: Mutex::default(),
            serials: Mutex::default(),
            ended: AtomicBool::new(false),
            tls,
        });
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let serving = Arc::clone(&shared);
        let thread = Some(thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                if serving.ended.load(Ordering::SeqCst) {
                    return;
                }
                // A client that goes away is what some tests are about.
                let _ = serving.serve(socket);
            }
        }));
        Self { address, shared, thread }
    }

    /// Goes on like this.
    pub(crate) fn behave(&self, quirk: Quirk) {
        *lock(&self.shared.quirk) = quirk;
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CA at the top, and the one that issues, in PEM.
    pub(crate) fn root(&self) -> String {
        pem(&self.shared.root.der)
    }

    pub(crate) fn issuing(&self) -> String {
        pem(&self.shared.issuing.der)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        lock(&self.shared.seen).clone()
    }
}

impl Drop for CmpCa {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn pem(der: &[u8]) -> String {
    pki::certificate::certificate_pem(der)
}

fn tls(root: &Pair) -> Arc<ServerConfig> {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    let issuer = Issuer::from_params(&root.params, &root.key);
    let leaf = params.signed_by(&key, &issuer).expect("a certificate");
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the library's own protocol versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key);
    Arc::new(config.expect("a pair"))
}

fn oid(text: &str) -> ObjectIdentifier {
    ObjectIdentifier::new(text).expect("an object identifier")
}

/// A message as it is read here.
#[derive(Sequence)]
struct Raw<'a> {
    header: AnyRef<'a>,
    body: AnyRef<'a>,
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    protection: Option<BitString>,
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    extra: Option<Vec<Certificate>>,
}

#[derive(Sequence)]
struct Status {
    number: u8,
    text: Option<Vec<String>>,
    failures: Option<BitString>,
}

#[derive(Sequence)]
struct Confirmation {
    hash: OctetString,
    request: i64,
    status: Option<Status>,
}

#[derive(Sequence)]
struct Answered {
    request: i64,
    status: Status,
    certified: Option<Any>,
}

#[derive(Sequence)]
struct Answer {
    #[asn1(context_specific = "1", tag_mode = "EXPLICIT", constructed = "true", optional = "true")]
    authorities: Option<Vec<Any>>,
    answers: Vec<Answered>,
}

#[derive(Sequence)]
struct Later {
    request: i64,
    after: u8,
    reason: Option<Vec<String>>,
}

fn tagged(number: u8, contents: &[u8]) -> Vec<u8> {
    let tag = Tag::ContextSpecific { constructed: true, number: TagNumber::new(number) };
    Any::new(tag, contents).and_then(|any| any.to_der()).expect("DER")
}

fn sequence(parts: &[&[u8]]) -> Vec<u8> {
    Any::new(Tag::Sequence, parts.concat()).and_then(|any| any.to_der()).expect("DER")
}

fn status(number: u8, text: &[&str], failures: &[u8]) -> Status {
    let text: Vec<_> = text.iter().map(|text| (*text).to_owned()).collect();
    Status {
        number,
        text: Some(text).filter(|text| !text.is_empty()),
        failures: (!failures.is_empty()).then(|| BitString::from_bytes(failures).expect("bits")),
    }
}

fn refusal() -> Status {
    // badRequest and notAuthorized.
    status(2, &["no machine of that name"], &[0b0010_0000, 0, 1])
}

impl Shared {
    fn quirk(&self) -> Quirk {
        *lock(&self.quirk)
    }

    fn serve(&self, socket: TcpStream) -> std::io::Result<()> {
        socket.set_read_timeout(Some(super::DEADLINE))?;
        match &self.tls {
            None => self.answer(socket),
            Some(config) => {
                let connection = ServerConnection::new(Arc::clone(config));
                let connection = connection.map_err(std::io::Error::other)?;
                self.answer(StreamOwned::new(connection, socket))
            }
        }
    }

    fn answer(&self, mut stream: impl Read + Write) -> std::io::Result<()> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(head.starts_with("post /pkix/servers http/1."), "{head}");
        assert!(head.contains("\r\ncontent-type: application/pkixcmp\r\n"), "{head}");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        let mut body = vec![0; length.expect("a length")];
        stream.read_exact(&mut body)?;
        let (line, kind, mut answer) = match self.quirk() {
            Quirk::NotFound => ("404 Not Found", "text/plain", b"nothing here".to_vec()),
            Quirk::Unavailable => {
                lock(&self.seen).push(Seen::TurnedAway);
                ("503 Service Unavailable", "text/plain", Vec::new())
            }
            Quirk::Redirect => {
                ("302 Found\r\nLocation: http://127.0.0.1:1/", "text/html", Vec::new())
            }
            Quirk::WrongType => ("200 OK", "text/html", self.message(&body)),
            Quirk::Garbage => ("200 OK", "application/pkixcmp", b"\x30\x80no message".to_vec()),
            Quirk::Huge => ("200 OK", "application/pkixcmp", vec![0x30; 1 << 20]),
            Quirk::Silent => {
                // Until the client has gone.
                return stream.read(&mut [0]).map(|_| ());
            }
            _ => ("200 OK", "application/pkixcmp", self.message(&body)),
        };
        let length = answer.len();
        match self.quirk() {
            Quirk::CutShort => answer.truncate(length / 2),
            Quirk::Trailing => answer.push(0),
            _ => {}
        }
        let length = if self.quirk() == Quirk::Trailing { length + 1 } else { length };
        write!(
            stream,
            "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
        )?;
        stream.write_all(&answer)?;
        stream.flush()
    }

    /// The answer to a message, which has to be what the standard says.
    fn message(&self, bytes: &[u8]) -> Vec<u8> {
        let raw = Raw::from_der(bytes).expect("a message");
        let header_bytes = raw.header.to_der().expect("DER");
        let header = PkiHeader::from_der(&header_bytes).expect("a header");
        let protected = sequence(&[&header_bytes, &raw.body.to_der().expect("DER")]);
        let algorithm = header.protection_alg.clone().expect("a protection");
        let protection =
            raw.protection.as_ref().and_then(BitString::as_bytes).expect("whole bytes");
        let by_password = algorithm.oid == PASSWORD_MAC;
        if by_password {
            let parameters = algorithm.parameters.as_ref().expect("parameters");
            let parameters: PbmParameter = parameters.decode_as().expect("parameters");
            let mac = password_mac(SECRET, &parameters, &protected);
            if mac != protection {
                let failed = status(2, &["another password"], &[0b0100_0000]);
                return self.write(&header, 23, &error(&failed), true);
            }
        } else {
            let signer = raw.extra.as_ref().and_then(|extra| extra.first()).expect("a certificate");
            let signer = &signer.tbs_certificate;
            verify(&signer.subject_public_key_info, &protected, protection);
            assert_eq!(header.sender, GeneralName::DirectoryName(signer.subject.clone()));
            let serial = signer.serial_number.as_bytes().to_vec();
            assert!(lock(&self.serials).contains(&serial), "a certificate of somebody else");
        }
        assert_eq!(header.sender_nonce.as_ref().map(|nonce| nonce.as_bytes().len()), Some(16));
        let id = header.trans_id.as_ref().expect("an id").as_bytes().to_vec();
        let kind = raw.body.tag().number().value();
        let contents = raw.body.value();
        let mut all = lock(&self.open);
        let open = if matches!(kind, 0 | 4 | 7) {
            let open = Open { kind, ..Open::default() };
            assert!(all.insert(id.clone(), open).is_none(), "an id of its own");
            all.get_mut(&id)
        } else {
            all.get_mut(&id)
        };
        let open = open.expect("the transaction goes on");
        if !matches!(kind, 0 | 4 | 7) {
            let nonce = header.recip_nonce.as_ref().map(OctetString::as_bytes);
            assert_eq!(nonce, Some(NONCE), "our nonce comes back");
        }
        let mut seen = lock(&self.seen);
        match kind {
            0 | 4 | 7 => {
                seen.push(Seen::Request { kind, by_password });
                open.first_nonce =
                    header.sender_nonce.as_ref().expect("a nonce").as_bytes().to_vec();
                open.issued = self.issue(kind, contents);
                self.first(&header, open, by_password)
            }
            24 => {
                let confirmations: Vec<Confirmation> =
                    Vec::from_der(contents).expect("confirmations");
                let [confirmed] = &confirmations[..] else {
                    panic!("one certificate was asked for")
                };
                let hash = digest::digest(&digest::SHA256, &open.issued);
                assert_eq!(confirmed.hash.as_bytes(), hash.as_ref());
                // OpenSSL says that it accepts; without a word it is accepted too.
                let rejection = confirmed.status.as_ref().filter(|status| status.number != 0);
                seen.push(match rejection {
                    Some(status) => {
                        Seen::Rejected(status.text.clone().unwrap_or_default().concat())
                    }
                    None => Seen::Confirmed,
                });
                if self.quirk() == Quirk::NeverConfirms {
                    return self.write(&header, 26, &later(), by_password);
                }
                self.write(&header, 19, &Null.to_der().expect("DER"), by_password)
            }
            25 => {
                seen.push(Seen::Poll);
                if self.quirk() == Quirk::Forgets {
                    return self.write(&header, 23, &error(&refusal()), by_password);
                }
                open.polls += 1;
                let most = match self.quirk() {
                    Quirk::Waits(most) | Quirk::WaitsByError(most) => most,
                    Quirk::WaitsAgain => return self.first(&header, open, by_password),
                    _ => 1,
                };
                if open.polls <= most {
                    return self.write(&header, 26, &later(), by_password);
                }
                self.certificates(&header, open, by_password)
            }
            other => panic!("a message of kind {other}"),
        }
    }

    fn first(&self, header: &PkiHeader<'_>, open: &Open, by_password: bool) -> Vec<u8> {
        let waiting = || Answered { request: 0, status: status(3, &[], &[]), certified: None };
        match self.quirk() {
            Quirk::Waits(_) | Quirk::WaitsAgain | Quirk::FirstNonce => {
                let answer = Answer { authorities: None, answers: vec![waiting()] };
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

    fn certificates(&self, header: &PkiHeader<'_>, open: &Open, by_password: bool) -> Vec<u8> {
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
        let authorities = Some(vec![Any::from_der(&self.root.der).expect("DER")]);
        let authorities = authorities.filter(|_| self.quirk() != Quirk::NoRoot);
        let answers = (0..many).map(|_| answer()).collect();
        let kind = match (self.quirk(), open.kind) {
            (Quirk::OtherKind, _) => 8,
            (_, kind) => answer_to(kind),
        };
        let answer = Answer { authorities, answers }.to_der().expect("DER");
        let mut header = header.clone();
        if self.quirk() == Quirk::FirstNonce {
            header.sender_nonce = OctetString::new(&open.first_nonce[..]).ok();
        }
        self.write(&header, kind, &answer, by_password)
    }

    /// The certificate for a request, which has to be sound.
    fn issue(&self, kind: u8, contents: &[u8]) -> Vec<u8> {
        let (subject, mut key, names) = if kind == 4 {
            let csr = CertReq::from_der(contents).expect("a PKCS #10 request");
            let attributes = csr.info.attributes.iter();
            let mut requested = attributes.filter(|it| it.oid == oid(EXTENSION_REQUEST));
            let extensions = requested.next().and_then(|it| it.values.get(0).cloned());
            let extensions: Vec<Extension> =
                extensions.map(|it| it.decode_as().expect("extensions")).unwrap_or_default();
            let names = extensions.into_iter().find(|it| it.extn_id == oid(ALTERNATIVE_NAME));
            (csr.info.subject, csr.info.public_key, names)
        } else {
            let requests = CertReqMessages::from_der(contents).expect("a request");
            let [request] = &requests[..] else { panic!("one certificate is asked for") };
            let template = request.cert_req.cert_template.clone();
            let key = template.subject_public_key_info.expect("a key");
            let Some(ProofOfPossession::Signature(proof)) = &request.popo else {
                panic!("no proof that the key is at hand")
            };
            let signed = request.cert_req.to_der().expect("DER");
            verify(&key, &signed, proof.signature.as_bytes().expect("whole bytes"));
            assert_eq!(request.cert_req.cert_req_id, Int::new(&[0]).expect("0"));
            if kind == 7 {
                let controls = request.cert_req.controls.as_ref().expect("controls");
                let old = controls.iter().find(|control| control.oid == oid(OLD_CERTIFICATE));
                let old: CertId = old.expect("an old one").value.decode_as().expect("an id");
                let serial = old.serial_number.as_bytes().to_vec();
                assert!(lock(&self.serials).contains(&serial), "what is renewed is ours");
            }
            let names = template.extensions.unwrap_or_default();
            let names =
                names.into_iter().find(|it: &Extension| it.extn_id == oid(ALTERNATIVE_NAME));
            (template.subject.expect("a subject"), key, names)
        };
        if self.quirk() == Quirk::WrongKey {
            let own = rcgen::PublicKeyData::subject_public_key_info(&self.machine.key);
            key = SubjectPublicKeyInfoOwned::from_der(&own).expect("a key");
        }
        let subject = subject.to_string();
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
        }
        let names = names.filter(|_| self.quirk() != Quirk::NamesMore);
        if let Some(names) = names {
            let value = names.extn_value.into_bytes();
            params
                .custom_extensions
                .push(CustomExtension::from_oid_content(&[2, 5, 29, 17], value));
        }
        let by = if self.quirk() == Quirk::OfStranger { &self.stranger } else { &self.issuing };
        let key = SubjectPublicKeyInfo::from_der(&key.to_der().expect("DER")).expect("a key");
        let issued = params.signed_by(&key, &Issuer::from_params(&by.params, &by.key));
        let der = issued.expect("a certificate").der().to_vec();
        let parsed = Certificate::from_der(&der).expect("a certificate");
        lock(&self.serials).push(parsed.tbs_certificate.serial_number.as_bytes().to_vec());
        der
    }

    fn write(&self, to: &PkiHeader<'_>, kind: u8, contents: &[u8], by_password: bool) -> Vec<u8> {
        let quirk = self.quirk();
        let signer = match quirk {
            Quirk::SignedByMachine => &self.machine,
            Quirk::SignedByStranger => &self.stranger,
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
        self.protect(&header, kind, contents, by_password, signer)
    }

    fn protect(
        &self,
        header: &PkiHeader<'_>,
        kind: u8,
        contents: &[u8],
        by_password: bool,
        signer: &Pair,
    ) -> Vec<u8> {
        let header = header.to_der().expect("DER");
        let body = tagged(kind, contents);
        let protected = sequence(&[&header, &body]);
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
        sequence(&[&header, &body, if is_bare { &[] } else { &protection }, &extra])
    }
}

/// The kind that answers a request's.
fn answer_to(kind: u8) -> u8 {
    if kind == 4 { 3 } else { kind + 1 }
}

fn error(status: &Status) -> Vec<u8> {
    sequence(&[&status.to_der().expect("DER")])
}

fn later() -> Vec<u8> {
    let reason = Some(vec!["somebody has to approve it".to_owned()]);
    vec![Later { request: 0, after: 0, reason }].to_der().expect("DER")
}

fn pbm(quirk: Quirk) -> PbmParameter {
    let algorithm = |text| AlgorithmIdentifierOwned { oid: oid(text), parameters: None };
    let (owf, mac) = if quirk == Quirk::Sha1 { (SHA1, HMAC_SHA1) } else { (SHA256, HMAC_SHA256) };
    let iteration_count = match quirk {
        Quirk::FewRounds => 99,
        Quirk::ManyRounds => 100_001,
        _ => 500,
    };
    let salt = OctetString::new(*b"salt").expect("octets");
    PbmParameter { salt, owf: algorithm(owf), iteration_count, mac: algorithm(mac) }
}

fn protection(quirk: Quirk, by_password: bool) -> AlgorithmIdentifierOwned {
    if !by_password {
        return AlgorithmIdentifierOwned { oid: oid(ECDSA_SHA256), parameters: None };
    }
    let parameters = Some(Any::encode_from(&pbm(quirk)).expect("DER"));
    AlgorithmIdentifierOwned { oid: PASSWORD_MAC, parameters }
}

fn password_mac(secret: &str, parameters: &PbmParameter, message: &[u8]) -> Vec<u8> {
    let (hash, mac) = match parameters.mac.oid.to_string().as_str() {
        HMAC_SHA1 => (&digest::SHA1_FOR_LEGACY_USE_ONLY, hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY),
        HMAC_SHA256 => (&digest::SHA256, hmac::HMAC_SHA256),
        other => panic!("a MAC by {other}"),
    };
    let hash = if parameters.owf.oid == oid(SHA256) { &digest::SHA256 } else { hash };
    let mut key = [secret.as_bytes(), parameters.salt.as_bytes()].concat();
    for _ in 0..parameters.iteration_count {
        key = digest::digest(hash, &key).as_ref().to_vec();
    }
    hmac::sign(&hmac::Key::new(mac, &key), message).as_ref().to_vec()
}

/// All keys of these tests are on P-256.
fn verify(key: &SubjectPublicKeyInfoOwned, message: &[u8], value: &[u8]) {
    let point = key.subject_public_key.as_bytes().expect("whole bytes");
    signature::UnparsedPublicKey::new(&signature::ECDSA_P256_SHA256_ASN1, point)
        .verify(message, value)
        .expect("a good signature");
}

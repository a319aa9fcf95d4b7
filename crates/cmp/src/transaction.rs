//! A transaction from the request to its end: decides on the next message from the last answer (RFC 4210 section 5.2.8,
//! 5.3.18 and 5.3.22; RFC 9483 section 4).
//!
//! ```text
//!  begin ──> ip | cp | kup ──> certConf ──> pkiConf ──> Done
//!    │            │  └── confirmed implicitly ────────────^
//!    │         waiting ──> pollReq <──> pollRep, waiting (Wait, poll)
//!    └── error, rejection: refused
//! ```
//!
//! A certificate that is not accepted is rejected by certConf, so that the server can revoke it.

use core::time::Duration;

use cmpv2::r#gen::InfoTypeAndValue;
use cmpv2::header::{PkiHeader, Pvno};
use der::Encode as _;
use der::asn1::{GeneralizedTime, Null, OctetString};
use der::oid::db::rfc5912::ID_IT_IMPLICIT_CONFIRM;
use escape::{REASON, cut};
use pki::{Certificate, untrusted};
use time::OffsetDateTime;
use x509_cert::ext::pkix::name::GeneralName;

use super::error::CmpError;
use super::message::{
    self, Answer, CertRep, CertResponse, CertStatus, Kind, Message, PollRep, PollReq, StatusInfo,
};
use super::name::DirectoryName;
use super::protection::{self, Credential, ExpectedProtection};
use super::request::{EncodedRequest, Request};
use super::status::{Report, Status, claims};

/// ID of the only request in a message, and the ID that some answers to a PKCS #10 request have instead (RFC 9483
/// section 4.1.4).
const REQUEST: i64 = 0;
const NO_REQUEST: i64 = -1;
/// Wait before the next poll if the server does not specify one.
const DEFAULT_WAIT: Duration = Duration::from_secs(60);

/// Credential, names and options of a transaction.
#[derive(Debug)]
pub struct Settings {
    /// Credential that protects the client's messages.
    pub credential: Credential,
    /// Recipient in the header; `None` means the issuer of the credential's certificate, or an empty name.
    pub recipient: Option<DirectoryName>,
    /// Sender that answers must have; `None` means the recipient.
    pub expected_sender: Option<DirectoryName>,
    /// CAs that sign answers and issue the certificate. If it is empty, the password alone authenticates the server.
    pub trusted: Vec<Certificate>,
    /// True if messages are protected by SHA-1, and answers can be.
    pub allow_sha1: bool,
    /// True if the server is asked to skip the confirmation.
    pub implicit_confirm: bool,
}

/// The time, and randomness, for one message.
#[derive(Debug, Clone, Copy)]
pub struct MessageInputs {
    /// The time.
    pub now: OffsetDateTime,
    /// Value of `senderNonce`.
    pub nonce: [u8; 16],
    /// Salt of the password's MAC.
    pub salt: [u8; 16],
}

/// Next action of the caller.
#[derive(Debug)]
pub enum Step {
    /// Send this message, and pass the answer to [`Transaction::take`].
    Send(Vec<u8>),
    /// Wait, then call [`Transaction::poll`].
    Wait {
        /// Duration of the wait, at least one second.
        time: Duration,
        /// The server's reason, empty if it gives none.
        reason: String,
    },
    /// The enrolment is complete.
    Done(Box<EnrolledCertificate>),
}

/// Result of an enrolment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnrolledCertificate {
    /// The issued certificate.
    pub certificate: Certificate,
    /// Intermediates from the certificate to its root, without the root, as far as the server sent them.
    pub chain: Vec<Certificate>,
    /// The CAs that the server sent as such, and the root that the chain ends at if it was sent.
    pub cas: Vec<Certificate>,
    /// The server's report if the certificate differs from the request.
    pub modified: Option<Report>,
}

#[derive(Debug)]
enum State {
    /// The request is sent; `polled` is its ID while it is polled.
    Requested { polled: Option<i64> },
    /// The confirmation is sent.
    Confirming(Box<EnrolledCertificate>),
    /// The rejection is sent.
    Rejecting(CmpError),
    /// The transaction has ended.
    Over,
}

/// State of one enrolment at a server.
#[derive(Debug)]
pub struct Transaction {
    settings: Settings,
    id: [u8; 16],
    state: State,
    request: EncodedRequest,
    /// Nonces of the first and the last message of this client.
    nonces: [[u8; 16]; 2],
    /// Nonce of the server's last message.
    their_nonce: Option<OctetString>,
}

impl Transaction {
    /// Starts a transaction with a unique ID. Returns the first message.
    pub fn begin(
        settings: Settings,
        request: Request<'_>,
        id: [u8; 16],
        inputs: MessageInputs,
    ) -> Result<(Self, Vec<u8>), CmpError> {
        let (request, body) = request.encode()?;
        let (state, nonces) = (State::Requested { polled: None }, [inputs.nonce; 2]);
        let mut begun = Self { settings, id, state, request, nonces, their_nonce: None };
        let bytes = begun.message(&body, inputs)?;
        Ok((begun, bytes))
    }

    /// Processes an answer.
    pub fn take(&mut self, bytes: &[u8], inputs: MessageInputs) -> Result<Step, CmpError> {
        // The answer to a rejection changes nothing: there is no certificate.
        if let Some(error) = self.rejected() {
            return Err(error);
        }
        let message = Message::read(bytes).map_err(CmpError::Unreadable)?;
        self.verify(&message, inputs.now)?;
        let answer = message.answer().map_err(CmpError::Unreadable)?;
        self.their_nonce.clone_from(&message.header.sender_nonce);
        match (core::mem::replace(&mut self.state, State::Over), answer) {
            (State::Requested { polled }, Answer::Error(error))
                if Status::of(error.status.status) == Status::Waiting =>
            {
                let request = polled.unwrap_or(NO_REQUEST);
                self.wait_for(request, polled.is_some(), &error.status, inputs)
            }
            (_, Answer::Error(error)) => Err(CmpError::Refused(Box::new(Report::from(&error)))),
            (State::Requested { polled }, Answer::Certificates(kind, answer)) => {
                if kind != self.request.answer {
                    return Err(CmpError::Unexpected(kind as u8));
                }
                self.certificates(&message, &answer, polled, inputs)
            }
            (State::Requested { polled: Some(request) }, Answer::Later(reports)) => {
                self.state = State::Requested { polled: Some(request) };
                wait(&reports)
            }
            (State::Confirming(enrolled), Answer::Confirmed) => Ok(Step::Done(enrolled)),
            (State::Over | State::Rejecting(_), _) => Err(CmpError::Over),
            (
                State::Requested { .. } | State::Confirming(_),
                Answer::Certificates(..) | Answer::Confirmed | Answer::Later(_) | Answer::Other,
            ) => Err(CmpError::Unexpected(message.number())),
        }
    }

    /// Polls after a [`Step::Wait`]. Returns the message.
    pub fn poll(&mut self, inputs: MessageInputs) -> Result<Vec<u8>, CmpError> {
        let State::Requested { polled: Some(request) } = self.state else {
            return Err(CmpError::Over);
        };
        let contents = vec![PollReq { request_id: request }].to_der()?;
        self.message(&message::body(Kind::PollReq, &contents)?, inputs)
    }

    /// Returns `true` if the server has the request and is polled.
    pub fn is_polling(&self) -> bool {
        matches!(self.state, State::Requested { polled: Some(_) })
    }

    /// Returns the reason for the rejection of a certificate, and ends the transaction. Use it if the server does not
    /// answer the rejection.
    pub fn rejected(&mut self) -> Option<CmpError> {
        match core::mem::replace(&mut self.state, State::Over) {
            State::Rejecting(error) => Some(error),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Polls for the time to wait (RFC 9483 section 4.4). A server that answers a poll with "waiting" again is polled
    /// later.
    fn wait_for(
        &mut self,
        request: i64,
        is_polled: bool,
        status: &StatusInfo,
        inputs: MessageInputs,
    ) -> Result<Step, CmpError> {
        self.state = State::Requested { polled: Some(request) };
        if is_polled {
            return Ok(later(DEFAULT_WAIT, status.text.as_deref().unwrap_or_default()));
        }
        self.poll(inputs).map(Step::Send)
    }

    /// Checks that a message answers the last one and comes from the server.
    fn verify(&self, message: &Message<'_>, now: OffsetDateTime) -> Result<(), CmpError> {
        let header = &message.header;
        let is = |field: &Option<OctetString>, wanted: &[u8]| {
            field.as_ref().is_some_and(|field| field.as_bytes() == wanted)
        };
        if !is(&header.trans_id, &self.id) {
            return Err(CmpError::WrongTransaction);
        }
        // The final answer may repeat the nonce of the first message instead of that of the last poll (RFC 9483 section
        // 4.4).
        let [first, last] = &self.nonces;
        let is_answer =
            is(&header.recip_nonce, last) || (self.is_polling() && is(&header.recip_nonce, first));
        if !is_answer {
            return Err(CmpError::WrongNonce);
        }
        let expected_sender = self.settings.expected_sender.clone().or_else(|| self.recipient());
        let expected = ExpectedProtection {
            credential: &self.settings.credential,
            sender: expected_sender.as_ref(),
            trusted: &self.settings.trusted,
            allow_sha1: self.settings.allow_sha1,
        };
        protection::verify(message, &expected, now).map_err(|fault| {
            let claims = claims(message).map(Box::new);
            CmpError::Unproven { fault: Box::new(fault), claims }
        })
    }

    fn recipient(&self) -> Option<DirectoryName> {
        self.settings.recipient.clone().or_else(|| self.settings.credential.issuer())
    }

    fn certificates(
        &mut self,
        message: &Message<'_>,
        answer: &CertRep,
        polled: Option<i64>,
        inputs: MessageInputs,
    ) -> Result<Step, CmpError> {
        let [response] = &answer.responses[..] else { return Err(CmpError::OtherRequest) };
        let request = response.request_id;
        let is_ours =
            request == REQUEST || (request == NO_REQUEST && self.request.answer == Kind::Cp);
        if !is_ours || polled.is_some_and(|polled| polled != NO_REQUEST && polled != request) {
            return Err(CmpError::OtherRequest);
        }
        match Status::of(response.status.status) {
            Status::Waiting => {
                let is_polled = polled.is_some();
                return self.wait_for(request, is_polled, &response.status, inputs);
            }
            Status::Accepted | Status::GrantedWithMods => {}
            _ => return Err(CmpError::Refused(Box::new(Report::from(&response.status)))),
        }
        let enrolled = self.enrolled(message, answer, response, inputs.now);
        let mut infos = message.header.general_info.iter().flatten();
        // The server needs no certConf (RFC 4210 section 5.1.1.1).
        let is_confirmed = infos.any(|info| info.oid == ID_IT_IMPLICIT_CONFIRM);
        let (enrolled, hash) = match enrolled {
            Ok(enrolled) => {
                if self.settings.implicit_confirm && is_confirmed {
                    return Ok(Step::Done(Box::new(enrolled)));
                }
                let hash = protection::confirmation_hash(&enrolled.certificate);
                (enrolled, hash.ok_or(CmpError::NoHash)?)
            }
            Err((error, Some(hash))) if !is_confirmed => {
                let confirmation = self.confirmation(request, hash, Some(&error), inputs)?;
                self.state = State::Rejecting(error);
                return Ok(Step::Send(confirmation));
            }
            Err((error, _)) => return Err(error),
        };
        let confirmation = self.confirmation(request, hash, None, inputs)?;
        self.state = State::Confirming(Box::new(enrolled));
        Ok(Step::Send(confirmation))
    }

    /// The certificate if it matches the request; otherwise the fault, and the hash for its rejection.
    fn enrolled(
        &self,
        message: &Message<'_>,
        answer: &CertRep,
        response: &CertResponse,
        now: OffsetDateTime,
    ) -> Result<EnrolledCertificate, (CmpError, Option<Vec<u8>>)> {
        let unreadable = |error| (CmpError::Unreadable(error), None);
        let certified = response.certified.as_ref().ok_or((CmpError::NoCertificate, None))?;
        let certificate = certified.certificate().map_err(unreadable)?;
        let certificate = certificate.ok_or((CmpError::NoCertificate, None))?;
        let rejected = |error| (error, protection::confirmation_hash(&certificate));
        if certificate.key_info != self.request.key {
            return Err(rejected(CmpError::WrongKey));
        }
        let mut cas = answer.cas().map_err(unreadable)?;
        let sent: Vec<_> = message.extra_certificates.iter().chain(&cas).collect();
        let trusted = &self.settings.trusted;
        if !trusted.is_empty() {
            let path: Vec<_> =
                core::iter::once(&certificate).chain(sent.iter().copied()).cloned().collect();
            if let Some(reason) = untrusted(&path, trusted, now) {
                return Err(rejected(CmpError::Untrusted(reason)));
            }
        }
        let (chain, root) = chain_of(&certificate, &sent);
        cas.extend(root.filter(|root| !cas.contains(root)));
        let status = Status::of(response.status.status);
        let modified = (status == Status::GrantedWithMods).then(|| Report::from(&response.status));
        Ok(EnrolledCertificate { certificate, chain, cas, modified })
    }

    fn confirmation(
        &mut self,
        request_id: i64,
        hash: Vec<u8>,
        error: Option<&CmpError>,
        inputs: MessageInputs,
    ) -> Result<Vec<u8>, CmpError> {
        let status = error.map(|error| StatusInfo::bad_template(error.to_string())).transpose()?;
        let hash = OctetString::new(hash)?;
        let contents = vec![CertStatus { hash, request_id, status, algorithm: None }];
        self.message(&message::body(Kind::CertConf, &contents.to_der()?)?, inputs)
    }

    /// Encodes and protects a message.
    fn message(&mut self, body: &[u8], inputs: MessageInputs) -> Result<Vec<u8>, CmpError> {
        let credential = &self.settings.credential;
        let algorithm = credential.algorithm(inputs.salt, self.settings.allow_sha1)?;
        let name = |name: DirectoryName| GeneralName::DirectoryName(name.0);
        let octets = |bytes: &[u8]| OctetString::new(bytes).map(Some);
        let since = u64::try_from(inputs.now.unix_timestamp()).unwrap_or_default();
        let implicit = InfoTypeAndValue { oid: ID_IT_IMPLICIT_CONFIRM, value: Some(Null.into()) };
        let header = PkiHeader {
            pvno: Pvno::Cmp2000,
            sender: name(credential.subject().unwrap_or_else(|| self.request.subject.clone())),
            recipient: name(self.recipient().unwrap_or_default()),
            message_time: Some(GeneralizedTime::from_unix_duration(Duration::from_secs(since))?),
            protection_alg: Some(algorithm.clone()),
            sender_kid: credential.identifier().map(OctetString::new).transpose()?,
            recip_kid: None,
            trans_id: octets(&self.id)?,
            sender_nonce: octets(&inputs.nonce)?,
            recip_nonce: self.their_nonce.clone(),
            free_text: None,
            general_info: self.settings.implicit_confirm.then(|| vec![implicit]),
        };
        let protected = message::protected_part(&header, body)?;
        let protection = credential.protect(&protected, &algorithm)?;
        let bytes =
            message::protected_message(&protected, Some(&protection), credential.certificates())?;
        self.nonces[1] = inputs.nonce;
        Ok(bytes)
    }
}

fn wait(reports: &[PollRep]) -> Result<Step, CmpError> {
    let [report] = reports else { return Err(CmpError::OtherRequest) };
    // Zero and negative times become a second; a year is the maximum.
    let seconds = u64::try_from(report.check_after).unwrap_or_default().clamp(1, 365 * 86_400);
    Ok(later(Duration::from_secs(seconds), report.reason.as_deref().unwrap_or_default()))
}

fn later(time: Duration, reason: &[String]) -> Step {
    let reason = cut(&reason.join("; "), REASON).into_owned();
    Step::Wait { time, reason }
}

/// Sorts the sent certificates into the chain from a certificate to its root, and the root if it was sent.
fn chain_of(
    certificate: &Certificate,
    sent: &[&Certificate],
) -> (Vec<Certificate>, Option<Certificate>) {
    let mut chain: Vec<Certificate> = Vec::new();
    loop {
        let last = chain.last().unwrap_or(certificate);
        let next = sent
            .iter()
            .find(|ca| **ca != certificate && !chain.contains(ca) && last.is_issued_by(ca));
        let Some(&next) = next else { return (chain, None) };
        if next.issuer_name == next.subject_name {
            return (chain, Some(next.clone()));
        }
        chain.push(next.clone());
    }
}

#[cfg(test)]
mod tests;

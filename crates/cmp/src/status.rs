//! Words for a server's status and failure reasons (RFC 4210 section 5.2.3, unchanged in RFC 9810).

use core::fmt;

use escape::{REASON, cut};

use super::message::{Answer, ErrorContent, Message, StatusInfo};

/// `PKIStatus` (RFC 4210 section 5.2.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    Accepted,
    #[strum(to_string = "granted with changes")]
    GrantedWithMods,
    Rejection,
    Waiting,
    #[strum(to_string = "a revocation is imminent")]
    RevocationWarning,
    #[strum(to_string = "a revocation has occurred")]
    RevocationNotification,
    #[strum(to_string = "the key has been updated already")]
    KeyUpdateWarning,
    /// A number that the standard does not define.
    #[strum(to_string = "unknown status {0}")]
    Unknown(u8),
}

impl Status {
    /// The status with this number.
    pub fn of(number: u8) -> Self {
        match number {
            0 => Self::Accepted,
            1 => Self::GrantedWithMods,
            2 => Self::Rejection,
            3 => Self::Waiting,
            4 => Self::RevocationWarning,
            5 => Self::RevocationNotification,
            6 => Self::KeyUpdateWarning,
            other => Self::Unknown(other),
        }
    }
}

/// Names and meanings of the bits of `PKIFailureInfo`. Only those with `true` concern the contents of the request; the
/// others concern the sender, the time or the server.
const FAILURES: [(&str, &str, bool); 27] = [
    ("badAlg", "an algorithm is unknown or not supported", true),
    ("badMessageCheck", "the integrity check failed: wrong password or key", false),
    ("badRequest", "the request is not permitted or not supported", true),
    ("badTime", "the message's time is too far from the server's", false),
    ("badCertId", "no certificate like the one that is named", true),
    ("badDataFormat", "the data has the wrong format", true),
    ("wrongAuthority", "the wrong CA", false),
    ("incorrectData", "the requester's data is wrong", true),
    ("missingTimeStamp", "a time stamp is missing", true),
    ("badPOP", "the proof of possession of the key failed", true),
    ("certRevoked", "the certificate is revoked", true),
    ("certConfirmed", "the certificate is confirmed already", true),
    (
        "wrongIntegrity",
        "the wrong kind of protection: a password instead of a signature or the other way",
        false,
    ),
    ("badRecipientNonce", "a nonce is missing or wrong", true),
    ("timeNotAvailable", "no time source is available", true),
    ("unacceptedPolicy", "a policy is not supported", true),
    ("unacceptedExtension", "an extension is not supported", true),
    ("addInfoNotAvailable", "additional information is not available", true),
    ("badSenderNonce", "a nonce is missing or of the wrong length", true),
    ("badCertTemplate", "the requested names or extensions are wrong or incomplete", true),
    ("signerNotTrusted", "the signer is unknown or not trusted", false),
    ("transactionIdInUse", "the transaction's id is used already", false),
    ("unsupportedVersion", "the protocol's version is not supported", true),
    ("notAuthorized", "the requester is not authorized", false),
    ("systemUnavail", "the system is unavailable for now", false),
    ("systemFailure", "the system failed", false),
    ("duplicateCertReq", "such a certificate exists already", true),
];

/// A status with its reasons and texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Decoded `PKIStatus`.
    pub status: Status,
    /// Texts for a person, written by the server.
    pub texts: Vec<String>,
    /// Names of the reasons, as in `PKIFailureInfo`.
    pub failures: Vec<&'static str>,
    /// Error code of the server's implementation.
    pub code: Option<String>,
}

impl From<&StatusInfo> for Report {
    fn from(info: &StatusInfo) -> Self {
        let bits = info.failures.iter().flat_map(|failures| failures.bits());
        let named = bits.zip(FAILURES).filter(|(is_set, _)| *is_set);
        Self {
            status: Status::of(info.status),
            texts: info.text.clone().unwrap_or_default(),
            failures: named.map(|(_, (name, ..))| name).collect(),
            code: None,
        }
    }
}

impl From<&ErrorContent> for Report {
    fn from(error: &ErrorContent) -> Self {
        let mut report = Self::from(&error.status);
        // Some servers repeat the same text in both places.
        for detail in error.details.iter().flatten() {
            if !report.texts.contains(detail) {
                report.texts.push(detail.clone());
            }
        }
        report.code =
            error.code.as_ref().map(|code| data_encoding::HEXLOWER.encode(code.as_bytes()));
        report
    }
}

impl Report {
    /// Returns `true` if the server refuses the contents of the request, and not only its sender or its time.
    pub fn is_of_the_request(&self) -> bool {
        let mut of_the_request =
            FAILURES.iter().filter(|(.., is_of_the_request)| *is_of_the_request);
        self.failures.is_empty() || of_the_request.any(|(name, ..)| self.failures.contains(name))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.status.fmt(f)?;
        for (index, name) in self.failures.iter().enumerate() {
            let meaning = FAILURES.iter().find(|(known, ..)| known == name).map_or("", |it| it.1);
            write!(f, "{} {name} ({meaning})", if index == 0 { ":" } else { "," })?;
        }
        if !self.texts.is_empty() {
            let texts = self.texts.join("; ");
            write!(f, "; the server says {:?}", cut(&texts, REASON))?;
        }
        if let Some(code) = &self.code {
            write!(f, "; error code 0x{code}")?;
        }
        Ok(())
    }
}

/// The failure that a message reports, without a check of its protection.
pub(super) fn claims(message: &Message<'_>) -> Option<Report> {
    let status = match message.answer().ok()? {
        Answer::Error(error) => return Some(Report::from(&error)),
        Answer::Certificates(_, answer) => answer.responses.into_iter().next()?.status,
        _ => return None,
    };
    let is_refusal =
        !matches!(Status::of(status.status), Status::Accepted | Status::GrantedWithMods);
    is_refusal.then(|| Report::from(&status))
}

#[cfg(test)]
mod tests {
    use der::asn1::{BitString, Int};

    use super::*;

    fn info(status: u8, text: &[&str], failures: &[u8]) -> StatusInfo {
        let text = text.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        StatusInfo {
            status,
            text: Some(text).filter(|text| !text.is_empty()),
            failures: (!failures.is_empty()).then(|| BitString::from_bytes(failures).unwrap()),
        }
    }

    #[test]
    fn a_refusal_is_reported_with_its_reasons_and_with_what_the_server_says() {
        assert_eq!(
            Report::from(&info(2, &["no such user", "ask again"], &[0b0010_0000, 0, 1]))
                .to_string(),
            "rejection: badRequest (the request is not permitted or not supported), notAuthorized \
             (the requester is not authorized); the server says \"no such user; ask again\""
        );
        assert_eq!(Report::from(&info(1, &[], &[])).to_string(), "granted with changes");
        assert_eq!(Report::from(&info(9, &[], &[])).to_string(), "unknown status 9");
        let long = Report::from(&info(2, &[&"x".repeat(2 * REASON)], &[])).to_string();
        assert!(long.ends_with("x…\"") && long.chars().count() < REASON + 40, "{long}");
    }

    #[test]
    fn a_refusal_for_who_asks_or_when_is_none_of_the_request() {
        let of_the_request = |failures: &[u8]| Report::from(&info(2, &[], failures));
        let (bad_template, bad_time) =
            (of_the_request(&[0, 0, 0b0001_0000]), of_the_request(&[16]));
        assert_eq!(
            (&bad_template.failures[..], &bad_time.failures[..]),
            (&["badCertTemplate"][..], &["badTime"][..])
        );
        assert!(bad_template.is_of_the_request() && of_the_request(&[]).is_of_the_request());
        // Both are wrong.
        assert!(of_the_request(&[0b0011_0000]).is_of_the_request());
        assert!(!bad_time.is_of_the_request() && !of_the_request(&[64]).is_of_the_request());
        let others = FAILURES.iter().filter(|(.., is_of_the_request)| !is_of_the_request);
        let others: Vec<_> = others.map(|(name, ..)| *name).collect();
        assert_eq!(
            others,
            [
                "badMessageCheck",
                "badTime",
                "wrongAuthority",
                "wrongIntegrity",
                "signerNotTrusted",
                "transactionIdInUse",
                "notAuthorized",
                "systemUnavail",
                "systemFailure",
            ]
        );
    }

    #[test]
    fn bits_past_the_last_known_one_are_passed_over() {
        let report = Report::from(&info(2, &[], &[0, 0, 0, 0b0011_1111]));
        assert_eq!(report.failures, ["duplicateCertReq"]);
    }

    #[test]
    fn an_error_message_has_a_code_and_details_besides() {
        let error = ErrorContent {
            status: info(2, &["no"], &[]),
            code: Some(Int::new(&[1, 0x0a]).unwrap()),
            details: Some(vec!["no".to_owned(), "never".to_owned()]),
        };
        let reported = Report::from(&error).to_string();
        assert_eq!(reported, "rejection; the server says \"no; never\"; error code 0x010a");
    }
}

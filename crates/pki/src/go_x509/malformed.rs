//! Reasons why Go's parser refuses a certificate.

/// A fault of a certificate for Go's parser.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The text is no sequence of a certificate's three parts, or data follows it.
    #[error("not the DER encoding of one certificate")]
    Encoding,
    /// A field is missing or malformed.
    #[error("its {0} is malformed")]
    Field(&'static str),
    /// The serial number is below zero.
    #[error("its serial number is negative")]
    NegativeSerial,
    /// The algorithm of its signature is given twice, and differs.
    #[error("its two signature algorithms differ")]
    Algorithms,
    /// An extension's value is malformed, or has a name in it that Go does not take.
    #[error("its extension {0} is malformed")]
    Extension(&'static str),
    /// An extension is critical that must not be.
    #[error("its extension {0} is marked critical, which RFC 5280 forbids")]
    Critical(&'static str),
    /// An extension is there more than once.
    #[error("has the extension {0} twice")]
    Twice(String),
    /// Go accepts the certificate, and the parser of this crate does not.
    #[error("cannot be read")]
    Unread,
}

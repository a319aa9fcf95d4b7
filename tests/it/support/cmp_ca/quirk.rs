//! Misbehaviour of a CA.

/// A deviation from correct or usual behaviour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Quirk {
    None,
    /// Correct messages with one fault.
    WrongTransaction,
    NoTransaction,
    WrongNonce,
    NoNonce,
    /// Another name as the sender, and none.
    WrongSender,
    NoSender,
    WrongSecret,
    Unprotected,
    Changed,
    /// A MAC with SHA-1.
    Sha1,
    FewRounds,
    ManyRounds,
    /// Signed by a machine with a certificate of this CA.
    SignedByMachine,
    /// Signed by an unknown CA of the same name.
    SignedByUnknownCa,
    /// A certificate for a key of the CA.
    WrongKey,
    /// A certificate by an unknown CA of the same name.
    IssuedByUnknownCa,
    NoCertificate,
    /// A CA's certificate, and one for another name.
    MakesCa,
    NamesMore,
    TwoCertificates,
    OtherRequest,
    OtherKind,
    /// A refusal in the answer, as an error message, and as an unprotected one.
    Refuses,
    Error,
    UnprotectedError,
    Mods,
    Implicit,
    /// The certificate of the root is not sent.
    NoRoot,
    /// So many polls: after a status, and after an error message that asks to wait.
    Waits(usize),
    WaitsByError(usize),
    /// Every poll repeats the first answer, which asks to wait without a time.
    WaitsAgain,
    /// A poll's answer without a poll.
    LaterUnasked,
    /// The delayed answer repeats the first nonce.
    FirstNonce,
    /// Another message instead of a confirmation at the end.
    NeverConfirms,
    /// No message at all.
    Huge,
    NotFound,
    /// The answer of a proxy for an unavailable server.
    Unavailable,
    /// Earlier transactions are unknown.
    Loses,
    Redirect,
    WrongType,
    Garbage,
    Trailing,
    CutShort,
    Silent,
}

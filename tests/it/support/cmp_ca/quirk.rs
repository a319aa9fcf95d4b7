//! What a CA does otherwise than it should.

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

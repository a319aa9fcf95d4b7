//! What an administrator is told about the certificates: what was refused, and what is not in order
//! and stays as it is.

use time::OffsetDateTime;

use super::holder::date;
use super::{Lockout, Reason, Unfit, Unusable};

/// A request or duty that was not done, because machines would pay for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is refused ({because}): {refusal}")]
pub struct Refused {
    /// What was to be made.
    pub what: Made,
    /// Why it was to be made.
    pub because: Reason,
    /// Why it was not.
    pub refusal: Refusal,
}

/// What a rotation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Made {
    /// A CA.
    #[error("a new certificate authority")]
    Authority,
    /// A serving pair.
    #[error("a new serving pair")]
    Serving,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// These could boot, and could not after it.
    #[error("{}; --force does it all the same", told(.0))]
    LocksOut(Vec<Lockout>),
    /// The chain would be longer than it may.
    #[error(
        "the chain that is sent would take {bytes} bytes, more than the {most} that leave room for \
         renewals; older CAs leave it when they expire, or by `certs distrust`"
    )]
    TooLarge {
        /// As long as it would be.
        bytes: usize,
        /// As long as it may be.
        most: usize,
    },
    /// What is there would be lost.
    #[error("the pair that is there cannot be kept beside the signing CA ({0})")]
    Unkept(Unusable),
    /// Nothing is made where somebody else makes the pair.
    #[error("the serving pair is {0}'s to make")]
    External(String),
    /// Nothing is made while the clock is behind.
    #[error("the clock is behind the newest CA")]
    Clock,
    /// What an issuer has issued cannot be used.
    #[error("what {issuer} issued is not taken: {unfit}")]
    Unfit {
        /// Who issued it.
        issuer: String,
        /// What is wrong with it.
        unfit: Unfit,
    },
    /// Nothing can be issued.
    #[error("{0}")]
    Issue(String),
}

/// Some of those who would be locked out.
fn told(lockouts: &[Lockout]) -> String {
    const MOST: usize = 3;
    let named: Vec<_> = lockouts.iter().take(MOST).map(Lockout::to_string).collect();
    let more = lockouts.len().saturating_sub(MOST);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("after it {}{more}", named.join("; "))
}

/// What an administrator should know: nothing here can mend it, or may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Attention {
    /// What is stored of the signing CA cannot be used, and stays as it is.
    #[error("the certificate authority is left as it is: {0}")]
    Authority(Unusable),
    /// What is stored of the serving pair cannot be used, and stays as it is.
    #[error("the serving pair is left as it is: {0}")]
    Serving(Unusable),
    /// The pair that somebody else makes cannot be served.
    #[error("the pair of {name} is not served: {fault}")]
    External {
        /// What it is called.
        name: String,
        /// What is wrong with it.
        fault: Unusable,
    },
    /// The serving pair is somebody else's, and not valid now.
    #[error(
        "the serving certificate is not valid now, and stays because no CA that is known issued it: \
         bring another one, or have one made by `certs rotate --force`"
    )]
    ServingExpired,
    /// The clock is behind.
    #[error(
        "the clock is behind: \"{name}\" was made at {}; no CA is made before that (where it was made \
         by mistake, `certs distrust` takes it out)",
        date(*.made)
    )]
    ClockBehind {
        /// The CA that is newer than now.
        name: String,
        /// When it was made.
        made: OffsetDateTime,
    },
    /// Something was to be done and was not.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A CA is wanted, and whoever is to issue it does not.
    #[error("{issuer} does not issue a certificate authority ({because}): {reason}")]
    Issuer {
        /// Who is to issue it.
        issuer: String,
        /// Why it is wanted.
        because: Reason,
        /// What is known of why it does not come.
        reason: String,
    },
    /// Somebody cannot boot a machine.
    #[error(transparent)]
    LockedOut(#[from] Lockout),
}

impl Attention {
    /// How metrics and readiness name its kind.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Authority(_) => "authority",
            Self::Serving(_) | Self::ServingExpired | Self::External { .. } => "serving",
            Self::ClockBehind { .. } => "clock",
            Self::Refused(_) => "refused",
            Self::Issuer { .. } => "issuer",
            Self::LockedOut(_) => "locked-out",
        }
    }

    /// Whether it says that something is not done that somebody asked for.
    #[must_use]
    pub fn is_refused_request(&self) -> bool {
        matches!(self, Self::Refused(Refused { because: Reason::Asked, .. }))
    }

    /// How many there are of each kind, of none too.
    #[must_use]
    pub fn counts(all: &[Self]) -> [(&'static str, i64); 6] {
        ["authority", "serving", "clock", "refused", "issuer", "locked-out"].map(|label| {
            let many = all.iter().filter(|attention| attention.label() == label).count();
            (label, i64::try_from(many).unwrap_or(i64::MAX))
        })
    }

    /// All in a few words, for a message that follows the lines with the rest.
    #[must_use]
    pub fn verdict(all: &[Self]) -> String {
        let locked_out = all.iter().filter(|it| matches!(it, Self::LockedOut(_))).count();
        match all {
            [] => "in order".to_owned(),
            _ if locked_out == all.len() => format!("locked out: {locked_out}"),
            _ => format!("not in order: {}", all.len()),
        }
    }

    /// One line that strangers may read, without names; `None` where there is nothing.
    #[must_use]
    pub fn summary(all: &[Self]) -> Option<String> {
        let said = |(label, many)| {
            let said = match label {
                "authority" => "the signing CA cannot be used".to_owned(),
                "serving" => "the serving pair cannot be used".to_owned(),
                "clock" => "the clock is behind".to_owned(),
                "refused" => format!("refused: {many}"),
                "issuer" => "the issuer does not issue the signing CA".to_owned(),
                _ => format!("locked out: {many}"),
            };
            (many > 0).then_some(said)
        };
        let said: Vec<_> = Self::counts(all).into_iter().filter_map(said).collect();
        (!said.is_empty()).then(|| format!("{}; `certs check` tells more", said.join(", ")))
    }
}

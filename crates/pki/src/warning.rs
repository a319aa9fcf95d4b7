//! What an administrator is told about the certificates: what was refused, and what is not in order
//! and stays as it is.

use time::OffsetDateTime;

use super::holder::date;
use super::{Lockout, Reason, Unfit, Unusable, Weakness};

/// A request or duty that was not done, because machines would pay for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is refused ({because}): {refusal}")]
pub struct Refused {
    /// What was to be made.
    pub what: CertificateKind,
    /// Why it was to be made.
    pub because: Reason,
    /// Why it was not.
    pub refusal: Refusal,
}

/// What a rotation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateKind {
    /// A CA.
    #[error("a new certificate authority")]
    Ca,
    /// A serving pair.
    #[error("a new serving pair")]
    Serving,
}

/// Why something is not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// These could boot, and could not after it.
    #[error("{}; --force does it all the same", reported(.0))]
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
    /// Its names take the place of certificates that machines need.
    #[error(
        "with {hosts} names the certificate takes {bytes} of the {most} bytes that are sent at the most, \
         which leaves no room for those of older CAs{}; where older names are not used any more, delete \
         the serving pair: a new one has those alone that are known to be used",
        locked_out.first().map(|first| format!(": {first}")).unwrap_or_default()
    )]
    Names {
        /// As many as it would have.
        hosts: usize,
        /// As long as it would be itself.
        bytes: usize,
        /// As long as the chain may be.
        most: usize,
        /// Those who could not boot without what would be left out of the chain.
        locked_out: Vec<Lockout>,
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
fn reported(lockouts: &[Lockout]) -> String {
    const MAX_NAMED: usize = 3;
    let named: Vec<_> = lockouts.iter().take(MAX_NAMED).map(Lockout::to_string).collect();
    let more = lockouts.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("after it {}{more}", named.join("; "))
}

/// What an administrator should know: nothing here can mend it, or may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// What is stored of the signing CA cannot be used, and stays as it is.
    #[error("the certificate authority is left as it is: {0}")]
    Ca(Unusable),
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
    /// A key that is in use is known to be weak.
    #[error(
        "the key of \"{name}\" is weak: {weakness}; bring another one, or have one made by `certs rotate`"
    )]
    WeakKey {
        /// What the certificate is called that it belongs to.
        name: String,
        /// Why it is.
        weakness: Weakness,
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
    /// A list of CAs is too long for pointer configs.
    #[error(
        "{left_out} of the {listed} CAs of {name} are left out of the bundle and of pointer configs: they \
         issued neither its serving pair nor what is served, and all of them would take {bytes} bytes, \
         more than {most}; list only CAs that issue serving pairs there"
    )]
    Trust {
        /// Who lists them.
        name: String,
        /// As many as there are.
        listed: usize,
        /// As many as are not taken.
        left_out: usize,
        /// All of them, in PEM.
        bytes: usize,
        /// As much as is taken without a second look.
        most: usize,
    },
    /// One of a list of CAs cannot be read.
    #[error("not all that machines are to trust for the pair of {name} is taken: {fault}")]
    TrustUnread {
        /// Whose pair it is.
        name: String,
        /// What is wrong with the list.
        fault: Unusable,
    },
    /// A pointer config trusts this server's CAs where they are not replaced.
    #[error(
        "{name}: its CAs stay as they are through rotations, because they are in a config within it, or in a text that \
         is not edited: write it anew before they expire or are distrusted"
    )]
    OutOfReach {
        /// The pointer config.
        name: String,
    },
    /// A pointer config is larger than a platform takes as user data.
    #[error("{name}: the user data has {bytes} bytes: {}", too_large_for(*.bytes))]
    UserData {
        /// The pointer config.
        name: String,
        /// Its size.
        bytes: usize,
    },
}

/// User data that platforms take, in bytes before any encoding, the smallest first: EC2's
/// `RunInstances`, Azure's `customData` and OpenStack's `user_data` (65,535 bytes in base64), Google's
/// metadata values.
pub const USER_DATA_LIMITS: [(&str, usize); 3] =
    [("EC2", 16 << 10), ("Azure and OpenStack", 65_535 / 4 * 3), ("Google Cloud", 256 << 10)];

/// Whose limits so many bytes pass.
fn too_large_for(bytes: usize) -> String {
    let passed = USER_DATA_LIMITS.iter().filter(|(_, most)| bytes > *most);
    let passed: Vec<_> = passed.map(|(who, most)| format!("{who} takes {most}")).collect();
    passed.join(", ")
}

impl Warning {
    /// How metrics and readiness name its kind.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Ca(_) => "authority",
            Self::Serving(_) | Self::ServingExpired | Self::External { .. } => "serving",
            Self::ClockBehind { .. } => "clock",
            Self::WeakKey { .. } => "weak-key",
            Self::Refused(_) => "refused",
            Self::Issuer { .. } => "issuer",
            Self::LockedOut(_) => "locked-out",
            Self::Trust { .. } | Self::TrustUnread { .. } => "trust",
            Self::UserData { .. } | Self::OutOfReach { .. } => "user-data",
        }
    }

    /// Whether machines boot all the same: today, or on some platforms.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::UserData { .. } | Self::OutOfReach { .. })
    }

    /// Whether it says that something is not done that somebody asked for.
    #[must_use]
    pub fn is_refused_request(&self) -> bool {
        matches!(self, Self::Refused(Refused { because: Reason::Asked, .. }))
    }

    /// How many there are of each kind, of none too.
    #[must_use]
    pub fn counts(all: &[Self]) -> [(&'static str, i64); 9] {
        const LABELS: [&str; 9] = [
            "authority",
            "serving",
            "clock",
            "weak-key",
            "refused",
            "issuer",
            "locked-out",
            "trust",
            "user-data",
        ];
        LABELS.map(|label| {
            let many = all.iter().filter(|attention| attention.label() == label).count();
            (label, i64::try_from(many).unwrap_or(i64::MAX))
        })
    }

    /// All but warnings in a few words, for a message that follows the lines with the rest.
    #[must_use]
    pub fn verdict(all: &[Self]) -> String {
        let locked_out = all.iter().filter(|it| matches!(it, Self::LockedOut(_))).count();
        match all.iter().filter(|it| !it.is_warning()).count() {
            0 => "in order".to_owned(),
            faults if locked_out == faults => format!("locked out: {locked_out}"),
            faults => format!("not in order: {faults}"),
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
                "weak-key" => format!("weak keys: {many}"),
                "refused" => format!("refused: {many}"),
                "issuer" => "the issuer does not issue the signing CA".to_owned(),
                "trust" => "CAs are left out of pointer configs".to_owned(),
                "user-data" => format!("user data too large for EC2, or not kept: {many}"),
                _ => format!("locked out: {many}"),
            };
            (many > 0).then_some(said)
        };
        let said: Vec<_> = Self::counts(all).into_iter().filter_map(said).collect();
        (!said.is_empty()).then(|| format!("{}; `certs check` tells more", said.join(", ")))
    }
}

//! Warnings for administrators: refused requests, and faults that are not repaired.

use time::OffsetDateTime;

use super::chain::MAX_CHAIN_BYTES;
use super::holder::{Lockout, LockoutReason, date};
use super::issuer::IssuedCaFault;
use super::reason::{IssueError, Reason, Unusable};
use super::weak_key::Weakness;

/// A request or due step that was refused because machines would be locked out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is refused ({because}): {refusal}")]
pub struct Refused {
    /// Kind of the certificate.
    pub what: CertificateKind,
    /// Reason for making it.
    pub because: Reason,
    /// Reason for not making it.
    pub refusal: Refusal,
}

/// Kind of a certificate that a rotation makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateKind {
    /// A certificate authority.
    #[error("a new signing CA")]
    Ca,
    /// A serving certificate.
    #[error("a new serving certificate")]
    Serving,
}

/// Reasons for a refusal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Machines that can boot now could not afterwards.
    #[error(
        "{}; hand out the newest pointer configs first, or use --force to do it regardless",
        reported(.0)
    )]
    LocksOut(Vec<Lockout>),
    /// The chain would be too long.
    #[error(
        "the served chain would have {bytes} bytes, more than the {most} that leave room for \
            renewals; older CAs leave it when they expire, or with `certs distrust`"
    )]
    TooLarge {
        /// Size of the new chain in bytes.
        bytes: usize,
        /// Maximum size in bytes.
        most: usize,
    },
    /// The certificate has so many names that the chain has no room for certificates that machines need.
    #[error(
        "with {hosts} names the certificate takes {bytes} of the {MAX_CHAIN_BYTES} bytes of a \
            chain, which leaves no room for older CAs{}; if older names are not used any more, \
            delete the serving certificate: a new one has only the names that are in use",
        locked_out.first().map(|first| format!(": {first}")).unwrap_or_default()
    )]
    Names {
        /// Number of its names.
        hosts: usize,
        /// Size of the certificate in bytes.
        bytes: usize,
        /// Holders that could not boot without the omitted certificates.
        locked_out: Vec<Lockout>,
    },
    /// The present pair would be lost.
    #[error("the present serving certificate cannot be kept with the signing CA ({0})")]
    Unkept(Unusable),
    /// An external pair with this name is configured, so that none is issued.
    #[error("the serving certificate is issued by {0}")]
    External(String),
    /// The clock is behind.
    #[error("the clock is behind the newest CA: set the clock")]
    Clock,
    /// The CA that an issuer issued is not accepted.
    #[error("the CA that {issuer} issued is not accepted: {unfit}")]
    Unfit {
        /// Name of the issuer.
        issuer: String,
        /// Fault of the CA.
        unfit: IssuedCaFault,
    },
    /// Issuing failed.
    #[error("{0}")]
    Issue(String),
}

impl Refusal {
    /// The refusal of a certificate that was to be made for this reason.
    pub(super) fn of(self, what: CertificateKind, because: &Reason) -> Refused {
        Refused { what, because: because.clone(), refusal: self }
    }
}

/// Reasons why a step makes no writes.
#[derive(Debug, thiserror::Error)]
pub(super) enum StepError {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error(transparent)]
    Issue(#[from] IssueError),
}

/// The first few lockouts, as text.
fn reported(lockouts: &[Lockout]) -> String {
    const MAX_NAMED: usize = 3;
    let named: Vec<_> = lockouts.iter().take(MAX_NAMED).map(Lockout::to_string).collect();
    let more = lockouts.len().saturating_sub(MAX_NAMED);
    let more = if more == 0 { String::new() } else { format!("; and {more} more") };
    format!("afterwards {}{more}", named.join("; "))
}

/// Faults that an administrator must repair.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// The stored signing CA is unusable, and is not overwritten.
    #[error("the signing CA is not changed: {0}")]
    Ca(Unusable),
    /// The stored serving pair is unusable, and is not overwritten.
    #[error("the serving certificate is not changed: {0}")]
    Serving(Unusable),
    /// The external pair is unusable.
    #[error("the certificate of {name} is not served: {fault}")]
    External {
        /// Name of the pair.
        name: String,
        /// Fault of the pair.
        fault: Unusable,
    },
    /// The serving certificate is external and not valid now.
    #[error(
        "the serving certificate is not valid now, and is not replaced because no known CA issued \
            it: replace it, or run `certs rotate --force`"
    )]
    ServingExpired,
    /// The clock is earlier than the newest CA.
    #[error(
        "the clock is behind: \"{name}\" was made at {}, and no CA is made before that; set the \
            clock, or remove this CA with `certs distrust` if it was made by mistake",
        date(*.made)
    )]
    ClockBehind {
        /// Subject of the newest CA.
        name: String,
        /// Time of its issue.
        made: OffsetDateTime,
    },
    /// A key in use is weak.
    #[error("the key of \"{name}\" is weak: {weakness}; replace it, or run `certs rotate`")]
    WeakKey {
        /// Subject of its certificate.
        name: String,
        /// Weakness of the key.
        weakness: Weakness,
    },
    /// A request or due step was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The issuer does not issue a CA that is wanted.
    #[error("{issuer} does not issue a signing CA ({because}): {reason}")]
    Issuer {
        /// Name of the issuer.
        issuer: String,
        /// Reason for the request.
        because: Reason,
        /// Reason for the delay, as far as it is known.
        reason: String,
    },
    /// A machine cannot boot.
    #[error(transparent)]
    LockedOut(#[from] Lockout),
    /// A list of CAs is too long for pointer configs.
    #[error(
        "{dropped} of the {listed} CAs of {name} are omitted from the trust bundle and pointer \
            configs: they did not issue a serving certificate in use, and all CAs together have \
            {bytes} bytes, more than {MAX_TRUST_BYTES}; list only CAs that issue serving \
            certificates"
    )]
    Trust {
        /// Name of the list's pair.
        name: String,
        /// Number of CAs in the list.
        listed: usize,
        /// Number of omitted CAs.
        dropped: usize,
        /// Size of the whole list, in bytes of PEM.
        bytes: usize,
    },
    /// A CA of a list is unreadable.
    #[error(
        "not all CAs that machines must trust for the certificate of {name} can be used: {fault}"
    )]
    TrustUnread {
        /// Name of the list's pair.
        name: String,
        /// Fault of the list.
        fault: Unusable,
    },
    /// A pointer config trusts this server's CAs in a place that is not edited.
    #[error(
        "{name}: rotations do not change its CAs, because they are in a nested config or in a text \
            that is not edited; replace it before they expire or are distrusted"
    )]
    OutOfReach {
        /// Name of the pointer config.
        name: String,
    },
    /// A pointer config exceeds a platform's limit of user data.
    #[error("{name}: the user data has {bytes} bytes: {}", too_large_for(*.bytes))]
    UserData {
        /// Name of the pointer config.
        name: String,
        /// Size in bytes.
        bytes: usize,
    },
}

/// Size up to which all CAs that come with an external pair go into pointer configs, in bytes of PEM. Of a longer list
/// only issuers of the present or next pair do: EC2 accepts 16 KiB of user data, and each byte becomes 4/3 there.
pub(super) const MAX_TRUST_BYTES: usize = 8 * 1024;

/// Maximum user data of platforms, in bytes before any encoding, the smallest first: EC2's `RunInstances`, Azure's
/// `customData` and OpenStack's `user_data` (65,535 bytes in base64), Google's metadata values.
pub const USER_DATA_LIMITS: [(&str, usize); 3] =
    [("EC2", 16 << 10), ("Azure and OpenStack", 65_535 / 4 * 3), ("Google Cloud", 256 << 10)];

/// Platforms whose limits are exceeded.
fn too_large_for(bytes: usize) -> String {
    let passed = USER_DATA_LIMITS.iter().filter(|(_, most)| bytes > *most);
    let passed: Vec<_> = passed.map(|(who, most)| format!("{who} accepts {most}")).collect();
    passed.join(", ")
}

/// Labels of warnings, each with its summary, and whether their number follows it.
const SUMMARIES: [(&str, &str, bool); 9] = [
    ("authority", "the signing CA cannot be used", false),
    ("serving", "the serving certificate cannot be used", false),
    ("clock", "the clock is behind", false),
    ("weak-key", "weak keys", true),
    ("refused", "refused", true),
    ("issuer", "the issuer does not issue the signing CA", false),
    ("locked-out", "locked out", true),
    ("trust", "CAs are omitted from pointer configs", false),
    ("user-data", "user data too large for EC2, or not updated", true),
];

impl Warning {
    /// Value of the label in metrics and readiness.
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

    /// The next step of an administrator, for log lines.
    pub fn fix(&self) -> &'static str {
        match self {
            Self::Ca(_) => "restore the signing CA from a backup",
            Self::Serving(_) => {
                "restore the serving certificate and its key from a backup, or replace both"
            }
            Self::External { .. } => "replace the external certificate and its key",
            Self::ServingExpired => {
                "replace the serving certificate, or run `certs rotate --force`"
            }
            Self::ClockBehind { .. } => "set the clock",
            Self::WeakKey { .. } => {
                "run `certs rotate`, or replace an external certificate and its key"
            }
            Self::Refused(_) => {
                "give the machines new pointer configs first, or repeat the command \
                with --force"
            }
            Self::Issuer { .. } => "check the issuer and its CertificateRequest",
            Self::LockedOut(Lockout { reason: LockoutReason::NotYetValid { .. }, .. }) => {
                "set the wrong clock, of this machine or of the server that made the certificate; \
                `certs distrust` removes a CA from the future"
            }
            Self::LockedOut(_) => "give the machines the newest pointer config",
            Self::Trust { .. } | Self::TrustUnread { .. } => "correct the list of CAs",
            Self::OutOfReach { .. } => "write the pointer config again before its CAs expire",
            Self::UserData { .. } => {
                "remove older CAs with `certs distrust`, or use another \
                platform's user data"
            }
        }
    }

    /// File, object or certificate that has the fault; `ca` and `serving` are the places of the signing CA and the
    /// serving certificate.
    pub fn object<'a>(&'a self, ca: &'a str, serving: &'a str) -> &'a str {
        match self {
            Self::Ca(_) | Self::ClockBehind { .. } => ca,
            Self::Refused(refused) if refused.what == CertificateKind::Ca => ca,
            Self::Serving(_) | Self::ServingExpired | Self::Refused(_) => serving,
            Self::External { name, .. }
            | Self::WeakKey { name, .. }
            | Self::Issuer { issuer: name, .. }
            | Self::LockedOut(Lockout { holder: name, .. })
            | Self::Trust { name, .. }
            | Self::TrustUnread { name, .. }
            | Self::OutOfReach { name }
            | Self::UserData { name, .. } => name,
        }
    }

    /// Returns `true` if machines boot all the same: for the time being, or on some platforms.
    pub fn is_warning(&self) -> bool {
        matches!(self, Self::UserData { .. } | Self::OutOfReach { .. })
    }

    /// Returns `true` if it is the refusal of a request.
    pub fn is_refused_request(&self) -> bool {
        matches!(self, Self::Refused(Refused { because: Reason::Requested, .. }))
    }

    /// Number of warnings for each label, zeros included.
    pub fn counts(all: &[Self]) -> [(&'static str, i64); 9] {
        SUMMARIES.map(|(label, ..)| {
            let many = all.iter().filter(|warning| warning.label() == label).count();
            (label, i64::try_from(many).unwrap_or(i64::MAX))
        })
    }

    /// Verdict in a few words, for the last line of a report.
    pub fn verdict(all: &[Self]) -> String {
        let locked_out = all.iter().filter(|it| matches!(it, Self::LockedOut(_))).count();
        match all.iter().filter(|it| !it.is_warning()).count() {
            0 => "OK".to_owned(),
            faults if locked_out == faults => format!("locked out: {locked_out}"),
            faults => format!("faults: {faults}"),
        }
    }

    /// One line for unauthenticated clients, without names; `None` without warnings.
    pub fn summary(all: &[Self]) -> Option<String> {
        let present =
            Self::counts(all).into_iter().zip(SUMMARIES).filter(|((_, many), _)| *many > 0);
        let summary = |((_, many), (_, summary, is_counted)): ((_, i64), (_, &str, bool))| {
            if is_counted { format!("{summary}: {many}") } else { summary.to_owned() }
        };
        let present: Vec<_> = present.map(summary).collect();
        let all = present.join(", ");
        (!present.is_empty()).then(|| format!("{all}; run `certs check` for details"))
    }
}

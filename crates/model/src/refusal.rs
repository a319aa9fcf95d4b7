//! Codes for answers without a config, for programs that do not read the body.
//!
//! A server sends the code in the header `machine-config-server-refusal`, with the status for machines and a line for
//! people. It reveals no more than those: a 401 has one code for all reasons.
//!
//! The variants say what each code means, and [`RefusalCode::status`] its status; docs/src/reference/http.md has them in
//! a table.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use strum::{EnumString, IntoStaticStr, VariantArray};

/// Header with the code of an answer without a config: a Token of RFC 9651, section 3.3.4.
pub const REFUSAL: HeaderName = HeaderName::from_static("machine-config-server-refusal");

/// Reason of [`RefusalCode::Overloaded`].
pub const NO_MEMORY: &str = "too many answers are in progress";

/// Cause of an answer without a config, for unauthenticated clients. The list is closed: a client ignores an unknown
/// code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, EnumString, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum RefusalCode {
    /// No inputs have been read yet.
    InputsNotRead,
    /// No pool has this name.
    PoolUnknown,
    /// The pool is not served while the cluster is being bootstrapped.
    NotInBootstrap,
    /// The pool names no rendered config yet.
    NoConfigYet,
    /// The MachineConfig that the pool names is not found.
    MachineConfigMissing,
    /// The ControllerConfig is not found.
    ControllerConfigMissing,
    /// No kubeconfig can be made for new machines.
    KubeconfigMissing,
    /// The registry credentials that the pool's machines need are not known.
    RegistryCredentialsMissing,
    /// The config fetches itself, directly or by configs of other pools.
    FetchesForever,
    /// The config is invalid, or cannot be expressed in the version asked for.
    NotRenderable,
    /// `Accept` names Ignition versions, none of which is served.
    VersionNotServed,
    /// Access is refused for good.
    AccessRefused,
    /// Access cannot be decided yet: the rules are not known, have just changed, or time decides.
    AccessUndecided,
    /// The token is well-formed, and another server may know it.
    TokenUnknown,
    /// Too many requests from the address were refused.
    TooManyAttempts,
    /// The server does not know the client's address.
    AddressUnknown,
    /// The server has no memory for another answer now.
    Overloaded,
    /// The machine's Ignition is older than the pool accepts.
    IgnitionTooOld,
    /// The pool is closed on the port without TLS.
    PlainPortClosed,
    /// The machine waits for an administrator's approval.
    ApprovalPending,
}

impl RefusalCode {
    /// Value of the header: the name of the variant.
    pub fn label(self) -> &'static str {
        self.into()
    }

    /// Status of the answer: 503 for temporary causes, so that a machine retries.
    pub fn status(self) -> StatusCode {
        match self {
            Self::VersionNotServed => StatusCode::BAD_REQUEST,
            Self::AccessRefused => StatusCode::UNAUTHORIZED,
            _ => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Encoded value of the header.
    pub fn header(self) -> HeaderValue {
        HeaderValue::from_static(self.label())
    }

    /// The code of an answer; `None` for a missing or unknown one.
    pub fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get(REFUSAL)?.to_str().ok()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_read_as_it_is_written() {
        for &code in RefusalCode::VARIANTS {
            let headers = HeaderMap::from_iter([(REFUSAL, code.header())]);
            assert_eq!(RefusalCode::of(&headers), Some(code));
        }
        for unknown in ["", "Pool-Unknown", "pool-unknown;a=1", "no-such-code"] {
            let headers = HeaderMap::from_iter([(REFUSAL, HeaderValue::from_static(unknown))]);
            assert_eq!(RefusalCode::of(&headers), None, "{unknown:?}");
        }
        assert_eq!(RefusalCode::of(&HeaderMap::new()), None);
    }

    #[test]
    fn codes_stay_when_a_variant_gets_another_name() {
        let codes: Vec<&str> = RefusalCode::VARIANTS.iter().map(|code| (*code).into()).collect();
        let expected = "inputs-not-read pool-unknown not-in-bootstrap no-config-yet machine-config-missing \
            controller-config-missing kubeconfig-missing registry-credentials-missing fetches-forever \
            not-renderable version-not-served access-refused access-undecided token-unknown too-many-attempts address-unknown \
            overloaded ignition-too-old plain-port-closed approval-pending";
        assert_eq!(codes.join(" "), expected);
    }

    #[test]
    fn only_what_nobody_but_the_client_can_change_is_refused_for_good() {
        let for_good: Vec<_> = RefusalCode::VARIANTS
            .iter()
            .copied()
            .filter(|it| !it.status().is_server_error())
            .collect();
        assert_eq!(for_good, [RefusalCode::VersionNotServed, RefusalCode::AccessRefused]);
    }
}

//! Tokens that are identified by their prefix.
//!
//! Prefixes and lengths are those that the issuers document, and that scanners of source code such as gitleaks and
//! detect-secrets use. If versions of a token differ in length, the shortest counts.

use super::found::run;

/// Characters of the rest of a token.
#[derive(Debug, Clone, Copy)]
pub(super) enum Alphabet {
    /// Letters and digits.
    Word,
    /// Hexadecimal digits.
    Hex,
    /// Capital letters and digits.
    Capital,
    /// Capital letters, digits and `-`.
    Serial,
    /// Letters, digits, `-` and `_`.
    Url,
    /// Letters, digits, `-`, `_`, `.` and `=`.
    Dotted,
    /// Base64 with `+`, `/` and `=`.
    Base64,
    /// Characters of a URL's path.
    Path,
}

impl Alphabet {
    pub(super) fn has(self, byte: u8) -> bool {
        let is_word = byte.is_ascii_alphanumeric();
        match self {
            Self::Word => is_word,
            Self::Hex => byte.is_ascii_hexdigit(),
            Self::Capital => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Serial => Self::Capital.has(byte) || byte == b'-',
            Self::Url => is_word || b"-_".contains(&byte),
            Self::Dotted => is_word || b"-_.=".contains(&byte),
            Self::Base64 => is_word || b"+/=".contains(&byte),
            Self::Path => is_word || b"-_./:@".contains(&byte),
        }
    }

    /// The longest prefix of `text` in this alphabet, of at most `most` bytes.
    pub(super) fn run(self, text: &str, most: usize) -> &str {
        run(text, most, |byte| self.has(byte))
    }
}

use Alphabet::{Base64, Capital, Dotted, Hex, Path, Serial, Url, Word};

/// Prefixes of tokens, with the minimum length and the alphabet of the rest.
pub(super) static TOKENS: &[(&[&str], usize, Alphabet)] = &[
    // Tokens of this server.
    (&["mcs-"], 43, Url),
    // Forges and package registries.
    (&["ghp_", "gho_", "ghu_", "ghs_", "ghr_", "npm_"], 36, Word),
    (&["glpat-", "gldt-", "glrt-", "glcbt-", "glft-", "glsoat-", "glffct-", "GR1348941"], 20, Url),
    (&["dckr_pat_", "dckr_oat_"], 20, Url),
    (&["github_pat_"], 22, Url),
    (&["glimt-"], 25, Url),
    (&["sgp_"], 40, Url),
    (&["glagent-", "pypi-AgEIcHlwaS5vcmc"], 50, Url),
    (&["gloas-"], 64, Url),
    (&["glptt-", "bkua_"], 40, Hex),
    (&["rubygems_"], 48, Hex),
    (&["ATATT3"], 60, Dotted),
    (&["cmVmd"], 59, Word),
    (&["CLOJARS_"], 60, Word),
    (&["AKCp"], 69, Word),
    (&["rdme_"], 70, Word),
    // Clouds and clusters.
    (&["AKIA", "ASIA", "ABIA", "ACCA"], 16, Capital),
    (&["A3T"], 17, Capital),
    (&["LTAI"], 20, Word),
    (&["GOCSPX-"], 28, Url),
    (&["AIza"], 35, Url),
    (&["sha256~", "fo1_"], 43, Url),
    (&["tk-us-"], 48, Url),
    (&["HRKU-AA"], 58, Url),
    (&["::server:", "::node:"], 20, Hex),
    (&["dapi"], 32, Hex),
    (&["pul-"], 40, Hex),
    (&["dop_v1_", "doo_v1_", "dor_v1_"], 64, Hex),
    (&["fm1r_", "fm2_"], 60, Base64),
    (&["ABSK"], 109, Base64),
    (&["ya29."], 20, Dotted),
    (&["pscale_tkn_", "pscale_oauth_", "pscale_pw_"], 32, Dotted),
    (&["v1.0-"], 100, Dotted),
    // Vaults, networks, monitoring.
    (&["tskey-"], 20, Url),
    (&["hvs.", "hvb.", "hvr."], 24, Url),
    (&["glsa_", "NRII-"], 32, Url),
    (&["PMAK-"], 40, Url),
    (&["dnkey-"], 60, Url),
    (&["dp.st.", "sntrys_"], 40, Dotted),
    (&[".atlasv1."], 60, Dotted),
    (&["dt0c01."], 64, Dotted),
    (&["NRAK-"], 27, Word),
    (&["pnu_"], 36, Word),
    (&["dp.pt."], 40, Word),
    (&["glc_"], 32, Base64),
    (&["ops_eyJ"], 100, Base64),
    (&["sntryu_"], 64, Hex),
    (&["API-"], 26, Capital),
    (&["A3-"], 36, Serial),
    // Messages, mail, payments.
    (&["xoxb-", "xoxp-", "xoxa-", "xoxr-", "xoxs-", "xoxo-", "xoxe-"], 10, Url),
    (&["xapp-"], 20, Url),
    (&["sq0atp-", "sq0csp-"], 22, Url),
    (&["EAAA"], 40, Url),
    (&["duffel_live_", "duffel_test_"], 43, Url),
    (&["xkeysib-"], 64, Url),
    (&["hooks.slack.com/services/", "hooks.slack.com/workflows/"], 20, Path),
    (&["hooks.slack.com/triggers/"], 20, Path),
    (&["discord.com/api/webhooks/"], 30, Path),
    (&["api.telegram.org/bot"], 35, Path),
    (&[".webhook.office.com/webhookb2/"], 36, Path),
    (&["SG."], 60, Dotted),
    (&["sk_live_", "sk_test_", "sk_prod_", "rk_live_", "rk_test_"], 10, Word),
    (&["whsec_"], 24, Base64),
    (&["SK", "shpat_", "shpca_", "shppa_", "shpss_"], 32, Hex),
    (&["shippo_live_", "shippo_test_"], 40, Hex),
    // Other services.
    (&["sk-ant-", "sk-proj-", "sk-svcacct-", "sk-admin-"], 40, Url),
    (&["pplx-"], 48, Word),
    (&["hf_"], 34, Word),
    (&["lin_api_", "ntn_"], 40, Word),
];

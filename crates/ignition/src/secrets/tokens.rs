//! Tokens that are identified by their prefix.
//!
//! Prefixes and lengths are those that the issuers document, and that scanners of source code such as gitleaks and
//! detect-secrets use. If versions of a token differ in length, the shortest counts.

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
            Self::Serial => byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'-',
            Self::Url => is_word || b"-_".contains(&byte),
            Self::Dotted => is_word || b"-_.=".contains(&byte),
            Self::Base64 => is_word || b"+/=".contains(&byte),
            Self::Path => is_word || b"-_./:@".contains(&byte),
        }
    }
}

use Alphabet::{Base64, Capital, Dotted, Hex, Path, Serial, Url, Word};

/// Prefix of a token, with the minimum length and the alphabet of the rest.
pub(super) static TOKENS: &[(&str, usize, Alphabet)] = &[
    // Tokens of this server.
    ("mcs-", 43, Url),
    // Forges and package registries.
    ("ghp_", 36, Word),
    ("gho_", 36, Word),
    ("ghu_", 36, Word),
    ("ghs_", 36, Word),
    ("ghr_", 36, Word),
    ("github_pat_", 22, Url),
    ("glpat-", 20, Url),
    ("gldt-", 20, Url),
    ("glrt-", 20, Url),
    ("glptt-", 40, Hex),
    ("glcbt-", 20, Url),
    ("glft-", 20, Url),
    ("glimt-", 25, Url),
    ("glagent-", 50, Url),
    ("gloas-", 64, Url),
    ("glsoat-", 20, Url),
    ("glffct-", 20, Url),
    ("GR1348941", 20, Url),
    ("ATATT3", 60, Dotted),
    ("bkua_", 40, Hex),
    ("npm_", 36, Word),
    ("pypi-AgEIcHlwaS5vcmc", 50, Url),
    ("rubygems_", 48, Hex),
    ("dckr_pat_", 20, Url),
    ("dckr_oat_", 20, Url),
    ("CLOJARS_", 60, Word),
    ("rdme_", 70, Word),
    ("AKCp", 69, Word),
    ("cmVmd", 59, Word),
    ("sgp_", 40, Url),
    // Clouds and clusters.
    ("AKIA", 16, Capital),
    ("ASIA", 16, Capital),
    ("ABIA", 16, Capital),
    ("ACCA", 16, Capital),
    ("A3T", 17, Capital),
    ("ABSK", 109, Base64),
    ("HRKU-AA", 58, Url),
    ("tk-us-", 48, Url),
    ("LTAI", 20, Word),
    ("AIza", 35, Url),
    ("ya29.", 20, Dotted),
    ("GOCSPX-", 28, Url),
    ("dop_v1_", 64, Hex),
    ("doo_v1_", 64, Hex),
    ("dor_v1_", 64, Hex),
    ("sha256~", 43, Url),
    ("::server:", 20, Hex),
    ("::node:", 20, Hex),
    ("dapi", 32, Hex),
    ("fm1r_", 60, Base64),
    ("fm2_", 60, Base64),
    ("fo1_", 43, Url),
    ("pul-", 40, Hex),
    ("pscale_tkn_", 32, Dotted),
    ("pscale_oauth_", 32, Dotted),
    ("pscale_pw_", 32, Dotted),
    ("v1.0-", 100, Dotted),
    // Vaults, networks, monitoring.
    ("hvs.", 24, Url),
    ("hvb.", 24, Url),
    ("hvr.", 24, Url),
    (".atlasv1.", 60, Dotted),
    ("ops_eyJ", 100, Base64),
    ("dp.pt.", 40, Word),
    ("dp.st.", 40, Dotted),
    ("tskey-", 20, Url),
    ("glc_", 32, Base64),
    ("glsa_", 32, Url),
    ("dt0c01.", 64, Dotted),
    ("NRAK-", 27, Word),
    ("sntrys_", 40, Dotted),
    ("sntryu_", 64, Hex),
    ("PMAK-", 40, Url),
    ("API-", 26, Capital),
    ("A3-", 36, Serial),
    ("pnu_", 36, Word),
    ("dnkey-", 60, Url),
    ("NRII-", 32, Url),
    // Messages, mail, payments.
    ("xoxb-", 10, Url),
    ("xoxp-", 10, Url),
    ("xoxa-", 10, Url),
    ("xoxr-", 10, Url),
    ("xoxs-", 10, Url),
    ("xoxo-", 10, Url),
    ("xoxe-", 10, Url),
    ("xapp-", 20, Url),
    ("hooks.slack.com/services/", 20, Path),
    ("hooks.slack.com/workflows/", 20, Path),
    ("hooks.slack.com/triggers/", 20, Path),
    ("discord.com/api/webhooks/", 30, Path),
    (".webhook.office.com/webhookb2/", 36, Path),
    ("api.telegram.org/bot", 35, Path),
    ("SG.", 60, Dotted),
    ("xkeysib-", 64, Url),
    ("sk_live_", 10, Word),
    ("sk_test_", 10, Word),
    ("sk_prod_", 10, Word),
    ("rk_live_", 10, Word),
    ("rk_test_", 10, Word),
    ("whsec_", 24, Base64),
    ("sq0atp-", 22, Url),
    ("sq0csp-", 22, Url),
    ("EAAA", 40, Url),
    ("SK", 32, Hex),
    ("duffel_live_", 43, Url),
    ("duffel_test_", 43, Url),
    ("shippo_live_", 40, Hex),
    ("shippo_test_", 40, Hex),
    ("shpat_", 32, Hex),
    ("shpca_", 32, Hex),
    ("shppa_", 32, Hex),
    ("shpss_", 32, Hex),
    // Other services.
    ("sk-ant-", 40, Url),
    ("sk-proj-", 40, Url),
    ("sk-svcacct-", 40, Url),
    ("sk-admin-", 40, Url),
    ("pplx-", 48, Word),
    ("hf_", 34, Word),
    ("lin_api_", 40, Word),
    ("ntn_", 40, Word),
];

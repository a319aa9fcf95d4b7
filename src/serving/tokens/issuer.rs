//! Follows the file with the public keys of another issuer of tokens.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow};
use files::bounded;
use files::replace::directory_of;
use files::watch::{DirectoryWatch, Scanned};
use model::access::SignedTokens;
use model::access::signed::Settings;
use telemetry::conditions::Status;
use telemetry::faults;
use tokio::sync::watch;

/// An issuer with its keys.
#[derive(Debug, Clone)]
pub(crate) struct TokenIssuer {
    path: PathBuf,
    settings: Settings,
    tokens: SignedTokens,
    text: Vec<u8>,
}

impl TokenIssuer {
    /// Reads the JWK set at `path`.
    pub(crate) fn open(path: PathBuf, settings: Settings) -> anyhow::Result<Self> {
        let (text, tokens) = read(&path, &settings)?;
        let issuer = Self { path, settings, tokens, text };
        issuer.warn_ignored_keys();
        Ok(issuer)
    }

    pub(crate) fn tokens(&self) -> SignedTokens {
        self.tokens.clone()
    }

    /// Sends each new state of the keys, forever. An unusable one keeps the previous keys.
    pub(crate) async fn follow(
        mut self,
        keys: watch::Sender<Option<SignedTokens>>,
        status: Status,
    ) {
        let watch = DirectoryWatch::new(vec![directory_of(&self.path).to_owned()]);
        watch
            .follow(|_| {
                let reason = self.reload(&keys).err().map(|error| format!("{error:#}"));
                faults::SIGNED_TOKENS.report(&status, reason.as_deref());
                Scanned::SETTLED
            })
            .await;
    }

    fn reload(&mut self, keys: &watch::Sender<Option<SignedTokens>>) -> anyhow::Result<()> {
        let (text, tokens) = read(&self.path, &self.settings)?;
        if text != self.text {
            (self.text, self.tokens) = (text, tokens.clone());
            tracing::info!(path = %self.path.display(), "read the keys of signed tokens");
            self.warn_ignored_keys();
            keys.send_replace(Some(tokens));
        }
        Ok(())
    }

    fn warn_ignored_keys(&self) {
        for key in self.tokens.skipped() {
            tracing::warn!(
                path = %self.path.display(),
                key,
                fix = "remove the key, or replace it by one that verifies signatures of tokens",
                "ignored a key of signed tokens"
            );
        }
    }
}

fn read(path: &std::path::Path, settings: &Settings) -> anyhow::Result<(Vec<u8>, SignedTokens)> {
    let named = || format!("--access-jwks {}", path.display());
    let text = bounded::read(path).with_context(named)?;
    let tokens = SignedTokens::new(&text, settings.clone()).map_err(|error| anyhow!(error));
    Ok((text, tokens.with_context(named)?))
}

//! A transaction with a server from its request to the certificate: messages there and back, and the waits between.
//!
//! Once the server has the request and asks to wait, somebody may be about to approve it: a server that is not reached
//! then is asked again what came of it, and the request is not made anew. One that is back and refuses to say may have
//! forgotten it, which is no refusal of the request.

use core::time::Duration;

use rustls::crypto::SecureRandom;
use time::OffsetDateTime;
use tokio::time::sleep;

use super::error::CmpError;
use super::request::Request;
use super::transaction::{Enrolled, Random, Settings, Step, Transaction};
use super::transport::{Server, TransportError};
use crate::backoff::Backoff;

/// The waits after failures, each up to twice as long by chance: a server that is back after a month is asked within
/// ten minutes.
const FIRST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// The waits between tries to reach a server.
#[must_use]
pub(crate) fn tries() -> Backoff {
    Backoff::new(FIRST_WAIT, LONGEST_WAIT)
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The server was not reached, or says what is no message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// What it says, or that it is not to be believed.
    #[error(transparent)]
    Cmp(#[from] CmpError),
    /// The server was away while the request waited there, and does not say now what came of it.
    #[error("it was away while the request waited there, and may have forgotten it: {0}")]
    Forgotten(CmpError),
    /// Nonces cannot be made.
    #[error("there is no randomness")]
    NoRandomness,
}

impl EnrolError {
    /// Whether it is of no use to ask for the same again: the server refuses it, or sends for it what is not taken.
    #[must_use]
    pub fn is_final(&self) -> bool {
        let Self::Cmp(error) = self else { return false };
        match error {
            CmpError::Refused(report) => report.is_of_the_request(),
            CmpError::Csr(_)
            | CmpError::Encoding(_)
            | CmpError::NoCertificate
            | CmpError::WrongKey
            | CmpError::Untrusted(_)
            | CmpError::NoHash => true,
            _ => false,
        }
    }
}

/// Why nothing is asked for a while.
#[derive(Debug)]
pub enum Pause<'a> {
    /// The server asks to wait, for this reason if it gives one.
    Asked(&'a str),
    /// It has the request, and is not reached.
    Away(&'a TransportError),
}

/// Whom certificates are asked of, and what that takes of the surroundings.
#[derive(Clone, Copy)]
pub struct Client<'a> {
    /// The server.
    pub server: &'a Server,
    /// Of nonces and salts.
    pub random: &'a dyn SecureRandom,
    /// What time it is.
    pub clock: fn() -> OffsetDateTime,
}

impl Client<'_> {
    /// Asks for a certificate, and waits for as long as the server asks to or is away meanwhile. Each wait is told, with
    /// its reason.
    pub async fn enrol(
        self,
        settings: Settings,
        request: Request<'_>,
        mut waits: impl FnMut(Duration, Pause<'_>),
    ) -> Result<Enrolled, EnrolError> {
        let (id, random) = (self.random()?, self.fresh()?);
        let begun = Transaction::begin(settings, request, id, random, (self.clock)());
        let (mut transaction, mut message) = begun?;
        let (mut tries, mut was_away) = (tries(), false);
        loop {
            let time = match self.server.exchange(message).await {
                Ok(answer) => {
                    tries.reset();
                    match transaction.take(&answer, self.fresh()?, (self.clock)()) {
                        Ok(Step::Send(next)) => {
                            message = next;
                            continue;
                        }
                        Ok(Step::Wait { time, reason }) => {
                            was_away = false;
                            waits(time, Pause::Asked(&reason));
                            time
                        }
                        Ok(Step::Done(enrolled)) => return Ok(*enrolled),
                        Err(error @ CmpError::Refused(_)) if was_away => {
                            return Err(EnrolError::Forgotten(error));
                        }
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) if transaction.is_polling() && error.is_absence() => {
                    was_away = true;
                    let time = tries.next();
                    waits(time, Pause::Away(&error));
                    time
                }
                Err(error) => return Err(transaction.rejected().map_or(error.into(), Into::into)),
            };
            sleep(time).await;
            message = transaction.poll(self.fresh()?, (self.clock)())?;
        }
    }

    fn fresh(&self) -> Result<Random, EnrolError> {
        Ok(Random { nonce: self.random()?, salt: self.random()? })
    }

    fn random(&self) -> Result<[u8; 16], EnrolError> {
        let mut bytes = [0; 16];
        self.random.fill(&mut bytes).map_err(|_| EnrolError::NoRandomness)?;
        Ok(bytes)
    }
}

//! A transaction with a server from its request to the certificate: messages there and back, and the waits between.
//!
//! Once the server has the request and asks to wait, somebody may be about to approve it: a server that is not reached
//! then is asked again what came of it, and the request is not made anew. One that is back and refuses to say may have
//! forgotten it, which is no refusal of the request.

use core::error::Error;
use core::time::Duration;

use time::OffsetDateTime;

use super::error::CmpError;
use super::request::Request;
use super::transaction::{Enrolled, Fresh, Settings, Step, Transaction};

/// The way to a server, and the waits on it.
pub trait Transport {
    /// Sends a message, and returns the answer's bytes.
    fn exchange(
        &self,
        message: Vec<u8>,
    ) -> impl Future<Output = Result<Vec<u8>, TransportError>> + Send;

    /// Returns once this time is over.
    fn wait(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// The waits before a server that is absent is asked again. Where they end, so does the transaction.
    fn retries(&self) -> impl Iterator<Item = Duration> + Send;
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// Nobody answers, or somebody in the server's place says that it does not. It may answer later.
    #[error(transparent)]
    Absent(Box<dyn Error + Send + Sync>),
    /// What answers sends no message.
    #[error(transparent)]
    NoMessage(Box<dyn Error + Send + Sync>),
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
#[derive(Debug)]
pub struct Client<'a, T> {
    /// The way to the server.
    pub transport: &'a T,
    /// Of nonces and salts; `None` where there is no randomness.
    pub random: fn() -> Option<[u8; 16]>,
    /// What time it is.
    pub clock: fn() -> OffsetDateTime,
}

impl<T: Transport> Client<'_, T> {
    /// Asks for a certificate, and waits for as long as the server asks to or is away meanwhile. Each wait is told, with
    /// its reason.
    pub async fn enrol(
        self,
        settings: Settings,
        request: Request<'_>,
        mut waits: impl FnMut(Duration, Pause<'_>),
    ) -> Result<Enrolled, EnrolError> {
        let begun = Transaction::begin(settings, request, self.random()?, self.fresh()?);
        let (mut transaction, mut message) = begun?;
        let (mut retries, mut was_away) = (self.transport.retries(), false);
        loop {
            let time = match self.transport.exchange(message).await {
                Ok(answer) => {
                    retries = self.transport.retries();
                    match transaction.take(&answer, self.fresh()?) {
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
                Err(error @ TransportError::Absent(_)) if transaction.is_polling() => {
                    was_away = true;
                    let Some(time) = retries.next() else { return Err(error.into()) };
                    waits(time, Pause::Away(&error));
                    time
                }
                Err(error) => return Err(transaction.rejected().map_or(error.into(), Into::into)),
            };
            self.transport.wait(time).await;
            message = transaction.poll(self.fresh()?)?;
        }
    }

    fn fresh(&self) -> Result<Fresh, EnrolError> {
        Ok(Fresh { now: (self.clock)(), nonce: self.random()?, salt: self.random()? })
    }

    fn random(&self) -> Result<[u8; 16], EnrolError> {
        (self.random)().ok_or(EnrolError::NoRandomness)
    }
}

#[cfg(test)]
mod tests;

//! New tokens: the only place of access where randomness is asked for.
#![expect(clippy::disallowed_methods, reason = "what a token is made of")]

use rustls::crypto::{GetRandomFailed, aws_lc_rs};

use super::token::Token;

/// A new token from the system's randomness.
///
/// # Errors
/// There is none to be had.
pub fn token() -> Result<Token, GetRandomFailed> {
    let mut random = [0; 32];
    aws_lc_rs::default_provider().secure_random.fill(&mut random)?;
    Ok(Token::new(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        assert_ne!(token().unwrap(), token().unwrap());
    }
}

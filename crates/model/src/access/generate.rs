//! Generation of tokens: the only place of access control that uses randomness.
#![expect(clippy::disallowed_methods, reason = "what a token is made of")]

use rustls::crypto::{GetRandomFailed, aws_lc_rs};

use super::token::Token;

/// Generates a token from the system's randomness.
///
/// # Errors
/// The random generator failed.
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

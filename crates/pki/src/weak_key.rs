//! Detects weak RSA keys, as Boulder's `goodkey` and cert-manager do. Keys of other kinds have no such faults.

use num_bigint::BigUint;

use super::go_x509::rsa_key;

/// Weaknesses of a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Weakness {
    /// The exponent is even, or below 65537 (NIST SP 800-56B section 6.2).
    #[error("its RSA exponent is even or below 65537")]
    Exponent,
    /// A small prime divides the modulus.
    #[error("its RSA modulus is divisible by {0}")]
    SmallFactor(u32),
    /// The modulus has the form of Infineon's library (CVE-2017-15361).
    #[error("its RSA modulus is one that ROCA factors (CVE-2017-15361)")]
    Roca,
    /// The factors of the modulus are so close that Fermat's method finds them.
    #[error("the two factors of its RSA modulus are too close to each other")]
    CloseFactors,
}

/// Largest prime that is tried as a factor of the modulus, as in Boulder.
const LAST_SMALL_PRIME: u32 = 751;
/// Largest prime that identifies ROCA's moduli.
const LAST_ROCA_PRIME: u32 = 167;
/// Rounds of Fermat's method: a hundred find all keys that were seen in the field (CVE-2022-26320).
const FERMAT_ROUNDS: u32 = 110;

/// Weakness of an encoded public key with its algorithm, `None` if it has none.
pub(super) fn weakness(key_info: &[u8]) -> Option<Weakness> {
    let (modulus, exponent) = rsa_key(key_info)?;
    let exponent = BigUint::from_bytes_be(exponent);
    if !exponent.bit(0) || exponent < BigUint::from(65_537_u32) {
        return Some(Weakness::Exponent);
    }
    of_modulus(&BigUint::from_bytes_be(modulus))
}

fn of_modulus(modulus: &BigUint) -> Option<Weakness> {
    if let Some(factor) = primes(LAST_SMALL_PRIME).find(|prime| remainder(modulus, *prime) == 0) {
        return Some(Weakness::SmallFactor(factor));
    }
    if primes(LAST_ROCA_PRIME).skip(1).all(|prime| is_power(remainder(modulus, prime), prime)) {
        return Some(Weakness::Roca);
    }
    has_close_factors(modulus).then_some(Weakness::CloseFactors)
}

fn remainder(modulus: &BigUint, prime: u32) -> u32 {
    // The remainder is below `prime`, which has 32 bits.
    u32::try_from(modulus % prime).unwrap_or_default()
}

fn primes(last: u32) -> impl Iterator<Item = u32> {
    let is_prime = |number: &u32| {
        (2..*number).take_while(|it| it * it <= *number).all(|it| !number.is_multiple_of(it))
    };
    (2..=last).filter(is_prime)
}

/// Returns `true` if a number is a power of 65537 modulo a prime, as every modulus that ROCA factors is.
fn is_power(number: u32, prime: u32) -> bool {
    let mut power = 1;
    for _ in 0..prime {
        if power == number {
            return true;
        }
        power = power * (65_537 % prime) % prime;
    }
    false
}

/// Applies Fermat's method: a number is the difference of two squares, whose roots are close if its factors are.
fn has_close_factors(modulus: &BigUint) -> bool {
    let mut root = modulus.sqrt();
    if &root * &root < *modulus {
        root += 1_u32;
    }
    let mut rest = &root * &root - modulus;
    for _ in 0..FERMAT_ROUNDS {
        if is_square(&rest) {
            return true;
        }
        rest += (&root << 1_u32) + 1_u32;
        root += 1_u32;
    }
    false
}

fn is_square(number: &BigUint) -> bool {
    // A remainder excludes most numbers, and takes less time than a root.
    let is_square_modulo = |modulus: u32| {
        let remainder = remainder(number, modulus);
        (0..modulus).any(|root| root * root % modulus == remainder)
    };
    [64, 63, 65, 11].into_iter().all(is_square_modulo) && {
        let root = number.sqrt();
        &root * &root == *number
    }
}

#[cfg(test)]
mod tests {
    mod in_use;

    use super::*;

    /// The sum of 2^1023 and `more`.
    fn factor(more: u32) -> BigUint {
        (BigUint::from(1_u32) << 1023_u32) + more
    }

    /// A factor without small primes: the first one from `begin`.
    fn rough(begin: &BigUint) -> BigUint {
        let mut number = begin | BigUint::from(1_u32);
        while primes(LAST_SMALL_PRIME).any(|prime| remainder(&number, prime) == 0) {
            number += 2_u32;
        }
        number
    }

    #[test]
    fn close_factors_are_found_and_others_are_not() {
        let one = rough(&factor(1));
        assert_eq!(of_modulus(&(&one * &one)), Some(Weakness::CloseFactors));
        let next = rough(&(&one + 2_u32));
        assert_eq!(of_modulus(&(&one * &next)), Some(Weakness::CloseFactors));
        // Half of their digits are equal, so that some rounds find them.
        let near = rough(&(&one + (BigUint::from(1_u32) << 515_u32)));
        assert_eq!(of_modulus(&(&one * &near)), Some(Weakness::CloseFactors));
        let far = rough(&(&one + (BigUint::from(1_u32) << 1000_u32)));
        assert_eq!(of_modulus(&(&one * &far)), None);
    }

    #[test]
    fn small_factors_are_named() {
        let large = rough(&factor(1));
        for prime in [2, 3, 5, 701, 751] {
            assert_eq!(of_modulus(&(&large * prime)), Some(Weakness::SmallFactor(prime)));
        }
        assert_eq!(primes(20).collect::<Vec<_>>(), [2, 3, 5, 7, 11, 13, 17, 19]);
    }

    #[test]
    fn the_form_of_roca_is_recognised() {
        // Its primes are k·M + 65537^a mod M, where M is the product of the first primes.
        let product = primes(LAST_ROCA_PRIME).fold(BigUint::from(1_u32), |all, prime| all * prime);
        let of = |exponent: u32, k: u32| {
            let power = BigUint::from(65_537_u32).modpow(&BigUint::from(exponent), &product);
            (&product * (factor(k) >> 300_u32)) + power
        };
        let modulus = of(1_234, 5) * (of(77, 9) << 1_u32 | BigUint::from(1_u32));
        assert_ne!(of_modulus(&modulus), Some(Weakness::Roca));
        let (mut one, other) = (of(1_234, 5), of(77, 9_999));
        while of_modulus(&(&one * &other)).is_some_and(|it| matches!(it, Weakness::SmallFactor(_)))
        {
            one += &product;
        }
        assert_eq!(of_modulus(&(one * other)), Some(Weakness::Roca));
    }

    #[test]
    fn only_exponents_from_65537_on_are_taken() {
        let ours =
            rcgen::KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, rcgen::RsaKeySize::_2048);
        let key = rcgen::PublicKeyData::subject_public_key_info(&ours.unwrap());
        assert_eq!(weakness(&key), None);
        let exponent = key.len() - 3;
        assert_eq!(key[exponent..], [1, 0, 1]);
        for (bytes, is_taken) in [([1, 0, 3], true), ([1, 0, 2], false), ([0, 255, 255], false)] {
            let mut other = key.clone();
            other[exponent..].copy_from_slice(&bytes);
            assert_eq!(weakness(&other).is_none(), is_taken, "{bytes:?}");
        }
        let ecdsa = rcgen::KeyPair::generate().unwrap();
        assert_eq!(weakness(&rcgen::PublicKeyData::subject_public_key_info(&ecdsa)), None);
    }
}
